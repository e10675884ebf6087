"""The steps of one batch: records of some groups to every table.

**Rules.** All records of a group come to one task, in the order of the log. The runner decides
where a step runs, in this process or on Spark (:mod:`holdfast.fleet.pipeline.steps`).

**Strategy.**

=========  ======================================================  ================================
step       reads                                                   writes
=========  ======================================================  ================================
split      all records, once                                       offset_commits, bad_records
groups     all other records, by group                             generations, members, assignments
                                                                   movements, anomalies, bad_records
lag        owners by the records, positions and end offsets        lag, lag_history
gaps       gaps by the records, departed members, commits of       ownership_gaps
           those groups, and idle times by ``lag``
=========  ======================================================  ================================

Step ``groups`` makes ``rebalances``; step ``gaps`` adds sums of gaps, and departures.
``split`` and ``groups`` are one step of the runner. The tasks write their files themselves
(:mod:`holdfast.fleet.tables.folder.files`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.analysis.findings.examination import EXAMINED, Examined
from holdfast.fleet.analysis.times import Since, window_end_ms
from holdfast.fleet.columnar import Batches, BatchTask
from holdfast.fleet.pipeline.batches.examined import (
    FOLLOWED,
    ChangedGroups,
    changed_groups,
    findings_step,
    kept_findings,
    listed_tables,
)
from holdfast.fleet.pipeline.batches.state import STATE, state_task
from holdfast.fleet.pipeline.batches.tasks import groups_task
from holdfast.fleet.pipeline.history.broker_log import read_logs, restated, unmistakable
from holdfast.fleet.pipeline.history.departures import DEPARTURES, how_they_went, with_departures
from holdfast.fleet.pipeline.history.lag import (
    INPUT,
    OLDEST_UNREAD,
    OWNERS,
    Ends,
    UnreadQuery,
    furthest_behind,
    lag_of_groups,
    oldest_unread,
    unread_in_advance,
)
from holdfast.fleet.pipeline.history.ownership_gaps import (
    OWNING,
    SEEN,
    STAGED,
    STAGED_GAPS,
    add_gaps,
    commit_rows,
    gaps_of_each,
    idle_rows,
    late_gaps,
    narrow,
)
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.split import (
    LATEST,
    POSITIONS,
    SPLIT,
    SPLIT_ORDER,
    from_commits,
    split_task,
)
from holdfast.fleet.pipeline.steps import (
    Grouping,
    Input,
    OfGroups,
    Rows,
    Session,
    Step,
    by_table,
    rows_of_files,
    run,
    run_on_spark,
    unchanged,
    whole_groups,
    writing_groups,
)
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.commits import data_files
from holdfast.fleet.tables.folder.files import (
    FILES_SCHEMA,
    BatchWriter,
    checked_files,
    files_of,
    remove_table,
)
from holdfast.fleet.tables.folder.snapshot import of_groups
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.parquet import BoundedParquet
from holdfast.fleet.tables.storage.paths import StoragePath

Files = list[tuple[str, int]]

STAGED_TABLES: Final = (POSITIONS, STAGED_GAPS, DEPARTURES)
"""What one step writes for another of the same batch."""

WAITING_STATE: Final = "_waiting"
"""Records of transactions that are open where a batch of a stream ends."""

STATE_TABLES: Final = (STATE, LATEST, SEEN, OWNERS, WAITING_STATE, FOLLOWED)
"""What a batch of a stream writes for the next one, or for new log ends (:meth:`Job.lag`)."""


@dataclass(slots=True)
class Job:
    """One batch in progress."""

    session: Session
    tables: Tables
    batch: int
    keep_state: bool = False  # write the state that the next batch needs
    # Files of :data:`STATE_TABLES` that the previous batch wrote.
    past: Mapping[str, Files] = field(default_factory=dict)
    # Resolution of the batch's rows of ``lag_history``; None for no rows, because records are left
    # that the batch does not read.
    resolution_s: int | None = None
    files: dict[str, Files] = field(default_factory=dict)
    unknown: Counter[int] = field(default_factory=Counter)
    n_bad_share: int = 0
    log_notes: list[str] = field(default_factory=list)
    taken_at_us: int = 0
    # Committed files that this batch's files replace.
    amended: list[str] = field(default_factory=list)

    def tables_of(
        self,
        records: Rows,
        selection: Selection,
        names: Mapping[str, str],
        ends: Ends,
        *,
        unread: UnreadQuery | None = None,
        logs: Sequence[Path] = (),
    ) -> None:
        """Make every table of some records; ``names`` has the topic of each topic id."""
        self.read(records, selection, names)
        self.lag(ends, unread)
        self.gaps()
        self.restate(logs)

    def read(self, records: Rows, selection: Selection, names: Mapping[str, str]) -> None:
        """Split and group records, with the state of their groups."""
        root = str(self.tables.root)
        inputs = [Input(rows=records, into=split_task(root, self.batch, selection))]
        if held := self.past.get(STATE, []):
            inputs.append(self._input(held, "state", state_task(selection)))
        task = groups_task(root, self.batch, names, keep_state=self.keep_state)
        columns = tuple(name for name in SPLIT.names if name != "group")
        grouped = Grouping(task=task, out=FILES_SCHEMA, order=SPLIT_ORDER, columns=columns)
        self._run(Step(what="the records", inputs=inputs, schema=SPLIT, grouped=grouped))

    def lag(self, ends: Ends, unread: UnreadQuery | None = None) -> None:
        """Make the lag, with the owners that the groups step wrote or that ``files`` names.

        ``unread`` queries a cluster for first unread records, for
        :mod:`holdfast.fleet.pipeline.history.lag`.
        """
        self.n_bad_share, self.taken_at_us = ends.n_bad_share, ends.taken_at_us
        owners, positions = self.files.pop(OWNERS, []), self.files.pop(POSITIONS, [])
        if self.keep_state:
            self.files[OWNERS] = owners
        # Positions of share groups become a file, like those of the records. All of them are read
        # again each time: an old one may be of a deleted group.
        positions += self._write(POSITIONS, ends.share)
        of_topic = by_table(lambda rows: rows.filter(rows["delivered"].is_null()))
        past = self._input(self.past.get(LATEST, []), "lag_input", of_topic)
        inputs = [self._input(owners, "lag_input"), past, self._input(positions, "lag_input")]
        kept = ("lag", "lag_history", *([LATEST] if self.keep_state else []))

        def step(unread: UnreadQuery | None) -> Step:
            of_groups = partial(
                lag_of_groups, ends=ends, unread=unread, resolution_s=self.resolution_s
            )
            made = partial(_only, kept, of_groups)
            return self._by_group("positions", inputs, INPUT, made)

        def on_spark() -> Step:
            return step(None if unread is None else self._unread(inputs, ends, unread))

        self._run(step(unread), on_spark)

    def _unread(self, inputs: Sequence[Input], ends: Ends, unread: UnreadQuery) -> UnreadQuery:
        """Query the cluster before tasks of Spark make the lag: tasks cannot query it."""
        grouped = Grouping(task=partial(_oldest_unread, ends), out=OLDEST_UNREAD)
        step = Step(what="positions", inputs=inputs, schema=INPUT, grouped=grouped)
        assert self.session is not None, "a step that runs on Spark"
        return unread_in_advance(run_on_spark(self.session(), step), unread)

    def gaps(self) -> None:
        """Make the bounds of ownership gaps, and put their sums into ``rebalances``."""
        if staged := self.files.pop(STAGED_GAPS, []):
            inputs = self._gap_inputs(staged)
            self._run(self._by_group("ownership_gaps", inputs, STAGED, _gaps_of_groups))
        departed = self._tables(self.files.pop(DEPARTURES, []))
        gaps = [
            arrow_schema("ownership_gaps").empty_table(),
            *self._tables(self.files.get("ownership_gaps", [])),
        ]
        if files := self.files.pop("rebalances", []):
            # Few rows, so their sums are filled in here.
            rows = with_departures(pa.concat_tables(self._tables(files)), departed)
            summed = add_gaps(rows, pa.concat_tables(gaps))
            self.files["rebalances"] = self._write("rebalances", summed)

    def _gap_inputs(self, staged: Files) -> list[Input]:
        """Return gaps and evidence about their groups: commits, log ends, a stream's state."""
        columns = [BoundedParquet(file).read(columns=["group"]) for file in self._paths(staged)]
        groups = pc.unique(pa.concat_tables(columns)["group"])
        selected = partial(of_groups, groups=groups.to_pylist())

        taken_at_us = self.taken_at_us
        commits = by_table(lambda rows: commit_rows(from_commits(selected(rows))))
        latest = by_table(lambda rows: commit_rows(selected(rows)))
        idle = by_table(lambda rows: idle_rows(selected(rows), taken_at_us))
        made = self.files.get("offset_commits", [])
        return [
            self._input(staged, "gap_input"),
            self._input(made, "offset_commits", commits),
            self._input(self.past.get(LATEST, []), "positions", latest),
            self._input(self.past.get(SEEN, []), "gap_input", by_table(selected)),
            self._input(self.files.get("lag", []), "lag", idle),
        ]

    def _input(self, files: Files, name: str, into: BatchTask = unchanged) -> Input:
        """Return rows of a step's or a stored table, in the columns of its definition."""
        n_rows = sum(rows for _, rows in files)
        return Input(rows=rows_of_files(self._paths(files), arrow_schema(name), n_rows), into=into)

    def _by_group(
        self, what: str, inputs: Sequence[Input], schema: pa.Schema, made: OfGroups
    ) -> Step:
        """Return a step whose tasks write tables."""
        grouped = writing_groups(str(self.tables.root), self.batch, schema, made)
        return Step(what=what, inputs=inputs, schema=schema, grouped=grouped)

    def _run(self, step: Step, on_spark: Callable[[], Step] | None = None) -> None:
        self.collect(run(self.session, step, on_spark))

    def amend(self) -> None:
        """Attach this batch's gaps to the earlier rebalances that caused them.

        ``amended`` then names the files whose rows are in this batch's files instead.
        """
        gaps = self._tables(self.files.get("ownership_gaps", []))
        own = self._tables(self.files.get("rebalances", []))
        late = late_gaps(gaps, own)
        if not late.num_rows:
            return
        groups = sorted(pc.unique(late["group"]).to_pylist())
        generations = sorted(pc.unique(late["generation"]).to_pylist())
        names = [
            (file.name, file.rows)
            for file in self.tables.data_files("rebalances")
            if file.may_contain("group", groups) and file.may_contain("generation", generations)
        ]
        keys = [BoundedParquet(path).read(columns=list(OWNING)) for path in self._paths(names)]
        for name, mine in zip(names, gaps_of_each(late, keys) if keys else (), strict=True):
            if mine.num_rows:
                (rows,) = self._tables([name])
                self.amended.append(name[0])
                more = self._write("rebalances", add_gaps(rows, mine))
                self.files.setdefault("rebalances", []).extend(more)

    def _tables(self, files: Files) -> list[pa.Table]:
        return [BoundedParquet(file).read() for file in self._paths(files)]

    def _paths(self, files: Files) -> list[StoragePath]:
        return checked_files(self.tables.root, [name for name, _ in files])

    def _write(self, name: str, rows: pa.Table) -> Files:
        """Write rows of a table to a file of this batch; no file without rows."""
        writer = BatchWriter(str(self.tables.root), self.batch)
        writer.write(name, rows)
        return files_of(writer.close()).get(name, [])

    def keep_waiting(self, waiting: pa.Table) -> None:
        """Write the records that wait for the end of their transaction, for the next batch."""
        self.files[WAITING_STATE] = self._write(WAITING_STATE, waiting)

    def restate(self, logs: Sequence[Path]) -> None:
        """Put the causes that broker logs state into ``rebalances``; small, so on the driver.

        A batch of a stream uses only statements that can be about no other batch.
        """
        if not (logs and self.files.get("rebalances")):
            return
        whole = pa.concat_tables(self._tables(self.files.pop("rebalances")))
        said, self.log_notes = read_logs(logs, pc.unique(whole["group"]).to_pylist())
        said = unmistakable(said) if self.keep_state else said
        rebalances, anomalies = restated(whole, said)
        self.files["rebalances"] = self._write("rebalances", rebalances)
        self.files.setdefault("anomalies", []).extend(self._write("anomalies", anomalies))

    def examine(
        self, notes: Mapping[str, Any], since: Since | None = None, *, replaces: bool = False
    ) -> dict[str, Any]:
        """Examine the groups that this batch changes; return its note about that.

        Parameters
        ----------
        notes : mapping
            The other notes of the batch.
        since : callable, optional
            Returns the begin of a window from its end; without it windows have no begin.
        replaces : bool
            Whether the batch replaces all others.
        """
        root = self.tables.root
        known = None if replaces else Examined.of(self.tables.newest_notes())
        new = {name: data_files(root, self.files.get(name, []), is_timed=False) for name in TABLES}
        files = dict(new)
        if not replaces:
            for name in TABLES.keys() - {"lag", "findings"}:
                past = [f for f in self.tables.data_files(name) if f.name not in self.amended]
                files[name] = past + new[name]  # as a reader has them after the commit
        stored = listed_tables(root, files)
        end_ms = window_end_ms(stored, notes) or 0
        window = Examined(end_ms=end_ms, since_ms=None if since is None else since(end_ms))
        if known is None:
            changed = ChangedGroups(whole=stored.groups)
        else:
            before = self.tables.stored("findings")
            files["findings"] = self.tables.data_files("findings")
            changed = changed_groups(
                root,
                new,
                files,
                before=before,
                windows=(known, window),
                followed=self._followed(),
            )
            kept = kept_findings(before, changed, (known, window))
            self.files["findings"] = self._write("findings", kept)
        self._run(findings_step(root, self.batch, files, changed, (known, window)))
        return {EXAMINED: window.as_note()}

    def _followed(self) -> list[str]:
        """Return the groups that the batch before has followed."""
        rows = self._tables(self.past.get(FOLLOWED, []))
        return [group for one in rows for group in one["group"].to_pylist()]

    @property
    def notes(self) -> dict[str, Any]:
        """Return facts of the records that are in no table, for the manifest."""
        named = {str(record_type): n for record_type, n in sorted(self.unknown.items())}
        return {
            "n_unknown": self.unknown.total(),
            "unknown_types": named,
            "n_bad_share": self.n_bad_share,
            **({"broker_logs": self.log_notes} if self.log_notes else {}),
        }

    def collect(self, rows: pa.Table) -> None:
        """Take in what tasks handed back."""
        for row in rows.filter(rows["record_type"].is_valid()).to_pylist():
            self.unknown[row["record_type"]] += row["n_unknown"]
        for table, files in files_of(rows).items():
            self.files.setdefault(table, []).extend(files)


def _only(names: Sequence[str], step: OfGroups, rows: pa.Table) -> dict[str, pa.Table]:
    """Return some of the tables that a step makes."""
    made = step(rows)
    return {name: made[name] for name in names}


def _gaps_of_groups(rows: pa.Table) -> dict[str, pa.Table]:
    """Turn rows of STAGED of whole groups into ``ownership_gaps``, SEEN and DEPARTURES."""
    gaps, seen = narrow(rows)
    return {DEPARTURES: how_they_went(rows), "ownership_gaps": gaps, SEEN: seen}


def _oldest_unread(ends: Ends, batches: Batches) -> Batches:
    """Find the records to query from the cluster."""
    for rows in whole_groups(batches, INPUT):
        lag = lag_of_groups(rows, ends)["lag"]
        yield from oldest_unread(lag, furthest_behind(lag), ends.taken_at_us).to_batches()


def remove_staged(root: StoragePath) -> None:
    """Delete the files that the steps of a batch wrote for each other."""
    for name in STAGED_TABLES:
        remove_table(root, name)


def remove_state(root: StoragePath, *, but: str = "") -> None:
    """Delete what batches of a stream wrote for the next ones, but that of one batch folder."""
    for name in STATE_TABLES:
        remove_table(root, name, but=but)

"""The Spark jobs of one batch: records of some groups to every table.

**Rules.** Neither RDDs nor the JVM are used. All records of a group come to one task, in the order
of the log. If a job has little to do, the same task runs in the driver.

**Strategy.**

=========  ======================================================  ================================
step       reads                                                   writes
=========  ======================================================  ================================
split      all records, once                                       offset_commits, bad_records
groups     all other records, by group                             generations, members, assignments
                                                                   movements, anomalies, bad_records
lag        owners by the records, positions and end offsets        lag
pauses     pauses by the records, members that went, commits of    pauses
           those groups, and what had nothing to read by ``lag``
=========  ======================================================  ================================

Step ``groups`` makes ``rebalances``; step ``pauses`` adds sums of pauses, and how members went.
``split`` and ``groups`` are one action. The tasks write their files themselves
(:mod:`holdfast.tables.folder.writing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from holdfast.pipeline.arrow_types import Batches, BatchTask
from holdfast.pipeline.batches.schemas import FILES_DDL, spark_ddl
from holdfast.pipeline.batches.split import (
    SPLIT,
    SPLIT_DDL,
    SPLIT_ORDER,
    pieces_task,
    split_task,
)
from holdfast.pipeline.batches.state import STATE, state_task
from holdfast.pipeline.batches.stored_files import frame_of_files
from holdfast.pipeline.batches.tasks import groups_task
from holdfast.pipeline.history.ages import Times, with_record_ages
from holdfast.pipeline.history.broker_log import read_files, restated, unmistakable
from holdfast.pipeline.history.lag import INPUT, OWNERS, Ends, lag_task, positions_input
from holdfast.pipeline.history.pauses import (
    COMMIT,
    PAUSES,
    SEEN,
    STAGED,
    commit_rows,
    idle_rows,
    idle_task,
    pauses_task,
)
from holdfast.pipeline.history.signs import DEPARTURES, with_departures
from holdfast.pipeline.ingest.dump import collected
from holdfast.pipeline.ingest.pieces import PIECE_BYTES, n_parts, numbers, pieces, read_pieces
from holdfast.pipeline.ingest.positions import LATEST, POSITIONS, from_commits
from holdfast.pipeline.ingest.selection import Selection
from holdfast.pipeline.ingest.source import DRIVER_ROWS, Dump, reading
from holdfast.tables.columns.pause_sums import add_pauses, late_pauses
from holdfast.tables.columns.schemas import arrow_schema
from holdfast.tables.folder.contents import checked_files, remove_table
from holdfast.tables.folder.files import read_parquet
from holdfast.tables.folder.writing import FILES_SCHEMA, BatchWriter, files_of
from holdfast.tables.reading import Tables
from holdfast.tables.storage.parquet import BATCH_ROWS
from holdfast.tables.storage.places import Place, size_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Files = list[tuple[str, int]]

STAGED_TABLES: Final = (POSITIONS, PAUSES, DEPARTURES)
"""What one step writes for another of the same batch."""

STATE_TABLES: Final = (STATE, LATEST, SEEN, OWNERS)
"""What a batch of a stream writes for the next one, or for new log ends (:meth:`Job.lag`)."""


@dataclass(slots=True)
class Job:
    """One batch in the making.

    Parameters
    ----------
    keep_state : bool
        Write the state that the next batch needs.
    past : mapping
        Files of :data:`STATE_TABLES` that the batch before wrote.
    amended : list of str
        Committed files that this batch's files stand for.
    """

    spark: SparkSession
    tables: Tables
    batch: int
    keep_state: bool = False
    past: Mapping[str, Files] = field(default_factory=dict)
    files: dict[str, Files] = field(default_factory=dict)
    unknown: Counter[int] = field(default_factory=Counter)
    n_bad_share: int = 0
    taken_at_us: int = 0
    amended: list[str] = field(default_factory=list)

    def read_dump(
        self, dump: Dump, selection: Selection, names: Mapping[str, str], *, here: bool = False
    ) -> None:
        """Split and group the records of a dump, which the tasks read themselves.

        ``here``: a small one is read in this process, as the other jobs are then.
        """
        files = [str(file) for file in dump.record_files()]
        if here and _is_small(dump):
            records = read_pieces([piece for part in pieces(files, 1) for piece in part])
            self.read_here(records, selection, names)
            return
        listed = pieces(files, n_parts(self.spark, files))
        if not listed:
            return
        task = pieces_task(str(self.tables.root), self.batch, selection, listed)
        self._groups(numbers(self.spark, len(listed)).mapInArrow(task, SPLIT_DDL), names)

    def read(
        self,
        records: DataFrame,
        selection: Selection,
        names: Mapping[str, str],
        *,
        are_few: bool = False,
    ) -> None:
        """Split and group records that Spark has, with the state of their groups.

        ``are_few``: worked off in this process where it can take them, and no worker starts.
        """
        held = self.past.get(STATE, [])
        are_few = are_few and sum(rows for _, rows in held) <= DRIVER_ROWS
        few = collected(self.spark, records) if are_few else None
        if few is not None:
            batches = iter(few.combine_chunks().to_batches())
            self.read_here(batches, selection, names, state=self._tables(held))
            return
        rows = records.mapInArrow(
            split_task(str(self.tables.root), self.batch, selection), SPLIT_DDL
        )
        if held:
            past = self._read(held, "state")
            rows = rows.unionByName(past.mapInArrow(state_task(selection), SPLIT_DDL))
        self._groups(rows, names)

    def _groups(self, rows: DataFrame, names: Mapping[str, str]) -> None:
        ordered = rows.repartition("group").sortWithinPartitions(*SPLIT_ORDER)
        root = str(self.tables.root)
        task = groups_task(root, self.batch, names, keep_state=self.keep_state)
        with reading("the records"):
            self.collect(ordered.drop("group").mapInArrow(task, FILES_DDL).toArrow())

    def read_here(
        self,
        records: Batches,
        selection: Selection,
        names: Mapping[str, str],
        *,
        state: Sequence[pa.Table] = (),
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        """Split and group records in this process, with the state of their groups."""
        root = str(self.tables.root)
        split = list(split_task(root, self.batch, selection)(records))
        for rows in state:
            split += state_task(selection)(iter(rows.to_batches()))
        keys = [(name, "ascending") for name in SPLIT_ORDER]
        ordered = pa.Table.from_batches(split, SPLIT).sort_by(keys).drop_columns(["group"])
        task = groups_task(root, self.batch, names, keep_state=self.keep_state)
        batches = iter(ordered.combine_chunks().to_batches(max_chunksize=batch_rows))
        self.collect(pa.Table.from_batches(list(task(batches)), FILES_SCHEMA))

    def lag(self, ends: Ends) -> None:
        """Run the lag job, over the owners that the groups job wrote or that ``files`` names."""
        self.n_bad_share, self.taken_at_us = ends.n_bad_share, ends.taken_at_us
        owners, positions = self.files.pop(OWNERS, []), self.files.pop(POSITIONS, [])
        if self.keep_state:
            self.files[OWNERS] = owners
        positions = [*self.past.get(LATEST, []), *positions, *self._staged(ends.share)]
        task = lag_task(str(self.tables.root), self.batch, ends, keep_state=self.keep_state)
        if sum(rows for _, rows in (*owners, *positions)) <= DRIVER_ROWS:
            found = [positions_input(part) for part in self._tables(positions)]
            rows = pa.concat_tables([INPUT.empty_table(), *self._tables(owners), *found])
            batches = iter(rows.sort_by("group").to_batches())
            self.collect(pa.Table.from_batches(task(batches), FILES_SCHEMA))
            return
        self._by_group(self._lag_input(owners, positions), task)

    def ages(self, times: Times, taken_at_us: int) -> None:
        """Put ages of records, which a cluster tells, into the lag."""
        files = self.files.pop("lag", [])
        if files:
            whole = pa.concat_tables(self._tables(files))
            self.files["lag"] = self._rewritten("lag", with_record_ages(whole, times, taken_at_us))

    def _staged(self, share: pa.Table) -> Files:
        """Positions of share groups as a file, like those that the records gave."""
        writer = BatchWriter(str(self.tables.root), self.batch)
        writer.write(POSITIONS, share)
        return files_of(writer.close()).get(POSITIONS, [])

    def _lag_input(self, owners: Files, positions: Files) -> DataFrame:
        rows = self._read(positions, "positions").withColumn("partitions", F.array("partition"))
        rows = rows.withColumn("is_owner", F.lit(False)).drop("partition")
        return self._read(owners, "lag_input").unionByName(rows, allowMissingColumns=True)

    def pauses(self) -> None:
        """Run the pauses job, and put its sums into ``rebalances``."""
        staged, commits = self.files.pop(PAUSES, []), self.files.get("offset_commits", [])
        latest, seen = self.past.get(LATEST, []), self.past.get(SEEN, [])
        task = pauses_task(str(self.tables.root), self.batch)
        beside = (*commits, *latest, *seen, *self.files.get("lag", []))
        if sum(rows for _, rows in (*staged, *beside)) <= DRIVER_ROWS:
            rows = self._here(staged, commits, latest, seen)
            self.collect(pa.Table.from_batches(task(rows), FILES_SCHEMA))
        elif staged:
            self._by_group(self._with_commits(staged, commits, latest, seen), task)
        rebalances = self.files.pop("rebalances", [])
        if rebalances:  # few rows, so their sums are filled in here
            pauses = [
                arrow_schema("pauses").empty_table(),
                *self._tables(self.files.get("pauses", [])),
            ]
            whole = pa.concat_tables(self._tables(rebalances))
            told = self._tables(self.files.pop(DEPARTURES, []))
            whole = with_departures(whole, told)
            summed = add_pauses(whole, pa.concat_tables(pauses))
            self.files["rebalances"] = self._rewritten("rebalances", summed)

    def _by_group(self, frame: DataFrame, task: BatchTask) -> None:
        """Run a task over the rows of a frame, those of a group together."""
        ordered = frame.repartition("group").sortWithinPartitions("group")
        self.collect(ordered.mapInArrow(task, FILES_DDL).toArrow())

    def _here(
        self, staged: Files, commits: Files, latest: Files, seen: Files
    ) -> Iterator[pa.RecordBatch]:
        """The input of the pauses job, read in this process."""
        pauses = pa.concat_tables([STAGED.empty_table(), *self._tables(staged)])
        groups = pc.unique(pauses["group"])
        rows = [commit_rows(from_commits(part)) for part in self._tables(commits)]
        rows += [commit_rows(part) for part in self._tables(latest)]
        rows += self._tables(seen)
        lag = self._tables(self.files.get("lag", []))
        rows += [idle_rows(part, self.taken_at_us) for part in lag]
        known = pa.concat_tables([STAGED.empty_table(), *rows])
        known = known.filter(pc.is_in(known["group"], groups))
        yield from pa.concat_tables([pauses, known]).sort_by("group").to_batches()

    def _with_commits(self, staged: Files, commits: Files, latest: Files, seen: Files) -> DataFrame:
        pauses = self._read(staged, "pause_input")
        time = F.coalesce("commit_timestamp", "timestamp").alias("timestamp")
        plain = [F.col(name) for name in ("group", "topic", "log_offset")]
        plain.append(F.array("partition").alias("partitions"))
        made = self._read(commits, "offset_commits").where(~F.col("is_tombstone"))
        known = made.select(*plain, time)
        held = self._read(latest, "positions").where(F.col("offset").isNotNull())
        known = known.unionByName(
            held.select(*plain, F.col("commit_timestamp").alias("timestamp"))
        ).withColumn("basis", F.lit(COMMIT))
        known = self._read(seen, "pause_input").unionByName(known, allowMissingColumns=True)
        lag = self._read(self.files.get("lag", []), "lag")
        idle = lag.mapInArrow(idle_task(self.taken_at_us), spark_ddl("pause_input"))
        known = known.unionByName(idle)
        groups = F.broadcast(pauses.select("group").distinct())
        return pauses.unionByName(known.join(groups, "group", "left_semi"))

    def amend(self) -> None:
        """Add the pauses of this batch that belong to rebalances of earlier ones to those.

        ``amended`` then names the files whose rows are in this batch's files instead.
        """
        pauses = self._tables(self.files.get("pauses", []))
        own = self._tables(self.files.get("rebalances", []))
        late = late_pauses(pauses, own)
        if not late.num_rows:
            return
        groups = sorted(pc.unique(late["group"]).to_pylist())
        generations = sorted(pc.unique(late["generation"]).to_pylist())
        for file in self.tables.data_files("rebalances"):
            if file.may_hold("group", groups) and file.may_hold("generation", generations):
                self._amend(file.name, late)

    def _amend(self, name: str, late: pa.Table) -> None:
        (rows,) = self._tables([(name, 0)])
        more = add_pauses(rows, late)
        if not more.equals(rows):
            self.amended.append(name)
            self.files.setdefault("rebalances", []).extend(self._rewritten("rebalances", more))

    def _tables(self, files: Files) -> list[pa.Table]:
        return [read_parquet(file) for file in self._paths(files)]

    def _paths(self, files: Files) -> list[Place]:
        return checked_files(self.tables.root, [name for name, _ in files])

    def _rewritten(self, name: str, rows: pa.Table) -> Files:
        """Write a table to a file of this batch."""
        writer = BatchWriter(str(self.tables.root), self.batch)
        writer.write(name, rows.cast(arrow_schema(name)))
        return files_of(writer.close())[name]

    def _read(self, files: Files, name: str) -> DataFrame:
        """Rows of a step's or a stored table, in the columns of its definition."""
        return frame_of_files(self.spark, self._paths(files), arrow_schema(name))

    def restate(self, logs: Sequence[Path]) -> None:
        """Put the causes that broker logs state into ``rebalances``; small, so on the driver.

        A batch of a stream uses only statements that can be about no other batch.
        """
        if not (logs and self.files.get("rebalances")):
            return
        whole = pa.concat_tables(self._tables(self.files.pop("rebalances")))
        said = read_files(logs, pc.unique(whole["group"]).to_pylist())
        said = unmistakable(said) if self.keep_state else said
        rebalances, anomalies = restated(whole, said)
        self.files["rebalances"] = self._rewritten("rebalances", rebalances)
        writer = BatchWriter(str(self.tables.root), self.batch)
        writer.write("anomalies", anomalies)
        self.files.setdefault("anomalies", []).extend(files_of(writer.close()).get("anomalies", []))

    @property
    def notes(self) -> dict[str, Any]:
        """What the records held that is in no table, for the manifest."""
        named = {str(record_type): n for record_type, n in sorted(self.unknown.items())}
        return {
            "n_unknown": self.unknown.total(),
            "unknown_types": named,
            "n_bad_share": self.n_bad_share,
        }

    def collect(self, rows: pa.Table) -> None:
        """Take in what tasks handed back."""
        for row in rows.filter(rows["record_type"].is_valid()).to_pylist():
            self.unknown[row["record_type"]] += row["n_unknown"]
        for table, files in files_of(rows).items():
            self.files.setdefault(table, []).extend(files)


def _is_small(dump: Dump) -> bool:
    """Whether reading a dump here costs less than starting workers for it."""
    size = sum(size_of(file) for file in dump.record_files())
    return dump.n_records() <= DRIVER_ROWS and size <= PIECE_BYTES


def remove_staged(root: Place) -> None:
    """Delete the files that the steps of a batch wrote for each other."""
    for name in STAGED_TABLES:
        remove_table(root, name)

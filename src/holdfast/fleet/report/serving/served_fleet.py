"""The tables of a folder while others write to it, and the doctor's verdicts on their groups.

**Rules.** A request never reads the folder: it uses the tables that were read last, so it is
answered at once and its parts belong together. Changes are read beside the requests, and shown
whole or not at all. If the folder cannot be read, the last state stays and is marked; one line
gives the error. Nothing is written.

Until the first batch of a folder that an updater has just started to fill, groups are shown from
their coordinators' answers: their lag, without their history. Present states of groups are polled
beside the batches (:mod:`~holdfast.fleet.report.serving.live`).

**Strategy.** One thread polls the folder for changes, reads it and makes the index. Another one
makes a short verdict of every group of the newest tables and the text of the metrics: from the
stored findings, all groups at once. Groups are examined one by one, the costliest first, if no
findings of the window are stored, or if coordinators report something else than the records; until
then the verdicts of the previous tables are shown. After :data:`IDLE_S` without a request, both
rest.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.core.command_lines import NOT_KNOWN, GivenSource
from holdfast.errors import HoldfastError
from holdfast.fleet.analysis.findings.examination import Examination, GroupVerdict, stored_findings
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroups
from holdfast.fleet.analysis.times import Since
from holdfast.fleet.report.metrics import MetricsFile, exposition, write_metrics
from holdfast.fleet.report.serving.group_index import GroupIndex, IndexView, select
from holdfast.fleet.report.serving.live import (
    NOW_S,
    LiveAnswers,
    LiveQuery,
    of_records,
)
from holdfast.fleet.report.serving.ranges import FleetRanges, ServedTables
from holdfast.fleet.tables.columns.stored import NOT_LOADED
from holdfast.fleet.tables.folder.manifest import has_manifest, stamp
from holdfast.fleet.tables.reading import SomeGroups, open_tables, read_tables
from holdfast.fleet.tables.storage.paths import StoragePath
from holdfast.fleet.tables.storage.remote import RemotePath

LOOK_S: Final = 1.0
"""Poll interval of the folder."""
REMOTE_LOOK_S: Final = 5.0
"""Poll interval of tables on remote storage, where each poll is two requests."""
IDLE_S: Final = 600.0
"""Time without a request after which the folder is not polled."""
END_S: Final = 5.0
"""How long the end waits for the threads that read and examine."""
PATIENCE_S: Final = 2.0
"""Longest wait of the first request after a rest for a poll of the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdaterState:
    """State of the updater of served tables."""

    doing: str = ""  # progress of its first read; empty once the tables are up to date
    trouble: str = ""  # why the tables are not updated; empty if they are
    since_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedState:
    """State of the fleet."""

    version: str  # differs for other tables, also after a restart
    # ``n_groups``, ``n_examined``: groups of the tables; those with a verdict on these tables.
    n_groups: int
    n_examined: int
    failed: bool  # whether the folder has changed, and cannot be read
    is_stale: bool  # whether the tables are out of date
    # Whether an updater of this server commits to the folder, and not another process or none.
    is_updated_here: bool
    updater_state: UpdaterState  # state of the updater; without one, as if all were well
    where: str  # the cluster by its addresses; the folder's name if they are unknown


@dataclass(slots=True)
class _FleetProgress:
    """Shared state of the two threads."""

    served: ServedTables
    seen: object
    verdicts: dict[str, GroupVerdict] = field(default_factory=dict)
    examined: int = 0
    examined_number: int = 0
    metrics: str | MetricsFile | None = None
    complaint: str = ""
    looked_at: float = 0.0
    requested_at: float = 0.0


class ServedFleet:
    """A folder of tables that is followed.

    Parameters
    ----------
    notify : callable
        Prints one line about an error beside the requests.
    updater_state : callable, optional
        Returns the state of the updater that commits to this folder, possibly before its first
        commit.
    query : callable, optional
        Queries the cluster for rows of the table ``lag``, to show before the first batch; None if
        there are too many groups. Called beside the requests.
    servers : str
        Addresses of the cluster; empty if only the tables may have them.
    since : callable, optional
        Returns the begin of the window; without it findings and figures are of all time.
    query_now : callable, optional
        Queries the coordinators for present states. Called beside the requests.
    every_s : float
        Poll interval of the cluster: coordinators are queried at least as often.
    client_ids : bool
        Label lags of the metrics with the client id of the owner.

    Raises
    ------
    SourceError
        The folder cannot be read now.
    """

    def __init__(
        self,
        folder: StoragePath,
        notify: Callable[[str], None],
        updater_state: Callable[[], UpdaterState] | None = None,
        query: Callable[[], Sequence[dict[str, Any]] | None] | None = None,
        servers: str = "",
        *,
        since: Since | None = None,
        query_now: LiveQuery | None = None,
        every_s: float = NOW_S,
        client_ids: bool = False,
    ):
        self._servers, self._since, self._client_ids = servers, since, client_ids
        self._answers = LiveAnswers(
            query_now, every_s, lambda: self._now.served.index.names, self._rests
        )
        self.folder, self._notify, self._updater_state, self._query = (
            folder,
            notify,
            updater_state,
            query,
        )
        self._look_s = REMOTE_LOOK_S if isinstance(folder, RemotePath) else LOOK_S
        self.given = GivenSource(path=str(folder))
        self._boot = secrets.token_hex(4)
        self._closed, self._wake = threading.Event(), threading.Event()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        seen: object = None
        served = ServedTables.of(read_tables({}), 0, _now_ms())
        if self._has_begun():
            seen, served = stamp(folder), self._read(1)
        now = time.monotonic()
        self._now = _FleetProgress(served=served, seen=seen, looked_at=now, requested_at=now)
        self.ranges = FleetRanges(
            lambda: self._now.served,
            lambda: self.live,
            lambda: (self._now.verdicts, self.state.n_examined),
            self.given,
            notify,
        )

    def _has_begun(self) -> bool:
        """Return whether there is anything to read: an updater may not have committed yet."""
        return self._updater_state is None or has_manifest(self.folder)

    def start(self) -> None:
        """Start following the folder."""
        for work in (self._follow, self._examine, self._query_first):
            thread = threading.Thread(target=work, daemon=True, name=f"serve{work.__name__}")
            if work != self._query_first:  # it may wait for a cluster, and computes nothing
                self._threads.append(thread)
            thread.start()
        self._threads.append(self.ranges.start())
        self._answers.start()

    def close(self) -> None:
        """Stop the threads that follow and examine the fleet, and wait for them for a moment.

        A thread inside Arrow when the interpreter ends would abort the process.
        """
        self._closed.set()
        self._wake.set()
        self._answers.close()
        self.ranges.close()
        with self._changed:
            self._changed.notify_all()
        deadline = time.monotonic() + END_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    @property
    def served(self) -> ServedTables:
        """Return the newest tables; after a rest, poll the folder first."""
        self._note_request()
        return self._now.served

    def _note_request(self) -> None:
        now = time.monotonic()
        with self._changed:
            rested = now - self._now.requested_at > IDLE_S
            self._now.requested_at = now
            if rested:
                self._wake.set()
                self._answers.wake()
                self._changed.wait_for(lambda: self._now.looked_at >= now, timeout=PATIENCE_S)

    def _rests(self) -> bool:
        return time.monotonic() - self._now.requested_at > IDLE_S

    @property
    def live(self) -> LiveGroups:
        """Present answers of coordinators about groups; none if the last answer is old."""
        return self._answers.live

    def want(self, group: str) -> LiveGroups:
        """Return present answers of coordinators; query the members of a group from now on."""
        if group in self.live.names:
            self._answers.want(group)
        return self.live

    @property
    def state(self) -> ServedState:
        """State of the fleet."""
        served = self.served
        is_stale = served.is_stale
        with self._changed:
            current = self._now.examined_number == served.number
            marks = "-asked" * served.is_from_coordinators + "-stale" * is_stale
            return ServedState(
                version=f"{self._boot}-{served.number}{self._answers.mark}{marks}",
                n_groups=len(served.index.names),
                n_examined=self._now.examined if current else 0,
                failed=bool(self._now.complaint),
                is_stale=is_stale,
                is_updated_here=self._updater_state is not None,
                updater_state=self._updater_state()
                if self._updater_state is not None
                else UpdaterState(),
                where=self._where(served),
            )

    @property
    def metrics(self) -> str | MetricsFile | None:
        """Return the ``/metrics`` text of the last completely examined tables; None before."""
        self._note_request()
        return self._now.metrics

    def wait(self, done: Callable[[ServedState], bool], timeout_s: float) -> bool:
        """Wait until the fleet is so far; False if it is not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: done(self.state), timeout=timeout_s)

    def _where(self, served: ServedTables) -> str:
        """Return the cluster's addresses, from command or tables; else the folder's name."""
        words = served.age.started_with
        given_servers = [words[i + 1] for i, word in enumerate(words[:-1]) if word == "-b"]
        return self._servers or (
            given_servers[0] if given_servers else str(self.folder).rstrip("/").rpartition("/")[2]
        )

    def _read(self, number: int) -> ServedTables:
        read_ms = _now_ms()
        tables = open_tables(self.folder).at_snapshot().load_few(without=NOT_LOADED)
        return ServedTables.of(tables, number, read_ms, self._since)

    def _query_first(self) -> None:
        """Show coordinators' answers, unless a batch exists."""
        if self._query is None or self._now.served.number:
            return
        read_ms = _now_ms()
        try:
            rows = self._query()
        except HoldfastError as error:  # the updater meets it too, and the pages show its error
            self._notify(f"the groups are shown once they were read: {error}")
            return
        if not rows:
            return
        answered = ServedTables.of(read_tables({"lag": list(rows)}), 0, read_ms)
        answered = replace(answered, index=replace(answered.index, has_history=False))
        with self._changed:
            if not self._now.served.number:
                self._now.served = answered
            self._changed.notify_all()

    def _follow(self) -> None:
        """Poll the folder repeatedly."""
        while not self._closed.is_set():
            self._look()
            self._wake.wait(timeout=None if self._rests() else self._look_s)
            self._wake.clear()

    def _look(self) -> None:
        at, complaint = time.monotonic(), ""
        read: ServedTables | None = None
        seen = self._now.seen
        try:
            begun = self._has_begun()
            seen = stamp(self.folder) if begun else seen
            if begun and (seen != self._now.seen or self._now.complaint):
                read = self._read(self._now.served.number + 1)
        except (
            Exception
        ) as error:  # on any error the last state stays, and the next poll may succeed
            complaint = f"{self.folder} cannot be read at the moment: {error}"
        if complaint and complaint != self._now.complaint:
            self._notify(complaint)
        with self._changed:
            self._now.looked_at, self._now.complaint = at, complaint
            if read is not None:
                self._now.served, self._now.seen = read, seen
            self._changed.notify_all()
        self.ranges.wake()

    def _examine(self) -> None:
        """Examine the newest tables, each once."""
        number = 0
        while (served := self._after(number)) is not None:
            number = served.number
            try:
                is_judged = self.live is NOT_QUERIED and served.has_findings
                text = self._judged(served) if is_judged else self._exposition(served)
            except Exception as error:  # a bug of ours in one rule must not end the server
                if self._closed.is_set():
                    return  # the groups that are left were skipped
                self._notify(f"the groups cannot be examined: {type(error).__name__}: {error}")
                continue
            if text is None:
                return  # the rest was skipped
            with self._changed:
                self._now.metrics = text
                here = set(served.index.names)
                self._now.verdicts = {n: v for n, v in self._now.verdicts.items() if n in here}
                self._changed.notify_all()

    def _after(self, number: int) -> ServedTables | None:
        """Wait for tables after ``number``; None at the end."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed.is_set() or self._now.served.number > number
            )
            self._now.examined, self._now.examined_number = 0, self._now.served.number
            return None if self._closed.is_set() else self._now.served

    def _judged(self, served: ServedTables) -> MetricsFile | None:
        """Read verdicts from the stored findings, then write the metrics; None at the end."""
        names = served.index.names
        for some in served.tables.parts(names):
            found = _stored_verdicts(some, served.index)
            with self._changed:
                self._now.verdicts.update(found)
                self._now.examined += len(some.groups)
                self._changed.notify_all()
            if self._closed.is_set():
                return None
        for file in write_metrics(served.tables, names, client_ids=self._client_ids):
            if file is not None or self._closed.is_set():
                return file
        return None

    def _exposition(self, served: ServedTables) -> str:
        return exposition(served.tables, self._examined(served), client_ids=self._client_ids)

    def _examined(self, served: ServedTables) -> Iterator[Examination]:
        order = select(served.index, self._now.verdicts, IndexView())
        names = [served.index.names[i] for i in order]
        doctor = replace(served.doctor(), groups=names, live=self.live, source=self.given)
        for examination in doctor.examinations():
            if self._closed.is_set():
                return
            with self._changed:
                self._now.verdicts[examination.history.name] = of_records(examination.verdict)
                self._now.examined += 1
                self._changed.notify_all()
            yield examination


def _stored_verdicts(some: SomeGroups, index: GroupIndex) -> Iterator[tuple[str, GroupVerdict]]:
    """Yield the verdicts on groups whose findings are stored."""
    findings = stored_findings(some, NOT_KNOWN)
    codes, ranks = findings.found_codes(some.groups), findings.ranks(some.groups).tolist()
    for name, rank, found in zip(some.groups, ranks, codes, strict=True):
        downtime_s = float(index.figures.downtime_s[index.row_of[name]])
        yield name, of_records(GroupVerdict(rank=rank, downtime_s=downtime_s, codes=found))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

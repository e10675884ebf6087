"""The demo: the same rolling bounce under two policies, and its tables.

**Rules.** The members' event logs give the costs of the run, to the millisecond. The demo fails if
a group does not read every record, or if a partition ever had two owners in a group. The report
shows the same run from the broker's records.

**Strategy.** broker -> topic -> producer and members -> bounce each member -> read all -> stop ->
count -> tables -> report. The two groups read one topic and are bounced at the same time. Each step
is a named stage of a :class:`Stages`, which times and shows it.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from holdfast.cli.demo.event_log import (
    Account,
    count_moves,
    count_records,
    intervals,
    overlaps,
    unowned_seconds,
)
from holdfast.cli.demo.processes import Bounced, MemberProcesses
from holdfast.cli.output import print_note, stderr_console
from holdfast.cluster.cluster import LiveCluster
from holdfast.errors import ConfigError, ProcessError
from holdfast.fleet.pipeline.batches.history import run as run_history
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.offsets_topic import KafkaFeed
from holdfast.fleet.report.drawing.writing import write as write_report
from holdfast.fleet.tables.storage.file_system import make_private_folder
from holdfast.local.broker import Broker

TOPIC = "orders"
POLICIES = ("simple", "deferred")
"""Policies of the two groups. The first one reassigns the partitions of a member as soon as it
leaves."""
PARTS = ("event_logs", "tables")
"""Folders that the demo makes."""
MARK = ".holdfast-demo"
"""File in each demo folder; a folder without it is not the demo's, and is not deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of a demo run."""

    # Size of each group and of the topic.
    members: int = 4
    partitions: int = 12
    rate: float = 600.0
    seconds: float = 1.5  # how long the groups work before, between and after the bounces
    # Folder for tables, event logs and report.html; by default only ``report.html`` is left, in the
    # current folder.
    out: Path | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.members <= self.partitions:
            raise ConfigError(
                f"members: 2 to {self.partitions} (the number of partitions), found {self.members}"
            )
        if not 0 < self.rate <= 5_000:
            raise ConfigError(
                f"rate: expected above 0 and at most 5000 records/s, found {self.rate:g}"
            )
        if not 0 <= self.seconds <= 600:
            raise ConfigError(f"seconds: expected 0 to 600, found {self.seconds:g}")

    @property
    def n_stages(self) -> int:
        """Return the number of stages of :func:`run`: one for each member, and six."""
        return 6 + self.members


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of the bounce of one group, by the event logs of its members."""

    account: Account
    n_moves: int  # moves of a partition from one member to another
    # Of each partition the seconds without an owner, from the first stop to the last balance.
    unowned: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The result of a run; ``costs`` maps a policy to the cost by the event logs."""

    costs: Mapping[str, Cost]
    bounce_seconds: float
    report: Path
    folder: Path | None


class Stages:
    """Names each stage on stderr: a spinner while it runs, a line with its time when it is done."""

    def __init__(self, n_stages: int, *, quiet: bool):
        self._n_stages, self._quiet = n_stages, quiet
        self._began = time.monotonic()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Show ``name`` until the block ends."""
        from rich.text import Text

        began = time.monotonic()
        words = f"{name} ... ({len(self.seconds) + 1} of {self._n_stages}{self._left()})"
        with nullcontext() if self._quiet else stderr_console().status(words):
            yield
        self.seconds[name] = time.monotonic() - began
        if not self._quiet:
            line = Text(f"{self.seconds[name]:5.1f} s  {name}")
            stderr_console().print(Text("done ", style="green") + line)

    def _left(self) -> str:
        """Estimate the time left from the mean of the stages done; "" before the third is done."""
        n_done = len(self.seconds)
        if n_done < 3:
            return ""
        a_stage = (time.monotonic() - self._began) / n_done
        return f", about {a_stage * (self._n_stages - n_done):.0f} s left"

    def note(self, text: str) -> None:
        """Print one line."""
        if not self._quiet:
            print_note(text)


@contextmanager
def run(options: DemoOptions, stages: Stages) -> Iterator[tuple[DemoResult, Broker]]:
    """Run the demo; the broker lives as long as the block.

    Yields
    ------
    DemoResult, Broker
        Already checked; the broker still runs.

    Raises
    ------
    ProcessError
        A process did not start, or a group did not read every record, or a partition had two
        owners in a group.
    """
    staged = stages.stage
    folder, is_ours = _folder(options)
    try:
        with staged("start a broker"):
            broker = Broker.start(note=stages.note)
        with broker:
            groups = _groups(options, broker.bootstrap, folder / "event_logs")
            names = [group.name for group in groups]
            costs, bounce_seconds = _live(options, broker.bootstrap, groups, stages)
            tables = folder / "tables"
            with staged("turn the offsets topic into tables"):
                feed = KafkaFeed(cluster=LiveCluster(bootstrap=broker.bootstrap))
                run_history(None, feed, tables, selection=Selection(groups=names))
            with staged("write the report"):
                report = (folder if options.out else Path.cwd()) / "report.html"
                write_report(tables, report, title="A rolling bounce", groups=names)
            result = DemoResult(
                costs=costs,
                bounce_seconds=bounce_seconds,
                report=report,
                folder=None if is_ours and not options.keep else folder,
            )
            yield result, broker
    finally:
        if is_ours and not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _folder(options: DemoOptions) -> tuple[Path, bool]:
    """Return the folder for the files, and whether it is a temporary folder to be removed."""
    if options.out is None:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
        make_room(folder)
        return folder, True
    try:
        make_room(options.out)
    except OSError as error:
        raise ConfigError(f"{options.out} is not a writable folder: {error.strerror}") from error
    return options.out, False


def make_room(out: Path) -> None:
    """Create the demo's folders below ``out``, empty and marked; only marked ones are deleted.

    Raise ConfigError, before anything is deleted, if one without the mark exists.
    """
    folders = [out / part for part in PARTS]
    for folder in folders:
        if folder.is_symlink() or (
            folder.exists() and any(folder.iterdir()) and not _marked(folder)
        ):
            raise ConfigError(
                f"{folder} exists and is not of an earlier demo, so it is not deleted: name "
                "another folder with -o"
            )
    for folder in folders:
        if _marked(folder):
            shutil.rmtree(folder)
        make_private_folder(folder)
        (folder / MARK).write_text("A demo deletes this folder when it runs again\n")


def _marked(folder: Path) -> bool:
    return (folder / MARK).is_file()


def _groups(options: DemoOptions, bootstrap: str, event_logs: Path) -> list[MemberProcesses]:
    """Return a group for each policy, with a folder for its event logs; no process runs yet."""
    groups = []
    for policy in POLICIES:
        folder = event_logs / policy
        make_private_folder(folder)
        groups.append(MemberProcesses(bootstrap, TOPIC, policy, options.partitions, folder))
    return groups


def _live(
    options: DemoOptions, bootstrap: str, groups: list[MemberProcesses], stages: Stages
) -> tuple[dict[str, Cost], float]:
    """Produce, consume, bounce every member, stop, count; return costs and the bounce's seconds."""
    slots, staged = range(options.members), stages.stage
    with staged("create a topic"):
        _create_topic(bootstrap, options.partitions)
    with Bounced(groups, groups[0].folder.parent) as bounced:
        with staged(f"start a producer and twice {options.members} members"):
            bounced.start_producer(bootstrap, TOPIC, str(options.partitions), str(options.rate))
            for slot in slots:
                bounced.start(slot)
            bounced.await_balance()
            bounced.work(options.seconds)
        began = time.time()
        for slot in slots:
            with staged(f"bounce member {slot + 1} of {options.members}"):
                bounced.stop(slot)
                bounced.await_balance(POLICIES[0])
                bounced.work(options.seconds)
                bounced.start(slot)
                bounced.await_balance()
        ended = time.time()
        with staged("stop the producer and the members"):
            bounced.work(options.seconds)
            bounced.stop_producer()
            end = _end_offsets(bootstrap, options.partitions)
            bounced.await_read(end)
            bounced.stop(*slots)
    return {group.policy: _cost(group, end, began, ended) for group in groups}, ended - began


def _cost(group: MemberProcesses, end: Mapping[int, int], began: float, ended: float) -> Cost:
    """Return the cost of a group by its event logs; raise ProcessError for two owners at once."""
    entries = group.event_log.read()
    owned = intervals(entries, time.time())
    doubles = overlaps(owned)
    if doubles:
        first, second = doubles[0]
        raise ProcessError(
            f"partition {first.partition} had two owners in {group.name}: "
            f"{first.member} and {second.member}"
        )
    return Cost(
        account=count_records(entries, end),
        n_moves=count_moves(owned, began, ended),
        unowned=tuple(unowned_seconds(owned, len(end), began, ended)),
    )


def _create_topic(bootstrap: str, n_partitions: int) -> None:
    admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics({TOPIC: {"num_partitions": n_partitions}}, wait_for_metadata=True)
    finally:
        admin.close()


def _end_offsets(bootstrap: str, n_partitions: int) -> dict[int, int]:
    """Return the end offset of every partition."""
    tps = [TopicPartition(TOPIC, partition) for partition in range(n_partitions)]
    consumer: Any = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    try:
        return {tp.partition: offset for tp, offset in consumer.end_offsets(tps).items()}
    finally:
        consumer.close()

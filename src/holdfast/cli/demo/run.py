"""The main job: a rolling bounce of a group, which Spark then reads in the offsets topic.

**Rules.** Three independent sources describe the run: the members' journals (to the millisecond),
the broker's offsets topic (through the pipeline), and the producer. The job fails if the numbers of
records do not add up, or if a partition ever had two owners.

**Strategy.** broker -> topic -> producer and members -> bounce each member -> stop -> account ->
tables -> report. Each step is a named stage of a :class:`Stages`, which times and shows it.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from holdfast.cli.demo.accounting import Account, settle
from holdfast.cli.demo.group import MemberProcesses
from holdfast.cli.demo.ownership import (
    ComparedPauses,
    Interval,
    compare_pauses,
    intervals,
    overlaps,
    unowned_seconds,
)
from holdfast.cli.demo.tables import Witnessed, read_witnessed, write_tables
from holdfast.cluster.broker.broker import Broker
from holdfast.errors import AdapterError, ConfigError
from holdfast.fleet.pipeline.command_session import open_session
from holdfast.fleet.report.drawing.writing import write as write_report
from holdfast.fleet.tables.storage.private import make_private_folder

TOPIC = "orders"
GROUP = "holdfast-demo"
PARTS = ("journals", "tables")
"""Folders that the demo makes."""
MARK = ".holdfast-demo"
"""File in each of them; a folder without it is somebody else's, and is not deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What to run.

    Parameters
    ----------
    members, partitions : int
        Size of the group and of the topic.
    rate : float
        Records produced per second over all partitions.
    seconds : float
        How long the group works before, between and after the bounces.
    out : Path, optional
        Folder for tables, journals and report.html; by default only ``report.html`` is left, in
        the current folder.
    keep : bool
        Leave tables and journals.
    """

    members: int = 4
    partitions: int = 12
    rate: float = 600.0
    seconds: float = 1.5
    out: Path | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.members <= self.partitions:
            raise ConfigError(
                f"members: 2 to {self.partitions} (the number of partitions), not {self.members}"
            )
        if not 0 < self.rate <= 5_000:
            raise ConfigError(f"rate: above 0 and at most 5000 records/s, not {self.rate:g}")
        if not 0 <= self.seconds <= 600:
            raise ConfigError(f"seconds: 0 to 600, not {self.seconds:g}")

    @property
    def n_stages(self) -> int:
        """Stages of :func:`run`: one for each member, and eight."""
        return 8 + self.members


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The result of a run.

    ``unowned`` is, per partition, the seconds without an owner from the first bounce to the last
    balance, by the members' journals; ``witnessed`` is what the offsets topic says.
    """

    account: Account
    unowned: tuple[float, ...]
    intervals: tuple[Interval, ...]
    bounce_seconds: float
    witnessed: Witnessed
    report: Path
    folder: Path | None
    stage_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def compared(self) -> ComparedPauses:
        """What the offsets topic says of pauses, beside the members' journals."""
        return compare_pauses(self.intervals, self.witnessed.pauses)


class Stages(Protocol):
    """Shows which stage runs."""

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Show ``name`` until the block ends."""

    def note(self, text: str) -> None:
        """Say one line."""


class TimedStages:
    """Passes stages on and remembers how long each took."""

    def __init__(self, shown: Stages):
        self._shown = shown
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Run one stage."""
        began = time.monotonic()
        with self._shown.stage(name):
            yield
        self.seconds[name] = time.monotonic() - began


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lived:
    """What the members, the producer and the broker reported."""

    account: Account
    unowned: tuple[float, ...]
    intervals: tuple[Interval, ...]
    bounce_seconds: float


@contextmanager
def run(options: DemoOptions, stages: Stages) -> Iterator[tuple[DemoResult, Broker]]:
    """Run the main job; the broker lives as long as the block.

    Parameters
    ----------
    options : DemoOptions
        Sizes and places.
    stages : Stages
        Shows what happens.

    Yields
    ------
    DemoResult, Broker
        Already checked; the broker still runs.

    Raises
    ------
    AdapterError
        Something did not start, or records do not add up, or a partition had two owners.
    """
    staged = TimedStages(stages)
    folder, is_ours = _folder(options)
    try:
        with staged("start a broker"):
            broker = Broker.start(note=stages.note)
        with broker:
            journals = folder / "journals"
            lived = _live(options, broker.bootstrap, journals, staged)
            tables = folder / "tables"
            with staged("start Spark"):
                spark = open_session(kafka=True)
            with staged("turn the offsets topic into tables"):
                write_tables(spark, broker.bootstrap, tables, GROUP)
            with staged("write the report"):
                witnessed = read_witnessed(tables, GROUP)
                report = (folder if options.out else Path.cwd()) / "report.html"
                write_report(tables, report, title="A rolling bounce", groups=[GROUP])
            result = DemoResult(
                account=lived.account,
                unowned=lived.unowned,
                intervals=lived.intervals,
                bounce_seconds=lived.bounce_seconds,
                witnessed=witnessed,
                report=report,
                folder=None if is_ours and not options.keep else folder,
                stage_seconds=staged.seconds,
            )
            yield result, broker
    finally:
        if is_ours and not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _folder(options: DemoOptions) -> tuple[Path, bool]:
    """The folder for the files, and whether it is a temporary folder that we remove."""
    if options.out is None:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
        make_room(folder)
        return folder, True
    try:
        make_room(options.out)
    except OSError as error:
        raise ConfigError(f"{options.out} is no folder to write to: {error.strerror}") from error
    return options.out, False


def make_room(out: Path) -> None:
    """Make the demo's folders below ``out``, empty and marked; only marked ones are deleted.

    Raises
    ------
    ConfigError
        A folder without the mark is in the way: it is somebody else's, and nothing was deleted.
    """
    folders = [out / part for part in PARTS]
    for folder in folders:
        if folder.is_symlink() or (
            folder.exists() and any(folder.iterdir()) and not _marked(folder)
        ):
            raise ConfigError(
                f"{folder} is there and is not of an earlier demo, so it is not deleted: name "
                "another folder with -o"
            )
    for folder in folders:
        if _marked(folder):
            shutil.rmtree(folder)
        make_private_folder(folder)
        (folder / MARK).write_text("A demo deletes this folder when it runs again\n")


def _marked(folder: Path) -> bool:
    return (folder / MARK).is_file()


def _live(options: DemoOptions, bootstrap: str, journals: Path, staged: TimedStages) -> _Lived:
    """Produce, consume, bounce every member, stop, account."""
    with staged("create a topic"):
        _create_topic(bootstrap, options.partitions)
    with MemberProcesses(bootstrap, TOPIC, GROUP, options.partitions, journals) as group:
        with staged(f"start a producer and {options.members} members"):
            group.start_producer(options.rate)
            for slot in range(options.members):
                group.start(slot)
            group.await_balance()
            group.work(options.seconds)
        began = time.time()
        for slot in range(options.members):
            with staged(f"bounce member {slot + 1} of {options.members}"):
                group.stop(slot)
                group.await_balance()
                group.work(options.seconds)
                group.start(slot)
                group.await_balance()
        ended = time.time()
        with staged("stop the producer and the members"):
            group.work(options.seconds)
            acknowledged = group.stop_producer()
            for slot in range(options.members):
                group.stop(slot)
        entries = group.journal.read()
    with staged("account for every record"):
        end, committed = _positions(bootstrap, options.partitions)
        account = settle(entries, acknowledged, end, committed)
        account.check()
        owned = intervals(entries, time.time())
        doubles = overlaps(owned)
        if doubles:
            first, second = doubles[0]
            raise AdapterError(
                f"partition {first.partition} had two owners: {first.member} and {second.member}"
            )
    return _Lived(
        account=account,
        unowned=tuple(unowned_seconds(owned, options.partitions, began, ended)),
        intervals=tuple(owned),
        bounce_seconds=ended - began,
    )


def _create_topic(bootstrap: str, n_partitions: int) -> None:
    admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics({TOPIC: {"num_partitions": n_partitions}}, wait_for_metadata=True)
    finally:
        admin.close()


def _positions(bootstrap: str, n_partitions: int) -> tuple[dict[int, int], dict[int, int]]:
    """End offset of every partition, and the group's committed offset."""
    tps = [TopicPartition(TOPIC, partition) for partition in range(n_partitions)]
    consumer: Any = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    try:
        end = {tp.partition: offset for tp, offset in consumer.end_offsets(tps).items()}
    finally:
        consumer.close()
    admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        found = admin.list_group_offsets({GROUP: tps})[GROUP]
    finally:
        admin.close()
    return end, {tp.partition: max(0, entry.offset) for tp, entry in found.items()}

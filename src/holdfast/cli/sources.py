"""The source of a reading command: a folder of tables, a dump, a live cluster, or a tool's output.

**Rules.** A live cluster is only read, and no group is joined. A folder of tables is read
unchanged, without Spark. A dump or a cluster goes through the pipeline first, into a temporary
folder; Spark is imported and started only if a step is too large for this process.

A file is a source if its first lines are those of one of Kafka's own tools. The output of
``kafka-consumer-groups`` describes one moment, so only commands that need no history accept it.

Only commands load Arrow without pandas: a user's program may want pandas from Arrow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli import options
from holdfast.cli.histories import cluster_of, make_history, refuse_unknown, report_source
from holdfast.cli.option_values import parse_duration_ms, read_window
from holdfast.cli.output import notes
from holdfast.cluster.group_messages import Position
from holdfast.cluster.groups import GroupReader
from holdfast.cluster.groups_now import GroupsNow
from holdfast.core.command_lines import FOLDER, SERVERS, GivenSource, holdfast_line
from holdfast.core.names import means
from holdfast.errors import ConfigError, SourceError, nearest
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroups
from holdfast.fleet.tables.columns.stored import NOT_LOADED

if TYPE_CHECKING:
    from holdfast.cli.live_groups import GroupStatePoller
    from holdfast.fleet.pipeline.ingest.printed.described import DescribedGroups
    from holdfast.fleet.pipeline.ingest.source import Dump
    from holdfast.fleet.tables.reading import Tables
    from holdfast.fleet.tables.storage.paths import StoragePath


ALL_TIME: Final = options.Window()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTables:
    """Tables, and the topics and groups of their source.

    Parameters
    ----------
    tables : Tables
        A table is read when it is used.
    topics : dict of str to int
        Topic to number of partitions; empty for a folder of tables, which does not contain it.
    groups : tuple of str or None
        Chosen groups of a folder of tables, patterns resolved. None: all groups of the tables; the
        tables of a dump or a cluster hold the chosen groups only.
    are_stored : bool
        The tables are stored in a folder, written by an earlier run.
    moments_us : (int or None, int or None)
        The requested window, in microseconds since 1970: a duration counts back from ``end_ms``.
    live : LiveGroups
        Answers of a live cluster's coordinators, if they were queried.
    end_ms : int or None
        When the source was read, in milliseconds since 1970: the end of every window; earlier if
        the window ends earlier.
    """

    tables: Tables
    topics: dict[str, int]
    groups: tuple[str, ...] | None
    given: GivenSource
    are_stored: bool = False
    moments_us: tuple[int | None, int | None] = (None, None)
    end_ms: int | None = None
    live: LiveGroups = NOT_QUERIED

    def since_ms(self, default: str | None) -> int | None:
        """Return the window's begin in ms since 1970; by default ``default`` before its end."""
        since_us = self.moments_us[0]
        if since_us is None and default is not None and self.end_ms is not None:
            return self.end_ms - parse_duration_ms(default)
        return None if since_us is None else since_us // 1000

    def shown(self, groups: Sequence[str] | None) -> tuple[tuple[str, ...] | None, Tables]:
        """Return the chosen groups, and what pages and findings show of them.

        Few rows are read now, and more than a few in parts when they are used.
        """
        # Tables of a dump or a cluster hold no other group; missing names were reported before.
        chosen = self.tables.choose(groups) if self.are_stored else None
        return chosen, self.tables.load_few(chosen, without=NOT_LOADED)


def is_dump(source: StoragePath) -> bool:
    """Return whether a folder is a complete dump."""
    return (source / "dump.json").is_file()


@contextmanager
def open_source(
    source_options: options.SourceOptions,
    window: options.Window | options.RecentWindow = ALL_TIME,
    *,
    for_findings: bool = False,
    spark_groups: bool = False,
    auto_offset_reset: str = "latest",
    broker_logs: Sequence[Path] | None = None,
    output: StoragePath | None = None,
    overwrite: bool = False,
    takes_described: bool = False,
) -> Iterator[OpenedTables]:
    """Open tables of ``--input`` or ``--bootstrap-server``.

    Parameters
    ----------
    window : Window, optional
        Only events in the window (:mod:`holdfast.fleet.analysis.times`).
    for_findings : bool
        The tables end with the window and do not begin with it, so that rows that hold in it and
        began before are included. The coordinators of a live cluster are queried too, before its
        records are read and afterwards: a group that rebalances both times has done so that long.
    spark_groups : bool
        Include the groups of Spark's connector of a dump or a cluster, if no group is named.
    auto_offset_reset : str
        ``auto.offset.reset`` for the lag of a partition without a commit, for a dump or a cluster.
    broker_logs : sequence of Path, optional
        Logs of brokers that state causes, for a dump or a cluster.
    output : path or URL, optional
        Folder for the tables of a dump or a cluster; by default a temporary one, deleted at the
        end.
    overwrite : bool
        Replace tables that a stream wrote to ``output``, too.
    takes_described : bool
        Accept output of ``kafka-consumer-groups --describe``, too.

    Raises
    ------
    ConfigError
        Neither or both are given, or broker logs for tables (their causes are settled), or an
        output folder for existing tables, or a group that they do not contain.
    SourceError
        The source cannot be read.
    """
    load_arrow()
    source, groups = source_options.source, source_options.group
    if (source is None) == (source_options.bootstrap is None):
        raise ConfigError("give either --input PATH or --bootstrap-server HOST:PORT")
    # A wrong window is reported before anything slow begins.
    read_window(window.since, window.until)
    given = GivenSource(
        path=str(source or ""),
        servers=source_options.bootstrap or "",
        command_config=str(source_options.command_config or ""),
    )
    printed = source if is_printed(source) else None
    if source is not None and printed is None and not is_dump(source):
        _refuse_settled(source, broker_logs or (), output)
        begins = window.since is not None and not for_findings
        opened = _stored(source_options, given, in_memory=begins or window.until is not None)
        yield _windowed(opened, window, is_cut=not for_findings)
        return
    is_now = for_findings and source is None and window.until is None
    with ExitStack() as stack:
        dump = None
        if printed is not None:
            note = notes(source_options.quiet)
            dump = dump_of_text(printed, _scratch(stack), note, takes_described=takes_described)
        # Temporary tables are read once: their groups are examined then, with present states.
        examines, output = output is not None, output or _scratch(stack)
        all_groups = spark_groups and not groups
        states = state_poller(source_options, all_groups=all_groups) if is_now else None
        made = make_history(
            source_options,
            output,
            all_groups=all_groups,
            auto_offset_reset=auto_offset_reset,
            broker_logs=broker_logs or (),
            overwrite=overwrite,
            examines=examines,
            dump=dump,
            before=None if states is None else states.query_states,
        )
        topics = made.dump.partition_counts()
        opened = OpenedTables(tables=made.tables, topics=topics, groups=None, given=given)
        if states is not None:
            states.query_all(made.tables.groups)
            opened = replace(opened, live=states.live)
        yield _windowed(opened, window, is_cut=not for_findings)


def _stored(
    source_options: options.SourceOptions, given: GivenSource, *, in_memory: bool
) -> OpenedTables:
    """Open the snapshot of a folder of tables, and read the chosen groups' rows if needed."""
    from holdfast.fleet.tables.reading import open_tables

    snapshot = open_tables(given.path).at_snapshot()
    report_source(snapshot, notes(source_options.quiet))
    chosen = snapshot.choose(source_options.group)
    tables = snapshot.load(chosen) if in_memory else snapshot
    return OpenedTables(tables=tables, topics={}, groups=chosen, given=given, are_stored=True)


def _scratch(stack: ExitStack) -> Path:
    """Return a folder that is deleted at the end of the block."""
    import tempfile  # `assign` loads this module for texts of Kafka's tools alone

    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-")))


def _refuse_settled(source: StoragePath, logs: Sequence[Path], output: StoragePath | None) -> None:
    """Refuse options that existing tables cannot obey: broker logs, an output folder."""
    if logs:
        words = [word for log in logs for word in ("--broker-log", str(log))]
        line = holdfast_line("history", "-b", SERVERS, *words, "-o", FOLDER)
        raise ConfigError(
            f"{source} holds tables, whose causes are settled: write new ones (`{line}`)"
        )
    if output is not None:
        raise ConfigError(f"{source} holds tables: -o is for the tables of a dump or a cluster")


def state_poller(source_options: options.SourceOptions, *, all_groups: bool) -> GroupStatePoller:
    """Return a poller of the coordinators of the chosen groups."""
    from holdfast.cli.live_groups import GroupStatePoller

    note, chosen = notes(source_options.quiet), source_options.group or ()
    return GroupStatePoller(cluster_of(source_options), chosen, all_groups=all_groups, note=note)


def _windowed(
    opened: OpenedTables, window: options.Window | options.RecentWindow, *, is_cut: bool
) -> OpenedTables:
    """Return the tables with the requested window applied."""
    from holdfast.fleet.analysis.times import window_end_ms, within

    end_ms = window_end_ms(opened.tables)
    low, high = read_window(window.since, window.until, None if end_ms is None else end_ms * 1000)
    cut = within(opened.tables, low if is_cut else None, high)
    if high is not None and end_ms is not None:
        end_ms = min(end_ms, high // 1000)
    return replace(opened, tables=cut, moments_us=(low, high), end_ms=end_ms)


def load_arrow() -> None:
    """Import pyarrow, choose its allocator, and let its lookup of pandas fail.

    pyarrow looks for pandas once, at its first conversion from Python, to recognize its series. The
    import costs more than a second. ``import pandas`` itself still works afterwards. Arrow's own
    allocator keeps what its threads have freed: 302 MB where the system's allocator needs 238, for
    as much CPU.
    """
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    if "pandas" in sys.modules:
        return

    def refuse(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not for commands", name=name)

    blocked: Any = SimpleNamespace(find_spec=refuse)
    sys.meta_path.insert(0, blocked)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(blocked)


Note = Callable[[str], None]

LACKS_OF_DESCRIBED: Final = (
    "the output of kafka-consumer-groups has neither the begin of logs, nor times of commits, nor "
    "the age of unread records"
)


def is_printed(source: StoragePath | None) -> bool:
    """Return whether a source is a file: either a text of Kafka's tools or an error."""
    return source is not None and not source.is_dir() and source.is_file()


def is_described(source: StoragePath | None) -> bool:
    """Return whether a source is output of ``kafka-consumer-groups --describe``."""
    from holdfast.fleet.pipeline.ingest.printed.dumps import PrintedKind, kind_of

    return is_printed(source) and kind_of(Path(str(source))) is PrintedKind.DESCRIBED


def is_described_text(text: str) -> bool:
    """Return whether a text is output of ``kafka-consumer-groups``, complete or not."""
    from holdfast.fleet.pipeline.ingest.printed.described import HEADING

    return any(HEADING.match(line) for line in text.splitlines())


def dump_of_text(source: StoragePath, folder: Path, note: Note, *, takes_described: bool) -> Dump:
    """Write a dump of a text into a folder; ``takes_described``: of groups at one moment, too.

    Raise ConfigError for a moment where the command needs records, SourceError for a text that is
    not of these tools, is malformed, or was cut short.
    """
    from holdfast.fleet.pipeline.ingest.printed.dumps import (
        PrintedKind,
        kind_of,
        write_described,
        write_printed,
    )

    path = Path(str(source))
    kind = kind_of(path)
    if kind is None:
        known = f"{PrintedKind.LOG} --offsets-decoder, {PrintedKind.CONSOLE} with a formatter of "
        raise SourceError(
            f"{path} is a file, but not output of {known}__consumer_offsets, or of "
            f"{PrintedKind.DESCRIBED} --describe; other sources are folders: a dump or tables"
        )
    if kind is not PrintedKind.DESCRIBED:
        return write_printed(path, folder, note)
    if not takes_described:
        raise ConfigError(
            f"{path} is output of {kind} about one moment, for `lag`, `plan` and `assign`; "
            "a history needs records (a dump, or output of kafka-dump-log)"
        )
    return write_described(_read(path, note), path.stat().st_mtime_ns // 1000, folder)


def described_lag(
    source: StoragePath, groups: Sequence[str] | None, reset: str, note: Note
) -> list[dict[str, Any]]:
    """Return rows of ``lag`` from the output of ``kafka-consumer-groups --describe``.

    Raise SourceError if it is malformed, was cut short, or has no offsets or none of the groups.
    """
    from holdfast.cli.live_groups import lag_rows

    found = _read(Path(str(source)), note)
    names = found.groups
    refuse_unknown(groups or (), names)
    for wanted in groups or ():
        if not any(means(wanted, name) for name in names):
            note(f"no group {wanted!r}{nearest(wanted, names, 3, before=': ')}")
    if not found.partitions:
        raise SourceError(f"{source} has no table of offsets: run the tool without --members")
    chosen = {n for n in names if not groups or any(means(w, n) for w in groups)}
    rows = [*lag_rows(_now(found, chosen), reset)]
    for row in rows:
        row["log_start_offset"] = None
        if row["status"] == "none":
            row["lag_by_reset"] = None if reset == "earliest" else row["lag_by_reset"]
        if row["log_end_offset"]:
            row["is_idle"] = None
    return rows


def described_group(path: str, text: str, group: str | None, note: Note) -> dict[str, Any]:
    """Return one group of such a text as a snapshot for ``assign``.

    Raise ConfigError if several groups have members and ``group`` is None, SourceError as
    :func:`described_lag`, or if the group has no members.
    """
    from holdfast.fleet.pipeline.ingest.printed.described import read_described, snapshot_of

    found = read_described(path, text.splitlines())
    held = sorted({name for name, _ in found.members})
    if group is not None:
        refuse_unknown([group], found.groups)
    if not held or (group is not None and group not in held):
        raise SourceError(f"{path}: {'no group' if group is None else repr(group)} has members")
    if group is None and len(held) > 1:
        raise ConfigError(f"{path} has {len(held)} groups with members: --group names one")
    note(
        "kafka-consumer-groups does not print subscriptions (assumed: every topic that any member "
        "was assigned), nor partitions without owner and commit"
    )
    return snapshot_of(found, group or held[0])


def _read(path: Path, note: Note) -> DescribedGroups:
    from holdfast.fleet.pipeline.ingest.envelopes import TextFile
    from holdfast.fleet.pipeline.ingest.printed.described import read_described

    found = read_described(path, TextFile(path))
    for remark in found.remarks:
        note(remark)
    note(LACKS_OF_DESCRIBED)
    return found


def _now(found: DescribedGroups, chosen: set[str]) -> GroupsNow:
    rows = [one for one in found.partitions if one.group in chosen]
    return GroupsNow(
        positions=[
            Position(group=o.group, topic=o.topic, partition=o.partition, offset=o.committed)
            for o in rows
            if o.committed is not None
        ],
        readers=[
            GroupReader(
                group=group,
                member_id=reader.member_id,
                client_id=reader.client_id,
                client_host=reader.client_host,
                partitions=reader.partitions,
            )
            for group in sorted(chosen)
            for reader in found.readers(group)
        ],
        share_groups=frozenset(),
        offsets=sorted({(o.topic, o.partition, 0, o.end) for o in rows if o.end is not None}),
        taken_at_us=0,
        unread={},
    )

"""The output of Kafka's own tools as the source of a command.

**Rules.** A file is a source if its first lines are those of one of the tools; a folder is opened
as a dump or as tables. The output of ``kafka-consumer-groups`` describes one moment, so only
commands that need no history accept it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.histories import refuse_unknown
from holdfast.cluster.group_messages import Position
from holdfast.cluster.groups import GroupReader
from holdfast.cluster.groups_now import GroupsNow
from holdfast.errors import ConfigError, SourceError, nearest
from holdfast.fleet.tables.columns.names import means

if TYPE_CHECKING:
    from holdfast.fleet.pipeline.ingest.printed.described import DescribedGroups
    from holdfast.fleet.pipeline.ingest.source import Dump
    from holdfast.fleet.tables.storage.paths import StoragePath

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

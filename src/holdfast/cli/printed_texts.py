"""A text that Kafka's own tools printed, as the source of a command.

**Rules.** A file is a source where its first lines are those of one of the tools: a folder is
looked at as before. What ``kafka-consumer-groups`` prints is of one moment, so only commands that
need no more take it.
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
from holdfast.fleet.tables.columns.chosen import means

if TYPE_CHECKING:
    from holdfast.fleet.pipeline.ingest.printed.described import DescribedGroups
    from holdfast.fleet.pipeline.ingest.source import Dump
    from holdfast.fleet.tables.storage.paths import StoragePath

Note = Callable[[str], None]

LACKS_OF_DESCRIBED: Final = (
    "the text of kafka-consumer-groups does not say where logs begin, when commits were made, nor "
    "how old what is unread is"
)


def is_printed(source: StoragePath | None) -> bool:
    """Whether a source is a file, and so a text of Kafka's tools or an error."""
    return source is not None and not source.is_dir() and source.is_file()


def is_described(source: StoragePath | None) -> bool:
    """Whether a source is what ``kafka-consumer-groups --describe`` printed."""
    from holdfast.fleet.pipeline.ingest.printed.dumps import PrintedKind, kind_of

    return is_printed(source) and kind_of(Path(str(source))) is PrintedKind.DESCRIBED


def is_described_text(text: str) -> bool:
    """Whether a text is what ``kafka-consumer-groups`` prints, whole or not."""
    from holdfast.fleet.pipeline.ingest.printed.described import HEADING

    return any(HEADING.match(line) for line in text.splitlines())


def dump_of_text(source: StoragePath, folder: Path, note: Note, *, takes_described: bool) -> Dump:
    """Write a dump of a text into a folder.

    Parameters
    ----------
    takes_described : bool
        Take groups as they were at one moment, too.

    Raises
    ------
    ConfigError
        The text is of one moment, and the command needs records.
    SourceError
        It is no text of the tools, is malformed, or was cut short.
    """
    from holdfast.fleet.pipeline.ingest.printed.described_dump import write_described
    from holdfast.fleet.pipeline.ingest.printed.dumps import PrintedKind, kind_of, write_printed

    path = Path(str(source))
    kind = kind_of(path)
    if kind is None:
        known = f"{PrintedKind.LOG} --offsets-decoder, {PrintedKind.CONSOLE} with a formatter of "
        raise SourceError(
            f"{path} is a file, and no text of {known}__consumer_offsets, or "
            f"{PrintedKind.DESCRIBED} --describe; else a dump or tables are expected, in a folder"
        )
    if kind is not PrintedKind.DESCRIBED:
        return write_printed(path, folder, note)
    if not takes_described:
        raise ConfigError(
            f"{path} is what {kind} printed of one moment, which `lag`, `plan` and `assign` take; "
            "a history needs records (a dump, or what kafka-dump-log printed)"
        )
    return write_described(_read(path, note), path.stat().st_mtime_ns // 1000, folder)


def described_lag(
    source: StoragePath, groups: Sequence[str] | None, reset: str, note: Note
) -> list[dict[str, Any]]:
    """Rows of ``lag`` of what ``kafka-consumer-groups --describe`` printed.

    Raises
    ------
    SourceError
        The text is malformed, was cut short, has no offsets, or has none of the groups.
    """
    from holdfast.cli.live_lag import lag_rows

    found = _read(Path(str(source)), note)
    names = found.groups
    refuse_unknown(groups or (), names)
    for wanted in groups or ():
        if not any(means(wanted, name) for name in names):
            note(f"no group {wanted!r}{nearest(wanted, names, 3, before=': ')}")
    if not found.partitions:
        raise SourceError(f"{source} has no table of offsets: print it without --members")
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
    """One group of such a text as a snapshot for ``assign``.

    Raises
    ------
    ConfigError
        The text has several groups with members, and none was named.
    SourceError
        As of :func:`described_lag`; or the group has no members.
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
        "kafka-consumer-groups does not print what members subscribe to (taken for what any of "
        "them was given), nor partitions without owner and commit"
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

"""The output of ``kafka-consumer-groups --describe``: groups at one moment.

**Rules.** Tables of offsets and of members are read, with ``--verbose`` and ``--all-groups`` too,
in any order; tables of states are skipped. A dash is an unknown value. Cells are below their
headings, as the tool pads them: a cell that is too long for its column pushes the others.

References: ``ConsumerGroupCommand`` of Kafka 2.8 to 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from holdfast.cluster.snapshot import SeenMember
from holdfast.core.model.partitions import TopicPartitions, grouped
from holdfast.errors import SourceError
from holdfast.fleet.pipeline.ingest.printed.console import is_noise, wrong_line

HEADING: Final = re.compile(
    r"GROUP +(?:TOPIC +PARTITION +(?:LEADER-EPOCH +)?CURRENT-OFFSET +LOG-END-OFFSET +LAG\b"
    r"|CONSUMER-ID +(?:GROUP-INSTANCE-ID +)?HOST +CLIENT-ID +#PARTITIONS\b"
    r"|COORDINATOR \(ID\) +)"
)
"""The first line of a table of this tool."""

_REMARK: Final = re.compile(r"(?:Warning: |Error: )?Consumer group '|Error: |Note: ")
_ASSIGNED: Final = re.compile(r"([\w.-]+)(?:\(([\d, ]*)\)|:([\d,]+))(?:[;,] ?|$)")
_DASH: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPartition:
    """A row of a table of offsets; None where the tool prints a dash."""

    group: str
    topic: str
    partition: int
    committed: int | None
    end: int | None
    member_id: str | None


@dataclass(slots=True)
class DescribedGroups:
    """Groups of a text; ``remarks`` of the tool say, for example, that a group rebalances."""

    partitions: list[DescribedPartition] = field(default_factory=list)
    members: dict[tuple[str, str], SeenMember] = field(default_factory=dict)  # by group and id
    remarks: list[str] = field(default_factory=list)

    @property
    def groups(self) -> list[str]:
        """Names of the groups, sorted."""
        names = {one.group for one in self.partitions} | {group for group, _ in self.members}
        return sorted(names)

    def readers(self, group: str) -> list[SeenMember]:
        """Return members of a group, by their ids, with the partitions that either table shows."""
        own: dict[str, set[tuple[str, int]]] = {}
        for one in self.partitions:
            if one.group == group and one.member_id is not None:
                own.setdefault(one.member_id, set()).add((one.topic, one.partition))
        found = []
        for (name, member_id), member in sorted(self.members.items()):
            if name == group:
                pairs = {(t, p) for t, ps in member.partitions for p in ps} | own.get(
                    member_id, set()
                )
                found.append(replace(member, partitions=grouped(sorted(pairs))))
        return found


def read_described(path: object, lines: Iterable[str]) -> DescribedGroups:
    """Read the tables of a text; a SourceError if a line is malformed, or if there is no table."""
    found, columns, n_tables = DescribedGroups(), list[tuple[str, int]](), 0
    for number, raw in enumerate(lines, 1):
        text = raw.rstrip("\r\n")
        if HEADING.match(text):
            columns = _columns(text)
            n_tables += "STATE" not in dict(columns)
        elif not text.strip():
            continue
        elif _REMARK.match(text):
            found.remarks.append(text)
        elif columns and (text.startswith(" ") or not is_noise(text)):
            _take(found, dict(_cells(text, columns)), path, number)
        elif not is_noise(text):
            raise wrong_line(path, number, f"{text!r:.60} is not a row: its heading is missing")
    if not n_tables:
        said = f": {found.remarks[0]}" if found.remarks else ""
        raise SourceError(
            f"{path} has no table of offsets or of members of kafka-consumer-groups{said}"
        )
    return found


def is_remark(line: str) -> bool:
    """Return whether a line is a remark of the tool about a group, outside of its tables."""
    return _REMARK.match(line) is not None


def _columns(heading: str) -> list[tuple[str, int]]:
    """Return the names and the widths of columns; the last one has any width."""
    positions = [(one[0], one.start()) for one in re.finditer(r"COORDINATOR \(ID\)|\S+", heading)]
    widths = [after - at - 1 for (_, at), (_, after) in pairwise(positions)]
    return [(name, width) for (name, _), width in zip(positions, [*widths, 1 << 30], strict=True)]


def _cells(text: str, columns: Iterable[tuple[str, int]]) -> Iterator[tuple[str, str]]:
    at = 0
    for name, width in columns:
        end = at + width
        if text[end : end + 1] not in {"", " "}:  # too long: it pushes what follows
            end = text.find(" ", end)
            end = len(text) if end < 0 else end
        yield name, text[at:end].strip()
        at = end + 1


def _take(found: DescribedGroups, row: Mapping[str, str], path: object, line: int) -> None:
    if "STATE" in row:
        return
    try:
        if "TOPIC" in row:
            _take_partition(found, row)
        else:
            _take_member(found, row)
    except (KeyError, ValueError) as error:
        raise wrong_line(
            path, line, f"it is not a whole row of its table: was the text cut short? ({error})"
        ) from error


def _take_partition(found: DescribedGroups, row: Mapping[str, str]) -> None:
    group, member_id = row["GROUP"], _cell_value(row["CONSUMER-ID"])
    if not row["CLIENT-ID"]:
        raise ValueError("CLIENT-ID is empty")
    if member_id is not None:
        member = SeenMember(
            member_id=member_id,
            instance_id=None,
            client_id=row["CLIENT-ID"],
            client_host=row["HOST"],
        )
        found.members.setdefault((group, member_id), member)
    if row["TOPIC"] == _DASH:
        return
    found.partitions.append(
        DescribedPartition(
            group=group,
            topic=row["TOPIC"],
            partition=int(row["PARTITION"]),
            committed=_number(row["CURRENT-OFFSET"]),
            end=_number(row["LOG-END-OFFSET"]),
            member_id=member_id,
        )
    )
    _number(row["LAG"])


def _take_member(found: DescribedGroups, row: Mapping[str, str]) -> None:
    n_partitions = int(row["#PARTITIONS"])
    text = row.get("CURRENT-ASSIGNMENT", row.get("ASSIGNMENT"))
    key = row["GROUP"], row["CONSUMER-ID"]
    found.members[key] = SeenMember(
        member_id=row["CONSUMER-ID"],
        client_id=row["CLIENT-ID"],
        client_host=row["HOST"],
        instance_id=_cell_value(row.get("GROUP-INSTANCE-ID", _DASH)),
        partitions=() if text is None else _assigned(text, n_partitions),
    )


def _assigned(text: str, n_partitions: int) -> TopicPartitions:
    """Parse ``t:0,1;u:0``, or before Kafka 4 ``t(0,1), u(0)``."""
    if text in {"", _DASH}:
        return ()
    pairs, at = list[tuple[str, int]](), 0
    while at < len(text):
        one = _ASSIGNED.match(text, at)
        if one is None:
            raise ValueError(f"{text[at:]!r:.60} is not an assignment")
        numbers = (one[2] or one[3] or "").replace(" ", "").split(",")
        pairs += [(one[1], int(number)) for number in numbers if number]
        at = one.end()
    if len(pairs) != n_partitions:
        raise ValueError(f"{len(pairs)} partitions are named, expected {n_partitions}")
    return grouped(sorted(pairs))


def _cell_value(cell: str) -> str | None:
    return None if cell in {"", _DASH} else cell


def _number(cell: str) -> int | None:
    return None if cell == _DASH else int(cell)


def snapshot_of(described: DescribedGroups, group: str) -> dict[str, Any]:
    """Return one group as a snapshot for ``holdfast assign``.

    Every member counts as a subscriber of every topic that a member was assigned, since the tool
    does not print subscriptions. A topic has the named partitions. An unknown lag is 0.
    """
    readers = described.readers(group)
    topics = sorted({topic for reader in readers for topic, _ in reader.partitions})
    own = [one for one in described.partitions if one.group == group and one.topic in topics]
    positions = {(one.topic, one.partition) for one in own}
    positions |= {(t, p) for reader in readers for t, ps in reader.partitions for p in ps}
    counts = {topic: 1 + max(p for name, p in positions if name == topic) for topic in topics}
    lags = {topic: [0] * n for topic, n in counts.items()}
    for one in own:
        if one.committed is not None and one.end is not None:
            lags[one.topic][one.partition] = max(one.end - one.committed, 0)
    members = [
        {
            "id": reader.member_id,
            "topics": topics,
            "owned": [[topic, p] for topic, numbers in reader.partitions for p in numbers],
            "generation": 1,
            **({"instance_id": reader.instance_id} if reader.instance_id else {}),
        }
        for reader in readers
    ]
    return {"partitions": counts, "members": members, **({"lags": lags} if own else {})}

"""Groups of workers as a story: what moves is connectors and tasks, or a Worker's resources.

**Rules.** Each kind of resource stands for a topic, and every member asks for all kinds. Resources
of a kind are numbered from 0 in the order in which they first had an owner, those of one generation
by name. Nothing else of the rows changes.

**Strategy.** :func:`as_kinds` rewrites the rows of a group of workers before its story is made, so
that all later steps know topics and partitions alone.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.kinds.kind import GroupKind
from holdfast.fleet.pipeline.replay.rows import (
    GroupRows,
    RecordedGeneration,
    RecordedPause,
    TopicPartition,
)


def workers_of(rows: GroupRows) -> GroupKind | None:
    """Kind of a group whose members divide resources of their own; None for any other group."""
    found = [g.kind for g in rows.generations if g.kind.resource_kind is not None]
    return found[-1] if found else None


def as_kinds(rows: GroupRows) -> GroupRows:
    """A group of workers with kinds in place of topics; any other group as it is."""
    if workers_of(rows) is None:
        return rows
    number_of = _numbered(rows.generations)
    kinds = tuple(sorted({kind for kind, _ in number_of.values()}))
    return replace(
        rows,
        generations=[
            replace(
                row,
                members=[
                    replace(
                        member, topics=kinds, owned=sorted(number_of[tp] for tp in member.owned)
                    )
                    for member in row.members
                ],
            )
            for row in rows.generations
        ],
        pauses=[made for row in rows.pauses for made in _pauses(row, number_of)],
    )


def _numbered(rows: list[RecordedGeneration]) -> dict[TopicPartition, TopicPartition]:
    """Kind and number of each resource."""
    found: dict[TopicPartition, TopicPartition] = {}
    counts: dict[str, int] = {}
    for row in rows:
        for resource in sorted(
            {tp for member in row.members for tp in member.owned} - found.keys()
        ):
            of_row = row.kind.resource_kind
            kind = resource[0] if of_row is None else of_row(*resource)
            found[resource] = (kind, counts.get(kind, 0))
            counts[kind] = counts.get(kind, 0) + 1
    return found


def _pauses(
    row: RecordedPause, number_of: dict[TopicPartition, TopicPartition]
) -> list[RecordedPause]:
    """A row of ``pauses`` by kinds."""
    found: dict[str, list[int]] = {}
    for partition in row["partitions"]:
        known = number_of.get((row["topic"], partition))
        if known is not None:
            found.setdefault(known[0], []).append(known[1])
    return [{**row, "topic": kind, "partitions": sorted(p)} for kind, p in found.items()]

"""Readers of a share group: each partition, how far it is, and the members that read it.

**Rules.** Many members read one partition at once: none of them is its owner, so lag stands beside
the partition and never beside a member.

References: KIP-932.
"""

from __future__ import annotations

import numpy as np

from holdfast.fleet.report.columns.given import Readers, read_readers
from holdfast.fleet.report.columns.timeline import Timeline
from holdfast.fleet.report.drawing.markup import Markup, name_of, tag
from holdfast.fleet.report.drawing.sections import MAX_ROWS, amount, table
from holdfast.fleet.report.drawing.words import number
from holdfast.fleet.report.findings.finding import few
from holdfast.fleet.tables.columns.values import codes, ints
from holdfast.fleet.tables.reading import Tables


def readers_section(tables: Tables, timeline: Timeline) -> Markup | None:
    """Section of one share group; None where nobody reads anything."""
    found = read_readers(tables, timeline)
    if not len(found.partition):
        return None
    first = np.flatnonzero(
        np.diff(found.topic, prepend=-1) | np.diff(found.partition, prepend=-1)
    ).tolist()
    last = [*first[1:], len(found.partition)]
    progress = _progress(tables, timeline.group)
    rows = [
        _row(found, progress, begin, end)
        for begin, end in zip(first[:MAX_ROWS], last[:MAX_ROWS], strict=True)
    ]
    readers, pairs = len(set(found.member.tolist())), len(found.partition)
    lead = f"{number(readers)} members read {number(len(first))} partitions, {number(pairs)} pairs."
    if len(first) > MAX_ROWS:
        lead += f" The first {MAX_ROWS} partitions are shown."
    heads = [("Partition", False), ("Members", True), ("Delivered", True), ("Backlog", True)]
    return tag(
        "div",
        tag("h3", "Readers"),
        tag("p", lead, class_="lead"),
        table([*heads, ("Read by", False)], rows),
    )


def _row(
    found: Readers, progress: dict[tuple[str, int], tuple[int, int]], begin: int, end: int
) -> list[object]:
    """Cells of one partition: rows ``begin`` to ``end`` of the readers."""
    topic, partition = found.topics[found.topic[begin]], int(found.partition[begin])
    done, behind = progress.get((topic, partition), (-1, -1))
    members = few(found.members[code] for code in found.member[begin:end])
    return [
        tag("td", name_of(f"{topic}-{partition}")),
        amount(end - begin),
        amount(done if done >= 0 else None),
        amount(behind if behind >= 0 else None),
        tag("td", name_of(members.text(", "))),
    ]


def _progress(tables: Tables, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """(topic, partition) -> records delivered behind the start, and records still to deliver."""
    rows = tables.of_group(group, "lag")
    topic, topics = codes(rows, "topic")
    columns = (ints(rows, name).tolist() for name in ("partition", "delivered", "lag"))
    return {
        (topics[code], partition): (done, behind)
        for code, partition, done, behind in zip(topic.tolist(), *columns, strict=True)
    }

"""Readers of a share group: each partition, its position, and the members that read it.

**Rules.** Many members read one partition at once, and none of them is its owner, so lag is shown
beside the partition and never beside a member.

References: KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow.compute as pc

from holdfast.fleet.analysis.findings.finding import few
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.report.drawing.markup import Markup, name_of, tag
from holdfast.fleet.report.drawing.sections import MAX_ROWS, amount, table
from holdfast.fleet.report.drawing.words import number
from holdfast.fleet.tables.columns.stored import ASSIGNMENTS
from holdfast.fleet.tables.reading import flatten

SHARED: Final = "shared"


def readers_section(history: GroupHistory) -> Markup | None:
    """Return the section of one share group; None without a reader."""
    given = history.last_assignments
    pairs = flatten(given.filter(pc.equal(given["role"], SHARED)), ASSIGNMENTS)
    if not pairs.num_rows:
        return None
    by_member = pairs.sort_by("member_id").group_by(["topic", "partition"], use_threads=False)
    read = by_member.aggregate([("member_id", "list")])
    read = read.sort_by([("topic", "ascending"), ("partition", "ascending")])
    lag = history.lag.stored.select(["topic", "partition", "delivered", "lag"])
    progress = {(row["topic"], row["partition"]): row for row in lag.to_pylist()}
    rows = [
        _row(row, progress.get((row["topic"], row["partition"]), {}))
        for row in read.slice(0, MAX_ROWS).to_pylist()
    ]
    readers, n_read = len(pairs["member_id"].unique()), read.num_rows
    lead = (
        f"{number(readers)} members read {number(n_read)} partitions, "
        f"{number(pairs.num_rows)} pairs."
    )
    if n_read > MAX_ROWS:
        lead += f" The first {MAX_ROWS} partitions are shown."
    heads = [("Partition", False), ("Members", True), ("Delivered", True), ("Backlog", True)]
    return tag(
        "div",
        tag("h3", "Readers"),
        tag("p", lead, class_="lead"),
        table([*heads, ("Read by", False)], rows, caption=f"Readers of {history.name}"),
    )


def _row(read: Mapping[str, Any], progress: Mapping[str, Any]) -> list[object]:
    """Return the cells of one partition: its readers, and its row of ``lag``."""
    members = read["member_id_list"]
    return [
        tag("td", name_of(f"{read['topic']}-{read['partition']}")),
        amount(len(members)),
        amount(progress.get("delivered")),
        amount(progress.get("lag")),
        tag("td", name_of(few(members).text(", "))),
    ]

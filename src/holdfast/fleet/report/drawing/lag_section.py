"""Lag of one group: heat map (drawn by ``page/heat.js``), sums by owner, the worst partitions.

**Rules.** An unknown lag is not shown as a lag of 0. Everything in the picture is in the tables
too.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.core.model.columns import I64
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.identity import Identities
from holdfast.fleet.analysis.spans import NONE
from holdfast.fleet.columnar import ArrowTable
from holdfast.fleet.report.drawing.markup import Markup, name_of, tag
from holdfast.fleet.report.drawing.sections import amount, table
from holdfast.fleet.report.drawing.words import number
from holdfast.fleet.tables.columns.stored import LAG

WORST = 20


def lag_section(history: GroupHistory) -> Markup | None:
    """Return the section of one group; None if the tables have no lag."""
    if not len(history.lag):
        return None
    rows, lag = history.lag.stored, history.lag.lag
    unknown = int((lag < 0).sum())
    lead = (
        f"{number(int(lag[lag > 0].sum()))} records behind in {number(int((lag > 0).sum()))} of "
        f"{number(len(lag))} partitions"
        + (f"; {number(unknown)} have no commit and no rule that gives one" if unknown else "")
        + ". Each step of shade is ten times more; a stroke means unknown."
    )
    picture = tag(
        "div",
        tag("canvas", class_="heat", tabindex="0", role="img", aria_label="Lag per partition"),
        tag("p", class_="heat-told place", role="status", aria_live="polite"),
        class_="needs-js",
    )
    whole = tag(
        "details",
        tag("summary", "Table of every partition's lag"),
        tag("div", class_="lag-table"),
        class_="lag-all needs-js",
    )
    return tag(
        "div",
        tag("h3", "Lag"),
        tag("p", lead, class_="lead"),
        picture,
        None if history.kind.is_shared else _by_owner(rows, lag, history.identities),
        _worst(rows, lag),
        whole,
    )


def _by_owner(rows: ArrowTable, lag: I64, who: Identities) -> Markup:
    behind = pa.array(np.maximum(lag, 0))
    owned = pa.table({"member_id": rows["member_id"], "lag": behind}).group_by("member_id")
    sums = owned.aggregate([("lag", "sum"), ("lag", "count")])
    order = [("lag_sum", "descending"), ("member_id", "ascending")]
    process = {member: who.names[i] for member, i in zip(who.members, who.identity, strict=True)}
    shown = [
        [
            tag("td", name_of(process.get(row["member_id"], NONE))),
            tag("td", "nobody" if row["member_id"] is None else name_of(row["member_id"])),
            amount(row["lag_count"]),
            amount(row["lag_sum"]),
        ]
        for row in sums.sort_by(order).slice(0, 50).to_pylist()
    ]
    member, lag_head = LAG.headings("member_id", "lag")
    heads = [("Owner", False), member, ("Partitions", True), lag_head]
    return table(heads, shown)


def _worst(rows: ArrowTable, lag: I64) -> Markup:
    order = np.argsort(-lag, kind="stable")[:WORST]
    picked = rows.take(order[lag[order] > 0])
    shown = [
        [
            tag("td", name_of(f"{row['topic']}-{row['partition']}")),
            amount(row["lag"]),
            amount(row["current_offset"]),
            amount(row["log_end_offset"]),
            tag("td", name_of(row["member_id"] or "nobody")),
        ]
        for row in picked.to_pylist()
    ]
    columns = LAG.headings("lag", "current_offset", "log_end_offset", "member_id")
    heads = [("Partition", False), *columns]
    if not shown:
        return tag("p", "No partition is behind.")
    summary = tag("summary", f"The {len(shown)} partitions furthest behind")
    return tag("details", summary, table(heads, shown))

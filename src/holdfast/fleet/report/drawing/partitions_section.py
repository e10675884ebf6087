"""Partitions of one group: a heat map of lag (drawn by ``page/heat.js``), and a table.

**Rules.** An unknown lag is not shown as a lag of 0. The table has the partitions furthest behind,
at most ``MAX_ROWS``; ``page/partitions.js`` finds all of them in the columns of the picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from holdfast.core.model.columns import I64
from holdfast.fleet.analysis.findings.finding import few
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.report.drawing.markup import Markup, join, name_of, tag
from holdfast.fleet.report.drawing.sections import (
    MAX_ROWS,
    amount,
    amount_span,
    shown_first,
    table,
)
from holdfast.fleet.report.drawing.words import number
from holdfast.fleet.tables.columns.stored import ASSIGNMENTS, LAG
from holdfast.fleet.tables.reading import flatten

NOBODY = "no member"
"""Text for a partition without an owner."""
_TITLE = tag("h3", "Partitions")
AT_LEAST = "≥ "
"""Mark of a time lag that is a lower bound."""


def partitions_section(history: GroupHistory) -> Markup | None:
    """Return the section of one group; None if it has no partitions."""
    if not len(history.lag):
        return _owned_section(history)
    lag = history.lag.lag
    unknown = int((lag < 0).sum())
    lead = (
        f"{number(int(lag[lag > 0].sum()))} records behind in {number(int((lag > 0).sum()))} of "
        f"{number(len(lag))} partitions"
        + (f"; {number(unknown)} have no commit and no rule that gives one" if unknown else "")
        + ". One square per partition; each darker shade: 10× more lag; struck through: unknown."
    )
    # Readers of a share group have a section of their own.
    listed = None if history.kind.is_shared else _furthest_behind(history)
    return tag(
        "div", _TITLE, tag("p", lead, class_="lead"), _picture(history), _search(len(lag)), listed
    )


def _furthest_behind(history: GroupHistory) -> Markup:
    """Return the table of the partitions furthest behind."""
    lag = history.lag.lag
    order = np.argsort(-lag, kind="stable")[:MAX_ROWS]
    heads = LAG.headings("current_offset", "log_end_offset", "lag")
    drawn = table(
        [("Partition", False), ("Member", False), *heads, ("Time lag", True)],
        _rows(history, order),
        caption=f"Partitions of {history.name}",
        narrow=("Partition", "Lag", "Time lag"),
    )
    first = shown_first(MAX_ROWS, len(lag), "partition", "furthest behind first")
    return tag("div", first, drawn, class_="worst")


def _owned_section(history: GroupHistory) -> Markup | None:
    """Return the owners of partitions without positions; None if there are none."""
    if history.last < 0 or history.kind.is_shared:
        return None
    owner, who = history.owner_at(history.last), history.identities
    owned = np.flatnonzero(owner >= 0)
    if not len(owned):
        return None
    rows = [
        [
            tag("td", name_of(history.partition_name(int(row)))),
            tag("td", name_of(who.names[who.identity[owner[row]]], 40)),
        ]
        for row in owned[:MAX_ROWS]
    ]
    heads = [("Partition", False), ("Member", False)]
    lead = tag(
        "p", "No positions and no lag are recorded for the end of this window.", class_="lead"
    )
    first = shown_first(MAX_ROWS, len(owned), "partition")
    drawn = table(heads, rows, caption=f"Partitions of {history.name}")
    return tag("div", _TITLE, lead, first, drawn)


def _picture(history: GroupHistory) -> Markup:
    label = (
        f"Lag of each partition of {history.name}: arrow keys read it out, the table has the same"
    )
    return tag(
        "div",
        tag(
            "div",
            tag("canvas", class_="heat", tabindex="0", role="img", aria_label=label),
            class_="heat-box",
        ),
        tag("p", class_="heat-told place", role="status", aria_live="polite"),
        class_="needs-js",
    )


def _search(n_partitions: int) -> Markup:
    """Return the form that searches all partitions."""
    find = tag(
        "input", type="search", class_="find-partition", placeholder="topic, partition or member"
    )
    return join(
        [
            tag(
                "div",
                tag("label", "Find", find),
                tag(
                    "button",
                    f"All {number(n_partitions)}",
                    type="button",
                    class_="all-partitions",
                    hidden=n_partitions <= MAX_ROWS,
                ),
                tag("span", class_="place found-partitions", role="status"),
                class_="bar needs-js screen-only",
            ),
            tag("div", class_="partitions needs-js", hidden=True),
        ]
    )


def _rows(history: GroupHistory, order: I64) -> list[list[object]]:
    """Return the cells of some partitions."""
    lag, who = history.lag, history.identities
    process = {member: who.names[i] for member, i in zip(who.members, who.identity, strict=True)}
    (topic, topics), (owner, owners) = lag.topic_codes, lag.owner_codes
    is_least = lag.rows.equal("lag_seconds_basis", "at_least") & (lag.seconds > 0)
    found: list[list[object]] = []
    for i in order.tolist():
        name = owners[owner[i]] if owner[i] >= 0 else None
        offsets = (lag.committed[i], lag.end[i], lag.lag[i])
        found.append(
            [
                tag("td", name_of(f"{topics[topic[i]]}-{lag.partition[i]}")),
                tag("td", NOBODY if name is None else name_of(process.get(name, name), 40)),
                *(amount(int(value) if value >= 0 else None) for value in offsets),
                amount_span(float(lag.seconds[i]), AT_LEAST if is_least[i] else ""),
            ]
        )
    return found


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
        _read_row(row, progress.get((row["topic"], row["partition"]), {}))
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


def _read_row(read: Mapping[str, Any], progress: Mapping[str, Any]) -> list[object]:
    """Return the cells of one partition: its readers, and its row of ``lag``."""
    members = read["member_id_list"]
    return [
        tag("td", name_of(f"{read['topic']}-{read['partition']}")),
        amount(len(members)),
        amount(progress.get("delivered")),
        amount(progress.get("lag")),
        tag("td", name_of(few(members).text(", "))),
    ]

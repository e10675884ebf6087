"""Sections about the present of one group: state, members, partitions, readers of a share group.

**Rules.** A state from a coordinator is shown with the time of the query, and beside the state
of the last record. Members are named as by the coordinator; awaited ones come first. An unknown lag
is not shown as a lag of 0. The table of partitions has those furthest behind, at most ``MAX_ROWS``;
``page/heat.js`` draws all of them, and ``page/partitions.js`` finds them in the columns of the
picture. Many members read one partition of a share group at once, and none of them is its owner, so
lag is shown beside the partition and never beside a member.

References: KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from holdfast.cluster.snapshot import SeenMember
from holdfast.core.model.columns import I64
from holdfast.core.names import visible
from holdfast.fleet.analysis.findings.finding import RULES, Finding, count, few
from holdfast.fleet.analysis.findings.rules_now import CODE, awaited_ids
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.live import LiveGroup
from holdfast.fleet.analysis.group.present_members import PresentMember, present_members
from holdfast.fleet.analysis.times import span
from holdfast.fleet.report.drawing.markup import Markup, join, name_of, number, tag
from holdfast.fleet.report.drawing.sections import (
    MAX_ROWS,
    amount,
    amount_span,
    shown_first,
    table,
    when,
)
from holdfast.fleet.tables.columns.stored import ASSIGNMENTS, LAG
from holdfast.fleet.tables.reading import flatten

_NAMED = 2
"""So many awaited members are named in a line."""
_MEMBERS = (
    ("Member", False),
    ("Host", False),
    ("Client", False),
    ("Partitions", True),
    ("Since (UTC)", False),
    ("Last commit (UTC)", False),
    ("Lag", True),
    ("Time lag", True),
    ("Member id", False),
)
NOBODY = "no member"
"""Text for a partition without an owner."""
_PARTITIONS = tag("h3", "Partitions")
AT_LEAST = "≥ "
"""Mark of a time lag that is a lower bound."""
SHARED: Final = "shared"


def name_now(code: str, since_s: float | None) -> str:
    """Return the name of a finding; of a rebalance in progress with its known seconds."""
    if code == CODE and since_s is not None:
        return f"rebalancing for {span(since_s)}"
    return RULES[code].name


def state_section(history: GroupHistory, findings: Sequence[Finding]) -> Markup:
    """Return the state of one group: from its coordinator, and from its last record."""
    live = history.live
    recorded = tag("p", _recorded(history), class_="lead" if live is not None else "now")
    if live is None:
        return recorded
    words = state_words(live, history.settled_ms, awaited_ids(findings))
    return join([tag("p", *words, class_="now"), recorded])


def state_words(
    live: LiveGroup, settled_ms: int | None, awaited: frozenset[str] = frozenset()
) -> list[Markup]:
    """Return the state of a group from its coordinator, since when, and as of when."""
    queried = f", queried {when(live.queried_ms, 'seconds')} UTC"
    seen = live.seen
    if live.is_gone:
        return [tag("strong", "gone"), join([f": no coordinator has this group{queried}."])]
    if seen is None:
        return [tag("strong", "not listed"), join([f" by any broker{queried}."])]
    words = [tag("strong", seen.state)]
    if live.is_rebalancing:
        since = f"rebalancing for {span(live.known_s(settled_ms))}"
        waits = [one for one in seen.members or () if one.member_id in awaited]
        words = [
            tag("strong", since, _waiting(waits) if waits else "", class_="s-error"),
            join([f" ({seen.state})"]),
        ]
    if seen.members is not None:
        words.append(join([f", {count(len(seen.members), 'member')}"]))
    elif seen.refused:
        words.append(join([f"; its members could not be read: {seen.refused}"]))
    return [*words, join([f"{queried}."])]


def _waiting(members: Sequence[SeenMember]) -> str:
    """Return whom a rebalance waits for, such as ``, waiting for member a on host /10.0.0.7``."""
    named = few(
        f"member {visible(one.instance_id or one.client_id)} on host {visible(one.client_host)}"
        for one in members
    )
    return f", waiting for {named.text(' or ', _NAMED)}"


def _recorded(history: GroupHistory) -> str:
    """Return the state from the topic, and the time of its last record."""
    if history.settled_ms is None:
        return "The offsets topic has no record of this group yet."
    g, last = history.generations, history.last
    return (
        f"By its last record in the offsets topic, of {when(history.settled_ms, 'seconds')} UTC: "
        f"{history.recorded_state}, {count(int(g.n_members[last]), 'member')}, "
        f"generation {int(g.number[last])}."
    )


def members_section(history: GroupHistory, findings: Sequence[Finding]) -> Markup:
    """Return one row for each present member: where it runs, what it owns, how far it is behind."""
    members = present_members(history, awaited_ids(findings))
    title = tag("h3", "Members")
    if not members:
        return tag("div", title, tag("p", "The group has no members."))
    rows = [_row(one) for one in members[:MAX_ROWS]]
    narrow = ("Member", "Host", "Lag")
    drawn = table(_MEMBERS, rows, caption=f"Members of {history.name}", narrow=narrow)
    return tag("div", title, shown_first(MAX_ROWS, len(members), "member"), drawn)


def _row(one: PresentMember) -> list[object]:
    mark = tag("strong", " waited for", class_="s-error") if one.is_awaited else None
    since = "" if one.since_ms is None else when(one.since_ms, "seconds")
    return [
        tag("td", name_of(one.name, 40), mark),
        tag("td", name_of(one.host, 40)),
        one.client,
        amount(one.n_partitions),
        f"{since} or earlier" if one.is_since_first else since,
        "" if one.commit_ms is None else when(one.commit_ms, "seconds"),
        amount(one.lag),
        amount_span(one.lag_s),
        tag("td", name_of(one.member_id, 40)),
    ]


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
        "div",
        _PARTITIONS,
        tag("p", lead, class_="lead"),
        _picture(history),
        _search(len(lag)),
        listed,
    )


def _furthest_behind(history: GroupHistory) -> Markup:
    """Return the table of the partitions furthest behind."""
    lag = history.lag.lag
    order = np.argsort(-lag, kind="stable")[:MAX_ROWS]
    heads = LAG.headings("current_offset", "log_end_offset", "lag")
    drawn = table(
        [("Partition", False), ("Member", False), *heads, ("Time lag", True)],
        _partition_rows(history, order),
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
    return tag("div", _PARTITIONS, lead, first, drawn)


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


def _partition_rows(history: GroupHistory, order: I64) -> list[list[object]]:
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

"""The present state of a group from its coordinator: since when, and its members with hosts.

**Rules.** The state from the topic is shown beside it. Members are named as by the coordinator;
awaited ones come first.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.cluster.snapshot import SeenMember
from holdfast.fleet.analysis.findings.finding import RULES, Finding, count
from holdfast.fleet.analysis.findings.rules_now import CODE
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.live import LiveGroup
from holdfast.fleet.analysis.spans import span
from holdfast.fleet.report.drawing.markup import Markup, join, name_of, tag
from holdfast.fleet.report.drawing.sections import MAX_ROWS, amount, table, when


def now_section(history: GroupHistory, findings: Sequence[Finding]) -> Markup | None:
    """Return the section of one group; None without an answer of its coordinator."""
    live = history.live
    if live is None:
        return None
    members = () if live.seen is None else live.seen.members or ()
    awaited = {name for f in findings if f.code == CODE for name in f.evidence.members.shown}
    return tag(
        "div",
        tag("h3", "Now"),
        tag("p", *state_words(live, history.settled_ms), class_="now"),
        tag("p", _recorded(history), class_="lead"),
        _members(members, awaited) if members else None,
    )


def name_now(code: str, since_s: float | None) -> str:
    """Return the name of a finding; of a rebalance in progress with its known seconds."""
    if code == CODE and since_s is not None:
        return f"rebalancing for {span(since_s)}"
    return RULES[code].name


def state_words(live: LiveGroup, settled_ms: int | None) -> list[Markup]:
    """Return the state of a group from its coordinator, since when, and as of when."""
    queried = f", queried {when(live.queried_ms, 'seconds')} UTC"
    seen = live.seen
    if live.is_gone:
        return [tag("strong", "gone"), join([f": no coordinator has this group{queried}."])]
    if seen is None:
        return [tag("strong", "not listed"), join([f" by any broker{queried}."])]
    words = [tag("strong", seen.state)]
    if live.is_rebalancing:
        words.append(tag("strong", f" for {span(live.known_s(settled_ms))}", class_="s-error"))
    if seen.members is not None:
        words.append(join([f", {count(len(seen.members), 'member')}"]))
    elif seen.refused:
        words.append(join([f"; its members could not be read: {seen.refused}"]))
    return [*words, join([f"{queried}."])]


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


def _members(members: Sequence[SeenMember], awaited: set[str]) -> Markup:
    """Return one row a member: name, host, number of partitions, and whether it is awaited."""
    order = sorted(members, key=lambda one: (one.member_id not in awaited, one.client_id))
    rows = [
        [
            tag("td", name_of(one.instance_id or one.client_id)),
            tag("td", name_of(one.client_host)),
            amount(sum(len(numbers) for _, numbers in one.partitions)),
            "waited for" if one.member_id in awaited else "",
            tag("td", name_of(one.member_id)),
        ]
        for one in order[:MAX_ROWS]
    ]
    heads = [
        ("Member", False),
        ("Host", False),
        ("Partitions", True),
        ("", False),
        ("Member id", False),
    ]
    left = len(members) - MAX_ROWS
    more = tag("p", f"{left:,} more are not shown.") if left > 0 else None
    return join([table(heads, rows, narrow=("Member", "Host", "")), more or ""])

"""The present of a group: its state and since when, and one row for each present member.

**Rules.** A state from a coordinator is shown with the time of the query, and beside the state
of the last record. Members are named as by the coordinator; awaited ones come first.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.cluster.snapshot import SeenMember
from holdfast.core.names import visible
from holdfast.fleet.analysis.findings.finding import RULES, Finding, count, few
from holdfast.fleet.analysis.findings.rules_now import CODE, awaited_ids
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.live import LiveGroup
from holdfast.fleet.analysis.group.present_members import PresentMember, present_members
from holdfast.fleet.analysis.spans import span
from holdfast.fleet.report.drawing.markup import Markup, join, name_of, tag
from holdfast.fleet.report.drawing.sections import (
    MAX_ROWS,
    amount,
    amount_span,
    shown_first,
    table,
    when,
)

_NAMED = 2
"""So many awaited members are named in a line."""
_HEADS = (
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
    drawn = table(_HEADS, rows, caption=f"Members of {history.name}", narrow=narrow)
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

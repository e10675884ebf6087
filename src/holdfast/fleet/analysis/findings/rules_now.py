"""The rule about present states from coordinators: a rebalance in progress.

**Rules.** As :mod:`holdfast.fleet.analysis.findings.rules_rebalances`. What a coordinator does not
state is inferred and marked so, or left open: DescribeGroups lists the members of a classic group
and not which of them have joined again.

**Strategy.** A member id that the last generation does not have has joined: every start creates a
new id. Of the members of the last generation that are still listed, the awaited one has stopped
committing long before the others (:func:`_awaited`). The coordinators of KIP-848 name members that
have partitions to revoke.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.cluster.snapshot import JOINING, SYNCING, SeenGroup, SeenMember, member_label
from holdfast.fleet.analysis.findings.finding import (
    NONE,
    Basis,
    Evidence,
    Finding,
    Limits,
    Severity,
    Symptom,
    count,
    describe,
    few,
    few_names,
    rule,
)
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.live import LiveGroup
from holdfast.fleet.analysis.times import span

CODE = "HF128"
_NAMED = 3
"""So many members are named in the text; all are in the evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedMembers:
    """Members that a coordinator waits for, as far as known."""

    # At least one of the awaited members; empty if none can be named.
    members: tuple[SeenMember, ...] = ()
    text: str = ""  # their description


@rule(
    CODE,
    name="rebalance in progress",
    severity=Severity.ERROR,
    what="The group's coordinator waits for members to join again, or for the leader's assignment.",
    why="Until the round ends no member has a new assignment. Members of an eager group read "
    "nothing meanwhile. A round lasts until its last member polls, or until the longest "
    "max.poll.interval.ms in the group has passed: five minutes by default.",
    how="Stated by the coordinator, if the source is a live cluster. Kafka does not report since "
    "when: after two or more queries, the time between them is the minimum. Nor does "
    "DescribeGroups report which members have not rejoined: most likely the member of the last "
    "generation that stopped committing before the others; the coordinators of KIP-848 groups "
    "name it. Below ten seconds the finding is a warning, seen once it is information. A KIP-848 "
    "group, whose other members continue to read, has a warning at most.",
    mend="Inspect that member on its host: it works on a long batch, hangs, or has ended. It "
    "joins at its next poll; the others stop waiting once its process has ended or left the "
    "group. To prevent it: smaller batches (max.poll.records), or a lower max.poll.interval.ms.",
)
def _rebalancing(history: GroupHistory) -> Iterator[Symptom]:
    live = history.live
    if live is None or live.seen is None or not live.is_rebalancing:
        return
    settled_ms = history.settled_ms
    known_s, most_s = live.known_s(settled_ms), _most_s(history, live, settled_ms)
    awaited = _awaited(history, live.seen)
    figures = {"at_least_s": known_s, "members": float(len(live.seen.members or ()))}
    if most_s is not None:
        figures["at_most_s"] = most_s
    n_behind = _n_behind(history, live.seen, awaited)
    yield Symptom(
        severity=severity_now(live, settled_ms),
        text=f"{_duration(known_s, most_s)}{_for_whom(live.seen, awaited)}",
        evidence=Evidence(
            generations=few([int(history.generations.number[history.last])])
            if history.last >= 0
            else NONE,
            from_ms=live.queried_ms - round(1000 * known_s),
            to_ms=live.queried_ms,
            members=few_names(one.member_id for one in awaited.members),
            figures=figures,
        ),
        cost_lower_s=known_s * n_behind if _is_eager(history) else 0.0,
        cost_upper_s=(known_s if most_s is None else most_s) * n_behind,
        command=describe(history, "--members"),
        basis=Basis.STATED,
    )


def awaited_ids(findings: Sequence[Finding]) -> frozenset[str]:
    """Return ids of the members that a present rebalance waits for, of its finding."""
    return frozenset(name for f in findings if f.code == CODE for name in f.evidence.members.shown)


def severity_now(live: LiveGroup, settled_ms: int | None = None) -> Severity:
    """Return how bad a rebalance in progress is, where the last generation is of that time."""
    known_s = live.known_s(settled_ms)
    limit_s = Limits.rebalancing_s
    if live.seen is not None and live.seen.state in (JOINING, SYNCING):
        if known_s >= limit_s:
            return Severity.ERROR
        return Severity.WARN if known_s > 0 else Severity.INFO
    return Severity.WARN if known_s >= limit_s else Severity.INFO


def _most_s(history: GroupHistory, live: LiveGroup, settled_ms: int | None) -> float | None:
    """Return the longest remaining seconds: a coordinator waits only as long as members allow."""
    most_s = live.most_s(settled_ms)
    timeouts = history.presence.rebalance_timeout_ms[history.members_now]
    is_joining = live.seen is not None and live.seen.state == JOINING
    if is_joining and len(timeouts) and timeouts.min() > 0:
        longest_s = float(timeouts.max()) / 1000
        most_s = longest_s if most_s is None else min(most_s, longest_s)
    return most_s


def _duration(known_s: float, most_s: float | None) -> str:
    """Return a text such as ``rebalancing for at least 11 s, at most 5 min``."""
    if known_s < 1:
        return "rebalancing now" if most_s is None else f"rebalancing for at most {span(most_s)}"
    if most_s is None:
        return f"rebalancing for at least {span(known_s)}"
    if span(most_s) == span(known_s):
        return f"rebalancing for {span(known_s)}"
    return f"rebalancing for {span(known_s)} to {span(max(most_s, known_s))}"


def _for_whom(seen: SeenGroup, awaited: AwaitedMembers) -> str:
    if seen.members is None:
        why = f" ({seen.refused})" if seen.refused else ""
        return f" ({seen.state}); its members could not be read{why}"
    what = {
        JOINING: "the coordinator waits for",
        SYNCING: "all have joined, and the coordinator waits for the assignment of",
        "Reconciling": "the group waits for",
    }.get(seen.state)
    if what is None:
        return f" ({seen.state}), {count(len(seen.members), 'member')}"
    return f" ({seen.state}): {what} {awaited.text}"


def _awaited(history: GroupHistory, seen: SeenGroup) -> AwaitedMembers:
    """Return the members that a coordinator waits for."""
    members = seen.members or ()
    if seen.state == JOINING:
        return _not_joined(history, members)
    if seen.state == SYNCING:
        found = [one for one in members if one.member_id == history.leader]
        if not found:
            return AwaitedMembers(members=members, text="its leader, which is new")
        return AwaitedMembers(
            members=tuple(found), text=f"{_name(found[0])}, if it still leads the group"
        )
    giving = [one for one in members if one.n_pending_revocations]
    if giving:
        n = sum(one.n_pending_revocations or 0 for one in giving)
        rest = f"to revoke {count(n, 'partition')}"
        return AwaitedMembers(members=tuple(giving), text=f"{_names(giving)} {rest}")
    behind = [one for one in members if one.is_behind]
    if behind:
        text = f"{_names(behind)} to adopt the new assignment"
        return AwaitedMembers(members=tuple(behind), text=text)
    return AwaitedMembers(text="its coordinator")


def _not_joined(history: GroupHistory, members: Sequence[SeenMember]) -> AwaitedMembers:
    """Return members of the last generation that have not rejoined, as far as records show."""
    names = history.members
    former = {names[m] for m in history.presence.member[history.members_now]}
    old = [one for one in members if one.member_id in former]
    n_new = len(members) - len(old)
    waiting = f"; {count(n_new, 'new member')} {'waits' if n_new == 1 else 'wait'}"
    if not old:
        return AwaitedMembers(
            text="new members (group.initial.rebalance.delay.ms): none of those listed "
            "was in the last generation"
        )
    if len(old) == 1:
        (one,) = old
        text = f"{_name(one)} to join again{waiting if n_new else ''}"
        return AwaitedMembers(members=(one,), text=text)
    silent = _first_silent(history, old)
    if silent is not None:
        one, quiet_s, apart_s = silent
        text = (
            f"{_name(one)} to join again, most likely: it has not committed for {span(quiet_s)}, "
            f"all others committed {span(apart_s)} later or have nothing to read"
        )
        return AwaitedMembers(members=(one,), text=text)
    return AwaitedMembers(
        members=tuple(old),
        text=f"one or more of {_names(old)} to join again: Kafka does not say which of them have",
    )


def _first_silent(
    history: GroupHistory, old: Sequence[SeenMember]
) -> tuple[SeenMember, float, float] | None:
    """Return the member with unread records that stopped committing well before all others.

    Return the seconds since its last commit too, and how much later the next one committed last;
    None if no member differs clearly.
    """
    lag = history.lag
    newest_ms = int(lag.commit_ms.max(initial=0))
    settled_ms = history.settled_ms or 0  # whoever never committed got its partitions then
    last: dict[str, int] = {}
    has_work = set()
    for i, member in enumerate(lag.member):
        if member is None:
            continue
        last[member] = max(last.get(member, settled_ms), int(lag.commit_ms[i]))
        # Records after the last commit of the group delayed no member yet.
        came_ms = history.end_ms - 1000 * lag.age_s[i]
        unread = lag.lag[i] > 0 or (lag.committed[i] < 0 and lag.end[i] > lag.begin[i])
        if unread and not came_ms > newest_ms:
            has_work.add(member)
    busy = [one for one in old if one.member_id in has_work]
    if not busy:
        return None
    first, *others = sorted(busy, key=lambda one: last[one.member_id])
    silent_ms = last[first.member_id]
    next_ms = min((last[one.member_id] for one in others), default=history.end_ms)
    apart_s = (next_ms - silent_ms) / 1000
    if apart_s < Limits.apart_s:
        return None
    return first, (history.end_ms - silent_ms) / 1000, apart_s


def _is_eager(history: GroupHistory) -> bool:
    """Return whether all members stop while they join, as in the last recorded rebalance."""
    eager = history.recorded.counts["eager"]
    return bool(len(eager) and eager[-1] == 1)


def _n_behind(history: GroupHistory, seen: SeenGroup, awaited: AwaitedMembers) -> int:
    """Count partitions with unread records that no member reads meanwhile."""
    lag = history.lag
    behind = lag.lag > 0
    if not _is_eager(history):
        waits = {one.member_id for one in awaited.members}
        behind &= np.asarray([member in waits for member in lag.member], dtype=bool)
    return int(behind.sum())


def _name(member: SeenMember) -> str:
    return member_label(
        instance_id=member.instance_id,
        client_id=member.client_id,
        member_id=member.member_id,
        client_host=member.client_host,
    )


def _names(members: Sequence[SeenMember]) -> str:
    named = [_name(one) for one in members[:_NAMED]]
    return few([*named, *members[_NAMED:]]).text(", ", _NAMED)

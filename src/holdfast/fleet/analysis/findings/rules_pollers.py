"""The rule about members that poll too rarely, and helpers for other rules.

**Rules.** As :mod:`holdfast.fleet.analysis.findings.rules_rebalances`. Only a broker's log states
why a member left, so a departure is judged by the time from the member's last evidence to it
(:mod:`holdfast.fleet.analysis.group.client_library`):

- It was *late* if it came one poll interval after that evidence, while no session could have
  ended, or if the broker's log says so.
- A session may be as long as the poll interval. Then a crash and a slow poll look alike.
- A rebalance timeout equal to the session timeout shows a client, such as aiokafka, whose poll
  interval no record has. Then the same time in several departures proves it; one departure does
  not distinguish a slow poller from a crash or a deploy.

A slow poller mostly leaves like that, and comes back with the same client id from the same host,
at its next poll. A process that crashes leaves no request and is removed a session later; one that
is deployed leaves in the middle of its work, and its last commit is seconds old.

**Strategy.** Departures are grouped by process, and a process is judged by all of its departures.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from holdfast.core.machine.upgrade import Client
from holdfast.core.model.columns import F64, I64, Mask
from holdfast.fleet.analysis.findings.finding import (
    FOLLOW_UP_MS,
    Severity,
    Symptom,
    count,
    few,
    rule,
    show_rebalances,
    symptom_of,
)
from holdfast.fleet.analysis.group.client_library import (
    DEFAULT_MS,
    client_of,
    near_poll_timeout,
    says_poll_timeout,
)
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.presence import Absence
from holdfast.fleet.analysis.times import span

CODE = "HF127"
_NAMED = 3
"""So many members are named in the text; all are in the evidence."""
_JOIN_MS = 500
"""A session restarts when a round is joined, which is before the round's record."""
_NOTICED_MS = 6_000
"""Longest time from a last commit plus a session to the removal of a member: it commits every five
seconds, and the others have to join the round."""
_LEFT, _ENDED = "LeaveGroup", ("has failed", "session expired", "heartbeat expiration")
"""What a broker's log has where a member left, and where its session ended."""
_STEADY_S, _STEADY_SHARE = 2.0, 0.1
"""Spans that differ by no more, in seconds or as a part of them, are one and the same."""
_SHORTEST_S = 5.0
"""Shorter poll intervals are not inferred if no record has them."""
_ROOM = 1.5
"""A poll interval should be longer than the longest batch by this."""

_KEYS = {
    Client.KAFKA_PYTHON: ("max_poll_interval_ms", "max_poll_records"),
    Client.AIOKAFKA: ("max_poll_interval_ms", "max_poll_records, or max_records of getmany"),
    Client.CONFLUENT: ("max.poll.interval.ms", "num_messages of consume"),
    Client.JAVA: ("max.poll.interval.ms", "max.poll.records"),
    Client.HOLDFAST: ("max.poll.interval.ms", "max.poll.records"),
}
"""What a client calls its poll interval, and what makes its batches smaller."""
_ANY_KEYS = ("max.poll.interval.ms", "max.poll.records")


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A departed member."""

    row: int  # its last row among those of the group's members
    member: int  # its member id, by index
    gone: int  # first generation without it
    # First generation with a new member id of its process, ``gone`` or later; -1 for none.
    back: int
    # Seconds from its last evidence, a commit of its own or the round before, to the record without
    # it.
    unseen_s: float
    has_committed: bool  # whether that evidence is a commit


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowPoller:
    """A process that polls too rarely."""

    name: str  # static name or client id, and host
    went: tuple[Departure, ...]  # its departures
    n_late: int  # how many of them came one poll interval after its last evidence
    interval_s: float  # its poll interval, if known, else an estimate
    doubt: str = ""  # another possible reason; empty if no other one fits

    @property
    def is_back(self) -> bool:
        """Return whether it came back after its last departure."""
        return self.went[-1].back >= 0


_FOUND: WeakKeyDictionary[GroupHistory, tuple[SlowPoller, ...]] = WeakKeyDictionary()
"""Slow pollers of the groups under examination: many rules need them."""


def slow_pollers(history: GroupHistory) -> tuple[SlowPoller, ...]:
    """Return processes that polled too rarely, those with most late departures first."""
    found = _FOUND.get(history)
    if found is None:
        found = _FOUND[history] = tuple(_find_slow_pollers(history))
    return found


def _find_slow_pollers(history: GroupHistory) -> list[SlowPoller]:
    spans, at = history.rebalances.unseen_ms, history.rebalance_index
    somebody_went = np.fromiter(map(len, spans), np.int64, len(spans)) > 0
    rows = np.flatnonzero(somebody_went & (at > 0)).tolist()
    unseen_ms = {int(at[row]): spans[row].tolist() for row in rows}
    if not unseen_ms:
        return []
    p = history.presence
    departures = read_departures(
        p.generation,
        p.member.astype(np.int64),
        lambda row: _process(history, row),
        history.generations.at_ms,
        unseen_ms,
    )
    judged = (_judged(history, name, went) for name, went in departures.items())
    found = [one for one in judged if one is not None]
    return sorted(_beside_a_deploy(found), key=lambda one: -one.n_late)


def read_departures(
    generation: I64,
    member: I64,
    process: Callable[[int], str],
    at_ms: I64,
    unseen_ms: Mapping[int, Sequence[int]],
) -> dict[str, list[Departure]]:
    """Return departures of one group by process, in their order.

    Parameters
    ----------
    generation, member : int64[n]
        The group's members, a row for each generation: ascending by generation and member id.
    process : callable
        Returns the process of a row.
    at_ms : int64[n_generations]
        Time of the record of each generation.
    unseen_ms : mapping
        Generation without some members -> ``unseen_ms`` of its rebalance. Members that left in
        another one are omitted, and those without evidence.

    Notes
    -----
    Cost: a sort of the rows, and some steps for each departure and each member id.
    """
    n_members = int(member.max(initial=0)) + 1
    people = generation * n_members + member
    last = len(at_ms) - 1
    went = np.flatnonzero(~np.isin(people + n_members, people) & (generation < last))
    _, first = np.unique(member, return_index=True)
    arrivals: dict[str, list[tuple[int, int]]] = defaultdict(list)
    if len(went):
        for row in np.sort(first).tolist():
            arrivals[process(row)].append((int(generation[row]), int(member[row])))
    for one in arrivals.values():
        one.sort()
    found: dict[str, list[Departure]] = defaultdict(list)
    next_of: dict[int, int] = defaultdict(int)
    for row in went.tolist():
        gone, name = int(generation[row]) + 1, process(row)
        spans, at = unseen_ms.get(gone, ()), next_of[gone]
        next_of[gone] += 1
        if at >= len(spans) or spans[at] < 0:
            continue
        unseen = spans[at] / 1000
        since_round_s = float(at_ms[gone] - at_ms[gone - 1]) / 1000
        found[name].append(
            Departure(
                row=row,
                member=int(member[row]),
                gone=gone,
                back=_back(arrivals[name], gone, int(member[row])),
                unseen_s=unseen,
                has_committed=unseen < since_round_s - 0.05,
            )
        )
    return dict(found)


def _back(arrivals: Sequence[tuple[int, int]], gone: int, member: int) -> int:
    """Return the first generation from ``gone`` on that another member id joined."""
    after = bisect_left(arrivals, (gone, -1))
    return next((at for at, who in arrivals[after : after + 2] if who != member), -1)


def _process(history: GroupHistory, row: int) -> str:
    """Return the name of a process: a slow poller keeps its client id and its host."""
    p, who = history.presence, history.identities
    name = p.static_name(row) or p.text("client_id", row)
    host = who.hosts[who.host[p.member[row]]]
    return f"{name} on {host}" if host else str(name)


def _judged(history: GroupHistory, name: str, went: Sequence[Departure]) -> SlowPoller | None:
    """Judge a process by its departures; None unless they show a slow poller."""
    evidence = _DepartureEvidence.of(history, went)
    sure = evidence.stated | (evidence.near & ~evidence.ended)
    late = evidence.stated | evidence.near if 4 * sure.sum() >= len(went) else sure
    if 2 * late.sum() * _sharing(history, name, went[0]) >= len(went):
        kept = [one for one, is_late in zip(went, late, strict=True) if is_late]
        first = kept[0]
        if not (evidence.stated.any() or first.back >= 0 or _went_alone_from_work(history, first)):
            return None
        interval_s = float(
            np.median((evidence.unseen_s if evidence.own.all() else evidence.poll_s)[late])
        )
        return SlowPoller(name=name, went=tuple(went), n_late=len(kept), interval_s=interval_s)
    known = SlowPoller(name=name, went=tuple(went), n_late=len(went), interval_s=0.0)
    if 2 * (evidence.near & ~evidence.own).sum() >= len(went) and _was_away(history, went):
        again = "a crash loop" if len(went) > 1 else "a crash"
        doubt = f"or {again}: its session is about as long as its poll interval"
        return replace(known, interval_s=float(np.median(evidence.poll_s)), doubt=doubt)
    if evidence.own.all():
        return _of_unknown_interval(history, known, evidence)
    return None


def _sharing(history: GroupHistory, name: str, one: Departure) -> int:
    """Count members with one name at once, as with a client's default id on one host."""
    low, high = np.searchsorted(history.presence.generation, [one.gone - 1, one.gone])
    return sum(_process(history, row) == name for row in range(low, high))


def _was_away(history: GroupHistory, went: Sequence[Departure]) -> bool:
    """Return whether a process was mostly absent for a round, or left work behind.

    A process that is killed and restarted at once is back before its group has noticed the
    departure.
    """
    away = sum(one.back > one.gone for one in went)
    return 2 * away >= len(went) if went[0].back >= 0 else _went_alone_from_work(history, went[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class _DepartureEvidence:
    """Evidence from the departures of a process, one entry each.

    ``near``: it left one poll interval after its last evidence, and no log says that its session
    ended. ``ended``: it left one session after that evidence, and no log says that it left by
    request. ``stated``: its client stated why it left. ``own``: its rebalance timeout equals its
    session timeout, so its poll interval may differ.
    """

    near: Mask
    ended: Mask
    stated: Mask
    own: Mask
    unseen_s: F64
    poll_s: F64
    session_s: F64

    @classmethod
    def of(cls, history: GroupHistory, went: Sequence[Departure]) -> _DepartureEvidence:
        """Collect the evidence of some departures of one process."""
        p, rows = history.presence, [one.row for one in went]
        words = dict(
            zip(history.rebalance_index.tolist(), history.rebalances.stated_reasons, strict=True)
        )
        names = history.members
        stated_reasons = [_broker_words(names[one.member], words.get(one.gone, "")) for one in went]
        own = [text.partition("; client reason: ")[0] for text in stated_reasons]
        left = np.asarray([_LEFT in text for text in own])
        expired = np.asarray([any(word in text for word in _ENDED) for text in own])
        static = np.asarray([p.static_name(row) is not None for row in rows])
        poll_ms, session_ms = p.rebalance_timeout_ms[rows], p.session_timeout_ms[rows]
        unseen_ms = 1000 * np.asarray([one.unseen_s for one in went])
        committed = np.asarray([one.has_committed for one in went])
        ended = (session_ms > 0) & (unseen_ms >= session_ms - _JOIN_MS)
        ended &= unseen_ms <= session_ms + _NOTICED_MS
        return cls(
            # A static member sends no leave request: its session has to end, too.
            near=near_poll_timeout(unseen_ms - static * session_ms, poll_ms, committed)
            & (static | ~expired),
            ended=~static & ~left & ended,
            stated=np.asarray([says_poll_timeout(text) for text in stated_reasons]),
            own=(poll_ms == session_ms) & (poll_ms > 0),
            unseen_s=unseen_ms / 1000,
            poll_s=poll_ms / 1000,
            session_s=session_ms / 1000,
        )


def _broker_words(member: str, words: str) -> str:
    """Return a broker's log text on one member, with its client's reason; empty if it has none."""
    pattern = "[^;]*" + re.escape(member) + "[^;]*(; client reason: [^;]*)?"
    return " ".join(found[0] for found in re.finditer(pattern, words))


def _of_unknown_interval(
    history: GroupHistory, known: SlowPoller, evidence: _DepartureEvidence
) -> SlowPoller | None:
    """Judge a process whose poll interval may be in no record, as with aiokafka.

    Its interval is the default, or the constant time of its departures. Before three departures,
    the only evidence is that it left in the middle of its work.
    """
    usual_s, times = float(np.median(evidence.unseen_s)), len(known.went)
    default_s = DEFAULT_MS / 1000
    all_ms, committed = np.full(times, DEFAULT_MS), np.full(times, True)
    is_default = near_poll_timeout(1000 * evidence.unseen_s, all_ms, committed).all()
    if is_default and known.went[0].back >= 0:
        return replace(known, interval_s=default_s)
    steady = np.abs(evidence.unseen_s - usual_s) <= max(_STEADY_S, _STEADY_SHARE * usual_s)
    died = abs(usual_s - float(np.median(evidence.session_s))) <= _STEADY_S
    if usual_s < _SHORTEST_S or 2 * steady.sum() < times:
        return None
    if died and times >= 3:
        return _of_ended_sessions(history, replace(known, interval_s=usual_s))
    unknown = "its poll interval is in no record, as with aiokafka"
    if times >= 3:
        doubt = f"or a crash loop, after the same time again and again: {unknown}"
        return replace(known, interval_s=usual_s, doubt=doubt)
    if not _went_alone_from_work(history, known.went[0]):
        return None
    doubt = f"or it blocked its heartbeats, crashed, or was deployed: {unknown}"
    return replace(known, interval_s=usual_s, doubt=doubt)


def _of_ended_sessions(history: GroupHistory, known: SlowPoller) -> SlowPoller | None:
    """Judge a process whose session ended each time, and that was mostly absent for a round.

    Work that blocks the event loop of aiokafka stops its heartbeats, as the end of a process does.
    """
    doubt = "or a crash loop: its session ended each time, as if work blocked an event loop"
    return replace(known, doubt=doubt) if _was_away(history, known.went) else None


def _went_alone_from_work(history: GroupHistory, one: Departure) -> bool:
    """Return whether a member that did not come back left alone, with records to read."""
    before, after = (history.presence.members_of(at) for at in (one.gone - 1, one.gone))
    if len(np.setdiff1d(before, after)) > 1:
        return False
    rows: I64 = np.flatnonzero(history.owner_at(one.gone - 1) == one.member)
    return history.had_work(rows, int(history.generations.at_ms[one.gone]))


def _beside_a_deploy(found: Sequence[SlowPoller]) -> list[SlowPoller]:
    """Mark processes that went once each, as several do in a deploy of a group without work."""
    once = [one for one in found if one.n_late == 1]
    if len(once) < 3 or len(once) < len(found):
        return list(found)
    doubt = "or a deploy: each of them went once"
    return [replace(one, doubt=one.doubt or doubt) for one in found]


def explains(history: GroupHistory, found: Iterable[SlowPoller], absence: Absence) -> bool:
    """Return whether a process was absent because it polled too rarely."""
    identity = history.identities.identity
    gone = (absence.last_with + 1, absence.identity)
    return any((d.gone, int(identity[d.member])) == gone for one in found for d in one.went)


def batches_s(history: GroupHistory) -> dict[str, float]:
    """Return the approximate longest batch of each slow poller in the last generation, in s."""
    p, names = history.presence, history.members
    longest = {one.name: _batch_s(history, one)[1] for one in slow_pollers(history)}
    rows = np.flatnonzero(history.members_now).tolist() if longest else []
    known = {names[p.member[row]]: longest.get(_process(history, row)) for row in rows}
    return {member: seconds for member, seconds in known.items() if seconds is not None}


def _batch_s(history: GroupHistory, one: SlowPoller) -> tuple[float, float]:
    """Return the seconds of the longest batch of a process, at least and approximately.

    A round that ended before the last one without the process did not see it poll.
    """
    at_ms = history.generations.at_ms
    least = about = 0.0
    for d in one.went:
        if d.back >= 0:
            about = max(about, float(at_ms[d.back] - at_ms[d.gone]) / 1000)
            least = max(least, float(at_ms[max(d.back - 1, d.gone)] - at_ms[d.gone]) / 1000)
    return one.interval_s + least, one.interval_s + max(about, least)


@rule(
    CODE,
    name="slow poller",
    severity=Severity.ERROR,
    what="A member worked longer on a batch than max.poll.interval.ms allows between two polls. "
    "Its client left the group, and rejoined at its next poll.",
    why="The process never restarted, but each time the group rebalances twice, and records that "
    "the member had read and not committed are read again by another one: a batch that is too "
    "long for every member never ends.",
    how="The member's last evidence, a commit or the round before, is one poll interval before "
    "its departure, while no session could have ended; and it is back with the same client id "
    "from the same host. A broker's log states it (KIP-800). aiokafka's poll interval is in no "
    "record: the same time in several departures proves it. A member that left once and is not "
    "back must have had work. If a crash loop or a deploy would look alike, the finding says so, "
    "and is a warning.",
    mend="Smaller batches: a lower max.poll.records (librdkafka: num_messages of consume; "
    "kafka-python and aiokafka: max_poll_records). Or a max.poll.interval.ms above the longest "
    "batch. Or do the work on another thread, and continue to poll with the partitions paused. "
    "Neither another assignor nor a static id helps.",
)
def _slow(history: GroupHistory) -> Iterator[Symptom]:
    found = slow_pollers(history)
    for doubt in dict.fromkeys(one.doubt for one in found):
        yield _symptom(history, [one for one in found if one.doubt == doubt], doubt)


def _symptom(history: GroupHistory, found: Sequence[SlowPoller], doubt: str) -> Symptom:
    """Return a symptom for the members with the same doubt."""
    batches = [_batch_s(history, one) for one in found]
    least, about = max(batches)
    n_late = sum(one.n_late for one in found)
    at_ms = history.generations.at_ms
    pauses_s = [0.0]
    for one in found:
        pauses_s += (np.diff(at_ms[[d.gone for d in one.went]]) / 1000).tolist()
    symptom = symptom_of(
        history,
        _from_leave_to_return(history, found),
        f"{_who(history, found)}; the longest batch took {span(least)} or more"
        + (f", about {span(about)}" if span(about) != span(least) else "")
        + _help(history, found, about)
        + (f"; {doubt}" if doubt else ""),
        show_rebalances(history),
        severity=Severity.WARN if doubt or n_late == 1 else None,
        members=[one.name for one in found],
        times=float(n_late),
        poll_interval_s=max(one.interval_s for one in found),
        longest_batch_s=least,
    )
    return replace(symptom, every_s=max(*pauses_s, about))


def _who(history: GroupHistory, found: Sequence[SlowPoller]) -> str:
    """Return names of members that polled too rarely, how often, and after what time they left."""
    first = found[0]
    times = "once" if first.n_late == 1 else count(first.n_late, "time")
    if len(found) > 1:
        named = [f"{one.name} ({count(one.n_late, 'time')})" for one in found[:_NAMED]]
        names = few([*named, *found[_NAMED:]]).text(", ", _NAMED)
        n_late = sum(one.n_late for one in found)
        return (
            f"{count(len(found), 'member')} polled too rarely and left {n_late:,} times, "
            f"{span(first.interval_s)} after a poll: {names}"
        )
    back = "and came back"
    if not first.is_back:
        back = "and is not back: it works on, hangs or ended"
        back = "and came back; it is away now" if len(first.went) > 1 else back
    late = f"left {times}, {span(first.interval_s)} after a poll"
    return f"{first.name} polled too rarely: it {late}, {back}"


def _help(history: GroupHistory, found: Sequence[SlowPoller], about_s: float) -> str:
    """Return advice in the words of the members' client."""
    p, group = history.presence, history.name
    keys = set()
    for one in found:
        row = one.went[-1].row
        protocol = history.generations.protocol[int(p.generation[row])]
        ids = p.text("client_id", row) or "", p.text("rack", row)
        client = client_of(group, protocol, *ids)
        keys.add(_KEYS.get(client, _ANY_KEYS) if isinstance(client, Client) else _ANY_KEYS)
    interval, batch = keys.pop() if len(keys) == 1 else _ANY_KEYS
    return (
        f"; a lower {batch} helps, or {interval} above {span(_ROOM * about_s)}, or work on another "
        "thread"
    )


def _from_leave_to_return(history: GroupHistory, found: Sequence[SlowPoller]) -> Mask:
    """Return rebalances from the departures of members to their returns."""
    at_ms, settled_ms = history.rebalances.at_ms, history.generations.at_ms
    chosen = np.zeros(len(at_ms), dtype=bool)
    for d in (d for one in found for d in one.went):
        end_ms = settled_ms[max(d.back, d.gone)] + FOLLOW_UP_MS
        first, last = np.searchsorted(at_ms, settled_ms[d.gone]), np.searchsorted(at_ms, end_ms)
        chosen[first:last] = True
    return chosen

"""Rules about rebalances: storms, deploys, moves that were not needed, delays.

**Rules.** Each function takes the history of a group and yields symptoms; its decorator
has the code and the texts. Cost is partition-seconds without an owner, at least and at most.

**Strategy.** Rebalances are columns in time order, so two binary searches find those of a window.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from holdfast.core.command_lines import holdfast_line, kafka_line, option
from holdfast.core.machine.policy import policy_of_protocol
from holdfast.core.model.columns import I64, Mask
from holdfast.fleet.analysis.findings.finding import (
    FOLLOW_UP_MS,
    Evidence,
    Limits,
    Severity,
    Symptom,
    count,
    few,
    few_names,
    on_group,
    rule,
    show_rebalances,
    summed_downtime_s,
    symptom_of,
    to_cooperative,
    unplanned_of,
)
from holdfast.fleet.analysis.findings.rules_anomalies import failed_in
from holdfast.fleet.analysis.findings.rules_pollers import explains, slow_pollers
from holdfast.fleet.analysis.findings.rules_scaling import changes_of
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.presence import Absence
from holdfast.fleet.analysis.group.timeline import process_moves


def _real(history: GroupHistory) -> Mask:
    """Return rebalances of a living group: neither the first one seen, nor to an empty group."""
    r = history.rebalances
    real: Mask = r.counts["n_members"] != 0
    real &= ~r.caused_by("first_seen")
    if len(r.at_ms) == len(history.recorded.at_ms):  # else an earlier one is before the window
        real[:1] = False
    return real


def _costless(history: GroupHistory) -> list[Absence]:
    """Return restarts without a move to another process, as under Designs II and III."""
    if not history.absences:
        return []
    g, moves = history.generations, np.sort(process_moves(history.timeline)[1])
    found = []
    for absence in history.absences:
        begin = g.at_ms[absence.first_without]
        end = g.at_ms[absence.back] + FOLLOW_UP_MS
        moved = np.searchsorted(moves, [begin, end])
        if absence.away_s <= Limits.round_trip_s and moved[0] == moved[1]:
            found.append(absence)
    return found


def _during(history: GroupHistory, absences: Iterable[Absence]) -> Mask:
    """Return rebalances from the departure of a process to its return."""
    at, g = history.rebalances.at_ms, history.generations
    found = np.zeros(len(at), dtype=bool)
    for absence in absences:
        begin, end = g.at_ms[absence.first_without], g.at_ms[absence.back] + FOLLOW_UP_MS
        found[np.searchsorted(at, begin) : np.searchsorted(at, end, side="right")] = True
    return found


def _announced(history: GroupHistory) -> Mask:
    """Return rebalances that take a member's partitions from it just before it leaves.

    A holdfast member announces that it will not return; in the next round it is absent.
    """
    r, p, index = history.rebalances, history.presence, history.rebalance_index
    found = np.zeros(len(r.at_ms), dtype=bool)
    n_members = np.int64(len(history.members) + 1)
    people = p.generation * n_members + p.member  # ascending
    last = np.append(people[1:] != people[:-1], True)[: len(people)]
    idle = np.flatnonzero(last & (p.n_partitions == 0))
    soon = np.flatnonzero(np.diff(r.at_ms) <= Limits.drained_s * 1000)
    first = np.searchsorted(p.generation[idle], index[soon])
    n_idle = np.searchsorted(p.generation[idle], index[soon], side="right") - first
    at = np.repeat(soon, n_idle)
    which = np.arange(len(at)) - np.repeat(np.cumsum(n_idle) - n_idle - first, n_idle)
    then = index[at + 1] * n_members + p.member[idle[which]]
    found[at[~np.isin(then, people)]] = True
    return found


def _restarts(history: GroupHistory) -> list[Absence]:
    """Return absences of processes that restarted, not of those that polled too rarely (HF127)."""
    slow = slow_pollers(history)
    return [absence for absence in history.absences if not explains(history, slow, absence)]


def _crash_loops(history: GroupHistory) -> dict[int, list[Absence]]:
    """Return processes that restarted several times within a few minutes, and their restarts."""
    g = history.generations
    by_process: dict[int, list[Absence]] = {}
    for absence in _restarts(history):
        if absence.away_s <= Limits.round_trip_s:
            by_process.setdefault(absence.identity, []).append(absence)
    found = {}
    for process, restarts in by_process.items():
        at = np.sort(g.at_ms[[a.back for a in restarts]])
        end = np.searchsorted(at, at + round(Limits.crash_window_s * 1000), side="right")
        if (end - np.arange(len(at))).max() >= Limits.crashes:
            found[process] = restarts
    return found


@rule(
    "HF101",
    name="rebalance storm",
    severity=Severity.WARN,
    what="Ten or more rebalances of the group within ten minutes.",
    why="Every rebalance costs commits, fetch sessions and, with an eager assignor, a stop of "
    "all members. A storm usually sustains itself: members that are removed while they wait come "
    "back and start the next round.",
    how="Counted from the group's records in the offsets topic, without restarts during which no "
    "partition moved to another process; three times the limit is an error.",
    mend="Read the causes in the rebalance table. Members that poll too rarely need a larger "
    "max.poll.interval.ms or smaller batches; for members that restart in a loop, read their "
    "logs; for deploys see HF102.",
)
def _storm(history: GroupHistory) -> Iterator[Symptom]:
    real = _real(history)
    if real.sum() < Limits.storm_rebalances:
        return
    counted = np.flatnonzero(real & ~_during(history, _costless(history)))
    at = history.rebalances.at_ms[counted]
    end = np.searchsorted(at, at + round(Limits.storm_window_s * 1000), side="right")
    inside = end - np.arange(len(at))
    if not len(at) or inside.max() < Limits.storm_rebalances:
        return
    worst = int(np.argmax(inside))
    chosen = np.zeros(len(history.rebalances.at_ms), dtype=bool)
    first = np.flatnonzero(inside >= Limits.storm_rebalances)
    begun, ended = (np.bincount(edge, minlength=len(at) + 1) for edge in (first, end[first]))
    chosen[counted[np.cumsum(begun - ended)[:-1] > 0]] = True
    minutes = Limits.storm_window_s / 60
    more = f", {chosen.sum()} in all storms" if chosen.sum() > inside[worst] else ""
    yield symptom_of(
        history,
        chosen,
        f"{inside[worst]} rebalances within {minutes:.0f} minutes{more}",
        show_rebalances(history),
        severity=Severity.ERROR if inside[worst] >= 3 * Limits.storm_rebalances else None,
        worst_per_window=float(inside[worst]),
    )


@rule(
    "HF102",
    name="deploy churn",
    severity=Severity.WARN,
    what="A rolling restart made more than 1.5 rebalances per restarted member, or new processes "
    "replaced most others, one by one.",
    why="Each restart costs a round when the member leaves, one when it returns, and with "
    "cooperative assignors one more for the revocation. With an eager assignor all members stop "
    "each time.",
    how="Member ids of one process (same static name, client id or host) are combined; "
    "rebalances between the first departure and the last return of a deploy are counted. "
    "Restarts during which no partition moved to another process do not count, nor do crash "
    "loops (HF124). Pods of a Deployment get new names: for them, at least as many processes "
    "were replaced by new ones as stayed. The cost of a move is how much later than usual the "
    "first commit after it comes.",
    mend="First cooperative-sticky, if the assignor is eager: the other members continue to "
    "read. Then a static id (group.instance.id) and a session timeout above the restart, if a "
    "process keeps its name: nothing moves. Only if a move costs more than half the longest "
    "restart, because members rebuild state, use the policy deferred of holdfast's clients, with "
    "a delay above that restart. The finding states the cost of a move, if enough commits are on "
    "record.",
)
def _deploy_churn(history: GroupHistory) -> Iterator[Symptom]:
    yield from _restarted(history)
    yield from _replaced(history)


def _replaced(history: GroupHistory) -> Iterator[Symptom]:
    """Yield symptoms of processes replaced by new ones: a deploy in which no name stays."""
    lives, found = changes_of(history, Limits.deploy_gap_s)
    at, real, settled_ms = history.rebalances.at_ms, _real(history), history.generations.at_ms
    chosen, n_replaced, worst = np.zeros(len(at), dtype=bool), 0, 0.0
    gone = np.zeros(len(lives.process), dtype=bool)
    for one in found:
        end_ms = settled_ms[one.end] + FOLLOW_UP_MS
        inside = slice(*np.searchsorted(at, [settled_ms[one.begin], end_ms]))
        ratio = real[inside].sum() / max(one.replaced, 1)
        if one.is_deploy and ratio > Limits.churn_per_restart:
            chosen[inside] |= real[inside]
            n_replaced, worst = n_replaced + one.replaced, max(worst, ratio)
            gone |= (lives.went >= one.begin) & (lives.went <= one.end)
    if not chosen.any():
        return
    names = history.identities.names
    yield symptom_of(
        history,
        chosen,
        f"{count(int(chosen.sum()), 'rebalance')} while {count(n_replaced, 'member')} were "
        f"replaced (up to {worst:.1f} per member): a deploy under new names",
        to_cooperative(history, [_last_protocol(history)]),
        members=[names[i] for i in lives.process[gone]],
        rebalances_per_member=worst,
        replaced=float(n_replaced),
    )


def _restarted(history: GroupHistory) -> Iterator[Symptom]:
    """Yield symptoms of processes back under their names: a deploy, or a starting crash loop."""
    if len(history.absences) < 2:
        return
    g = history.generations
    looping = _crash_loops(history)
    harmless = set(_costless(history))
    restarts = [
        a
        for a in _restarts(history)
        if a.away_s <= Limits.round_trip_s and a.identity not in looping and a not in harmless
    ]
    if len(restarts) < 2:
        return
    times = g.at_ms[[a.back for a in restarts]]  # ascending, as the absences are
    cuts = np.flatnonzero(np.diff(times) > Limits.deploy_gap_s * 1000) + 1
    at, real = history.rebalances.at_ms, _real(history)
    chosen = np.zeros(len(at), dtype=bool)
    worst, n_restarts, processes = 0.0, 0, set[int]()
    for low, high in pairwise([0, *cuts.tolist(), len(restarts)]):
        mine = restarts[low:high]
        begin = g.at_ms[min(a.first_without for a in mine)]
        end = times[high - 1] + FOLLOW_UP_MS
        inside = slice(np.searchsorted(at, begin), np.searchsorted(at, end, side="right"))
        ratio = real[inside].sum() / len(mine)
        if len(mine) >= 2 and ratio > Limits.churn_per_restart:
            chosen[inside] |= real[inside]
            worst, n_restarts = max(worst, ratio), n_restarts + len(mine)
            processes |= {a.identity for a in mine}
    if not chosen.any():
        return
    longest = max(a.away_s for a in restarts)
    is_dear, explained, cost = _by_what_moves_cost(history, longest)
    if len(processes) == 1 and history.n_members > 1:
        explained = f": a deploy of one member, or the start of a crash loop{explained}"
    delayed = _simulate(history, "deferred", "--delay", _delay(longest))
    yield symptom_of(
        history,
        chosen,
        f"{count(int(chosen.sum()), 'rebalance')} for {count(n_restarts, 'restart')} of "
        f"{count(len(processes), 'member')} (up to {worst:.1f} per restart){explained}",
        _for_restarts(history, delayed, is_dear=is_dear),
        members=_names(history, restarts),
        rebalances_per_restart=float(worst),
        longest_restart_s=longest,
        move_costs_s=cost,
    )


def _by_what_moves_cost(history: GroupHistory, restart_s: float) -> tuple[bool, str, float | None]:
    """Return whether a move costs more than half a restart; its cost in words and in seconds."""
    cost = history.rebuilding
    if not cost.n_moves:
        return False, "", None
    explained = (
        f"; after a move the first commit came {cost.seconds:.1f} s later than usual (median of "
        f"{count(cost.n_moves, 'move')})"
    )
    return cost.seconds > restart_s / 2, explained, cost.seconds


def _for_restarts(history: GroupHistory, delayed: str, *, is_dear: bool) -> str:
    """Return a command for a group whose members restart.

    It is ``delayed`` for a group with a delay, or if a move is dear enough to need one.
    """
    if not history.kind.takes_assignors:
        return show_rebalances(history)
    if is_dear or _has_delay(history):
        return delayed
    last = _last_protocol(history)
    policy = policy_of_protocol(last)
    if policy is not None and policy.cooperative:
        return _simulate(history, last, "--static")
    return to_cooperative(history, [last])


def _last_protocol(history: GroupHistory) -> str:
    return next((name for name in reversed(history.generations.protocol) if name), "range")


def _has_delay(history: GroupHistory) -> bool:
    """Return whether the group's own policy can delay partitions."""
    policy = policy_of_protocol(_last_protocol(history))
    return policy is not None and policy.design is not None


@rule(
    "HF103",
    name="avoidable movements",
    severity=Severity.WARN,
    what="At least a fifth of the moved partitions could have stayed with their owners at the "
    "same balance.",
    why="A moved partition loses its caches and state, is read again from the last commit, and "
    "has no owner while it moves.",
    how="The least number of moves that reaches the most even loads is computed exactly, and "
    "subtracted from the actual moves. Partitions of a member that leaves in the next round had "
    "to move.",
    mend="Use an assignor that keeps owned partitions: cooperative-sticky.",
)
def _avoidable(history: GroupHistory) -> Iterator[Symptom]:
    r = history.rebalances
    moves = np.maximum(r.counts["n_avoidable_moves"], 0) * ~_announced(history)
    moved = sum(np.maximum(r.counts[n], 0) for n in ("n_moved", "n_moved_through_gap"))
    total, needless = int(np.sum(moved)), int(moves.sum())
    if needless < Limits.avoidable_moves or needless < Limits.avoidable_share * total:
        return
    chosen = moves > 0
    share = needless / max(total, needless)
    yield symptom_of(
        history,
        chosen,
        f"{needless} of {max(total, needless)} moved partitions need not have moved "
        f"({share:.0%}) for the same balance",
        on_group(history, "replay", "--assignor", "cooperative-sticky")
        if history.kind.takes_assignors
        else show_rebalances(history),
        share=share,
        avoidable_moves=float(needless),
    )


@rule(
    "HF111",
    name="partitions moved away and back",
    severity=Severity.WARN,
    what="Partitions moved to another member while their owner was restarting, and then back.",
    why="Two moves and two ownership gaps per partition without a benefit.",
    how="A process is recognized when it comes back; its partitions are compared before and after.",
    mend="First cooperative-sticky, if the assignor is eager. Then a static id "
    "(group.instance.id), and a session timeout above the longest measured restart. If the group "
    "has a delay (scheduled.rebalance.max.delay.ms), set it above the restart.",
)
def _delay_short(history: GroupHistory) -> Iterator[Symptom]:
    trips = []
    for absence in _restarts(history):
        if 0 < absence.away_s <= Limits.round_trip_s:
            visited = _round_trip(history, absence)
            if visited.any():
                trips.append((absence, visited))
    if not trips:
        return
    rows: I64 = np.unique(np.concatenate([np.flatnonzero(v) for _, v in trips]))
    n_visits = int(sum(v.sum() for _, v in trips))
    g = history.generations
    around = np.zeros(len(g.number) + 1, dtype=bool)
    for absence, _ in trips:
        around[absence.first_without : absence.back + 2] = True
    index = history.rebalance_index
    chosen = around[np.where(index < 0, len(g.number), index)] & (index >= 0)
    longest = max(a.away_s for a, _ in trips)
    is_dear, *_ = _by_what_moves_cost(history, longest)
    yield symptom_of(
        history,
        chosen,
        f"{count(n_visits, 'time')} a partition went to another member and back while "
        f"its owner was restarting ({longest:.0f} s at most)",
        _for_restarts(history, _replay_deferred(history, longest), is_dear=is_dear),
        members=_names(history, [a for a, _ in trips]),
        rows=rows.tolist(),
        round_trips=float(n_visits),
        longest_restart_s=longest,
    )


@rule(
    "HF112",
    name="delay too long for restarts",
    severity=Severity.WARN,
    what="Partitions had no owner for more than three times the longest restart.",
    why="A delay that outlasts every restart only adds lag when a member has left for good.",
    how="Time without an owner, between two owners, while the group had members.",
    mend="Lower the delay to one and a half times the longest restart.",
)
def _delay_long(history: GroupHistory) -> Iterator[Symptom]:
    if history.is_always_owned:
        return
    t, g = history.timeline, history.generations
    first = np.zeros(len(t.owner), dtype=bool)
    first[t.start[:-1]] = True
    began = np.searchsorted(g.at_ms, t.from_ms, side="right") - 1
    seconds = (t.to_ms - t.from_ms) / 1000
    restarts = [a.away_s for a in history.absences if a.away_s <= Limits.round_trip_s]
    usual = max(restarts, default=0.0)
    limit = max(Limits.unowned_s, Limits.unowned_restarts * usual)
    # A partition still without an owner at the end is another finding (HF114).
    waited = (t.owner == -1) & ~first & (t.to_ms < t.last_ms) & (seconds > limit)
    waited &= (g.n_members[np.maximum(began, 0)] > 0) & (t.to_ms >= history.since_ms)
    if not waited.any():
        return
    rows = np.searchsorted(t.start, np.flatnonzero(waited), side="right") - 1
    longest, cost = float(seconds[waited].max()), float(seconds[waited].sum())
    yield Symptom(
        text=f"{count(int(waited.sum()), 'time')} a partition had no owner, for up "
        f"to {longest:.0f} s; "
        + (f"the longest restart took {usual:.0f} s" if usual else "no restart was measured"),
        evidence=Evidence(
            generations=few(np.unique(g.number[began[waited]]).tolist()),
            from_ms=int(t.from_ms[waited].min()),
            to_ms=int(t.to_ms[waited].max()),
            partitions=few_names(history.partition_name(int(r)) for r in np.unique(rows)),
            figures={"longest_wait_s": longest, "longest_restart_s": usual},
        ),
        cost_lower_s=cost,
        cost_upper_s=cost,
        command=_replay_deferred(history, usual or 10)
        if _has_delay(history)
        else show_rebalances(history),
    )


@rule(
    "HF113",
    name="rebalances without a cause",
    severity=Severity.WARN,
    what="Rebalances after which members, subscriptions and assignment are as before.",
    why="They stop an eager group without a benefit; the usual reasons are members that rejoin "
    "after a slow poll, or a leader that sees metadata change.",
    how="Successive generations are compared, and nothing differs. A round from which a member "
    "leaves within ten seconds is not counted: it may have announced that. Nor is one in which "
    "workers report other failures than before (HF131).",
    mend="Search the members' logs at these times for max.poll.interval.ms and session timeouts.",
)
def _spurious(history: GroupHistory) -> Iterator[Symptom]:
    chosen = history.rebalances.caused_by("spurious") & ~_before_a_leave(history)
    chosen &= ~_reports_failures(history)
    if chosen.sum() < Limits.spurious:
        return
    text = f"{chosen.sum()} rebalances changed neither members nor assignment"
    yield symptom_of(history, chosen, text, show_rebalances(history))


def _reports_failures(history: GroupHistory) -> Mask:
    """Return rebalances in which workers report other failures than in the generation before."""
    said = {
        at: {(row["topic"], row["partition"], *row["member_ids"]) for row in rows}
        for at, rows in failed_in(history).items()
    }
    changed = [said.get(at) != said.get(at - 1) for at in history.rebalance_index.tolist()]
    return np.asarray(changed, dtype=bool)


@rule(
    "HF118",
    name="interrupted rebalances",
    severity=Severity.WARN,
    what="Generation numbers are missing: a round was restarted before it was finished.",
    why="While rounds follow each other no member gets an assignment; with eager members no "
    "records are read.",
    how="A generation leaves a record when its leader's assignment arrives; gaps are counted.",
    mend="Raise the initial rebalance delay of the broker, or start members together.",
)
def _interrupted(history: GroupHistory) -> Iterator[Symptom]:
    missed = np.maximum(history.rebalances.counts["n_missed_generations"], 0)
    if missed.sum() < Limits.missed:
        return
    yield symptom_of(
        history,
        missed > 0,
        f"{count(int(missed.sum()), 'generation')} left no record: the round was "
        "restarted before the leader had answered",
        kafka_line(
            "kafka-configs.sh",
            history.source,
            *("--entity-type", "groups", "--describe"),
            *option("--entity-name", history.name),
        ),
        missed_generations=float(missed.sum()),
    )


@rule(
    "HF119",
    name="stop-the-world rebalances",
    severity=Severity.WARN,
    what="The group rebalances eagerly, and its downtime adds up.",
    why="An eager member revokes all its partitions before it joins, also those that it gets back.",
    how="Members claim no partitions when they join, or the assignor is always eager.",
    mend="Move to cooperative-sticky in two rolling restarts (KIP-726). `upgrade-check` prints "
    "them for the client in `--client`. Some clients refuse a list of both assignors: their plan "
    "has a holdfast drop-in between the two restarts.",
)
def _eager(history: GroupHistory) -> Iterator[Symptom]:
    chosen = (history.rebalances.counts["eager"] == 1) & _real(history)
    if chosen.sum() < 2 or summed_downtime_s(history, chosen) < Limits.eager_downtime_s:
        return
    rebalances = count(int(chosen.sum()), "rebalance")
    text = f"all members stopped at each of {rebalances}: the assignor is eager"
    if others := unplanned_of(history):
        text += f"; members run {', '.join(others)}, for which no plan exists"
    yield symptom_of(history, chosen, text, to_cooperative(history, [_last_protocol(history)]))


@rule(
    "HF124",
    name="crash loop",
    severity=Severity.ERROR,
    what="One process restarted five times or more within ten minutes.",
    why="Each restart costs the group rebalances, and the partitions of that process have no "
    "owner or move back and forth.",
    how="Member ids of one process (same static name, client id or host) are combined.",
    mend="Read the log of that process. A static id (group.instance.id), with a session timeout "
    "above the restart, keeps the others from rebalancing meanwhile.",
)
def _crash_loop(history: GroupHistory) -> Iterator[Symptom]:
    loops = _crash_loops(history)
    if not loops:
        return
    restarts = [absence for found in loops.values() for absence in found]
    p = history.presence
    own = p.rebalance_timeout_ms == p.session_timeout_ms
    own &= p.session_timeout_ms > 0
    is_open = bool(own[np.isin(p.identity, [*loops])].all())
    doubt = ", or a member that blocks its heartbeats for longer than a session" if is_open else ""
    yield symptom_of(
        history,
        _during(history, restarts),
        f"{count(len(loops), 'member')} restarted {count(len(restarts), 'time')}: a crash loop"
        f"{doubt}",
        show_rebalances(history),
        members=_names(history, restarts),
        restarts=float(len(restarts)),
    )


def _before_a_leave(history: GroupHistory) -> Mask:
    """Return rebalances that are followed within moments by one without a previous member."""
    r = history.rebalances
    left = np.append(r.at_ms[r.counts["n_left"] > 0], np.iinfo(np.int64).max)
    following = left[np.searchsorted(left, r.at_ms, side="right")]
    soon: Mask = following - r.at_ms <= Limits.drained_s * 1000
    return soon


def _simulate(history: GroupHistory, policy: str, *words: str) -> str:
    n_members = max(int(history.generations.n_members.max(initial=1)), 1)
    n_partitions = max(len(history.timeline.row_partition), 1)
    return holdfast_line(
        "simulate",
        *("--scenario", "rolling-bounce", "--policy", policy, *words),
        *("--members", str(n_members), "--partitions", str(n_partitions)),
    )


def _replay_deferred(history: GroupHistory, restart_s: float) -> str:
    if not history.kind.takes_assignors:
        return show_rebalances(history)
    return on_group(history, "replay", "--policy", "deferred", "--delay", _delay(restart_s))


def _names(history: GroupHistory, absences: list[Absence]) -> list[str]:
    names = history.identities.names
    return list(dict.fromkeys(names[a.identity] for a in absences))


def _round_trip(history: GroupHistory, absence: Absence) -> Mask:
    """Return timeline rows that moved from the process to another one and back."""
    identity = np.append(history.identities.identity, -1)
    before = identity[history.owner_at(absence.last_with)] == absence.identity
    elsewhere = np.zeros(len(before), dtype=bool)
    for generation in range(absence.first_without, absence.back + 1):
        owner = history.owner_at(generation)
        elsewhere |= before & (owner >= 0) & (identity[owner] != absence.identity)
    back = np.zeros(len(before), dtype=bool)
    for generation in range(absence.back, min(absence.back + 3, history.last + 1)):
        back |= identity[history.owner_at(generation)] == absence.identity
    return elsewhere & back


def _delay(seconds: float) -> str:
    """Return a delay of one and a half times ``seconds``, rounded up to 5 s."""
    return f"{max(math.ceil(1.5 * seconds / 5) * 5, 5)}s"

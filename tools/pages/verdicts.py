"""Sentences, computed from runs, that say when each design pays.

**Rules.** Every number, every comparison and every name of a winner comes from a
:class:`~holdfast.sim.scenarios.Report`. A run that comes out otherwise gives another sentence.

- A characteristic is YES if no run of another policy moves fewer partitions and fewer
  partition-seconds are stopped than under eager members with the old listener; IMPROVED if only the
  second holds; else NO.
- The *winner* of a table is the policy for today's brokers with the fewest stopped seconds.
  Policies with the same number, to a tenth, win together. The models of other protocols are left
  out.

References: Incremental Cooperative Rebalancing, "Characteristics".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.machine.policy import POLICIES
from holdfast.sim.scenarios import Report

Runs = Mapping[str, Report]
"""The runs of one table, by policy."""

SHORT = {
    "eager": "eager, old listener",
    "eager-sticky": "eager, new listener",
    "simple": "Design I",
    "deferred": "Design II",
    "incremental": "Design III",
}
"""Policies for today's brokers, as sentences name them; holdfast-simple is Design I too."""


def characteristic(runs: Runs, policy: str) -> str:
    """Return YES, IMPROVED or NO for one design in one scenario."""
    own, eager = runs[policy], runs["eager"]
    if stopped(own) >= stopped(eager):
        return "NO"
    return "YES" if own.moved == min(r.moved for r in runs.values()) else "IMPROVED"


def stopped(report: Report) -> float:
    """Return partition-seconds in which nothing was processed, as the tables show them."""
    return round(report.partition_seconds_stopped, 1)


def winning(runs: Runs) -> list[str]:
    """Return the policies with the fewest stopped seconds."""
    least = min(stopped(runs[p]) for p in SHORT if p in runs)
    return [p for p in SHORT if p in runs and stopped(runs[p]) == least]


def winners(runs: Runs) -> str:
    """Return the same by name, joined."""
    return listed([SHORT[p] for p in winning(runs)])


def listed(names: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def against(one: float, other: float, what: str) -> str:
    """Return two numbers beside each other, with the fitting word."""
    word = "more than" if one > other else "less than" if one < other else "as much as"
    return f"{one:g} {what}, {word} the {other:g}"


def verdicts(tables: Mapping[str, Runs]) -> list[str]:
    """Return one paragraph a policy; ``tables`` by title."""
    return [
        _eager(tables),
        _design_i(tables),
        _design_ii(tables),
        _design_iii(tables["Scale up"]),
        _kip848(tables["Rolling bounce"]),
    ]


def _wins(tables: Mapping[str, Runs], policy: str) -> str:
    """Return the tables in which a policy has the fewest stopped seconds, as a sentence."""
    found = [title for title, runs in tables.items() if policy in winning(runs)]
    if not found:
        return "It has the fewest stopped seconds in no table above."
    where = "all tables above" if len(found) == len(tables) else listed(found)
    return f"It has the fewest stopped seconds, alone or with others, in: {where}."


def _eager(tables: Mapping[str, Runs]) -> str:
    free = tables["Rolling bounce of members that cost nothing"]
    best = min(("eager", "eager-sticky"), key=lambda p: stopped(free[p]))
    found = [
        title
        for title, runs in tables.items()
        if not {"eager", "eager-sticky"}.isdisjoint(winning(runs))
    ]
    where = f"is among the best in: {listed(found)}" if found else "is the best in no table above"
    compared = against(stopped(free[best]), stopped(free["simple"]), "s stopped")
    return (
        f"**Eager** {where}. In each round all members stop until the slowest member has finished "
        f"its batch. Even where members cost nothing, a rolling bounce is {compared} under "
        f"Design I. The new listener and `sticky` bring a bounce of members that cost something "
        f"from {stopped(tables['Rolling bounce']['eager']):g} to "
        f"{stopped(tables['Rolling bounce']['eager-sticky']):g} s."
    )


def _design_i(tables: Mapping[str, Runs]) -> str:
    bounce = tables["Rolling bounce"]
    own, other = bounce["simple"], bounce["deferred"]
    a_bounce = (own.moved - other.moved) / own.members
    rounds = (own.rounds - other.rounds) / own.members
    return (
        f"**Design I** lets work never wait for a process to come back. {_wins(tables, 'simple')} "
        f"The price for every member that is bounced, beside Design II: moves {a_bounce:+g}, "
        f"rounds {rounds:+g}."
    )


def _design_ii(tables: Mapping[str, Runs]) -> str:
    bounce, down = tables["Rolling bounce"], tables["Scale down"]
    own = bounce["deferred"]
    moved = f"{own.moved} partitions move" if own.moved else "Nothing moves"
    compared = against(stopped(own), stopped(bounce["simple"]), "s stopped")
    lost = against(stopped(down["deferred"]), stopped(down["simple"]), "s stopped")
    size = own.bytes_per_round / bounce["simple"].bytes_per_round
    return (
        f"**Design II**: {moved} in a rolling bounce, and only the bounced member's own partitions "
        f"stop, for its downtime and its rebuild: {compared} of Design I. "
        f"{_wins(tables, 'deferred')} If a member does not come back, its partitions stop for the "
        f"delay: {lost} of Design I. A round has {size:.1f} times Design I's bytes, because each "
        f"member carries a shard of the leader state."
    )


def _design_iii(up: Runs) -> str:
    own, other = up["incremental"], up["deferred"]
    longest = round(own.longest_stop_seconds, 1), round(other.longest_stop_seconds, 1)
    balance = round(own.time_to_balance_seconds, 1), round(other.time_to_balance_seconds, 1)
    return (
        "**Design III** is Design II that moves a batch at a time when the group scales up or a "
        f"topic shrinks. In a scale-up the longest stop of one partition is "
        f"{against(*longest, 's')} of Design II, and the time to balance is "
        f"{against(*balance, 's')}."
    )


def _kip848(bounce: Runs) -> str:
    own = bounce["kip848"]
    moves = against(own.moved, bounce["deferred"].moved, "partitions moved")
    size = own.bytes_per_round / bounce["simple"].bytes_per_round
    return (
        f"**KIP-848** has no barrier: a rolling bounce is "
        f"{against(stopped(own), stopped(bounce['simple']), 's stopped')} of Design I. It does not "
        f"defer: {moves} of Design II. It needs {size:.1f} times Design I's bytes, because only "
        f"members whose partitions change name any."
    )


def extremes(runs: Runs) -> str:
    """Return the policies with the fewest and the most stopped seconds of a table."""
    most = max(stopped(r) for r in runs.values())
    names = [SHORT.get(p, p) for p, r in runs.items() if stopped(r) == most and p in POLICIES]
    least = min(stopped(runs[p]) for p in SHORT if p in runs)
    worst = f"the most, {most:g}, {listed(names)}" if names else f"the most are {most:g}"
    return f"The fewest stopped seconds, {least:g}, has {winners(runs)}; {worst}."

"""What a member that lies cannot do to the others: laws over the rounds of a group.

**Rules.**

- No partition has two honest owners; a leader never fails to plan.
- No deadline is above the configuration.
- No honest member is revoked without need in more than two rounds in a row. A member is revoked
  without need if it falls below its even share in a round in which all would keep more if the liar
  had said what is true, of the same topics.
- Honest members keep at least what Java's ``CooperativeStickyAssignor`` leaves them in the same
  round, of the same bytes. A round that Java cannot plan (it throws, so its group gets nothing)
  counts as one that leaves them nothing. A round in which all members, the liar with its undisputed
  claims among them, keep as much as in Java is a tie. A partition that Java gives to the liar
  although it does not subscribe to the topic has to go to another member, so that for each of them
  one fewer may be kept. Under Designs II and III a member that lists nothing and is handed what
  waited for it has a right to one of the larger shares, which Java leaves to a member that stayed:
  for each of them one fewer may be kept, if the lie is not the cause, so that as many would be kept
  if the liar had said what is true.
- One delay after the liar has left, everything is owned, evenly, and nothing moves or waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tests.hostile.group import ASSIGNORS, DELAY_MS, TOPICS, Round

from holdfast.machine.leader.designs import compute
from holdfast.model.partitions import Resource

MOST_IN_A_ROW = 2
DEFERRING = ("holdfast-deferred", "holdfast-incremental")


class KeptByJava(NamedTuple):
    """Partitions that honest members, and all members, keep of those that they list."""

    honest: int
    in_all: int
    unread: int = 0  # partitions that go to a member without a subscription to their topic


def broken_laws(
    rounds: Sequence[Round], kept_by_java: Sequence[KeptByJava] | None = None
) -> list[str]:
    """Each broken law once a round, with the number of the round."""
    broken: list[str] = []
    in_a_row: Counter[str] = Counter()
    for i, done in enumerate(rounds):
        broken += [f"round {i}: {text}" for text in _in_one(done)]
        needless = revoked_without_need(done)
        in_a_row = Counter({name: in_a_row[name] + 1 for name in needless})
        broken += [
            f"round {i}: {name} is revoked without need {n} times in a row"
            for name, n in in_a_row.items()
            if n > MOST_IN_A_ROW
        ]
        if kept_by_java is not None and i < len(kept_by_java) and _is_loss(done, kept_by_java[i]):
            broken.append(f"round {i}: honest keep {kept(done)}, Java {kept_by_java[i].honest}")
    return broken + [f"at the end: {text}" for text in _at_the_end(rounds[-1])]


def _is_loss(done: Round, java: KeptByJava) -> bool:
    """Whether honest members keep fewer than Java leaves them."""
    fewer = java.honest - java.unread - kept(done)
    if fewer <= 0 or kept(done) + done.kept_by_liar >= java.in_all:
        return False
    if done.request.protocol_name in DEFERRING and fewer <= done.n_handed:
        return kept(done) < kept_with_the_truth(done)
    return True


def _in_one(done: Round) -> list[str]:
    broken = []
    if done.failure is not None:
        broken.append(f"the leader cannot plan: {done.failure}")
    owned: set[Resource] = set()
    for name, own in done.after.items():
        if owned & own:
            broken.append(f"{name} and another own {min(owned & own)}")
        owned |= own
    if any(delay > DELAY_MS for delay in done.delays_ms):
        broken.append(f"a delay of {max(done.delays_ms)} ms")
    if len(done.delays_ms) > 1:
        broken.append(f"different delays: {sorted(done.delays_ms)}")
    return broken


def kept(done: Round) -> int:
    """Partitions that honest members go on with."""
    return sum(len(own & done.after[name]) for name, own in done.before.items())


def revoked_without_need(done: Round) -> list[str]:
    """Honest members that a lie costs partitions of their even share."""
    share = sum(TOPICS.values()) // len(done.truth.members)
    fewer = [
        name
        for name, own in done.before.items()
        if len(own & done.after[name]) < min(len(own), share)
    ]
    return fewer if fewer and kept(done) < kept_with_the_truth(done) else []


def kept_with_the_truth(done: Round) -> int:
    """Partitions that honest members would go on with if the liar had said what is true."""
    assignor = ASSIGNORS[done.request.protocol_name]
    total = 0
    for name, data in compute([assignor], done.truth).assignments:
        told = assignor.read(data)
        own = done.before.get(name, frozenset())
        total += len(own & told.assigned if told.absence_revokes else own - told.revoked)
    return total


def _at_the_end(done: Round) -> list[str]:
    loads = [len(own) for own in done.after.values()]
    broken = []
    if sum(loads) != sum(TOPICS.values()):
        broken.append(f"{sum(loads)} of {sum(TOPICS.values())} partitions are owned")
    if max(loads) - min(loads) > 1:
        broken.append(f"loads of {min(loads)} to {max(loads)}")
    if done.again or done.before != done.after or done.delays_ms > {0}:
        broken.append("the group is not at rest")
    return broken

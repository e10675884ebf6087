"""What a member that lies cannot do to the others: laws over the rounds of a group.

**Rules.**

- No partition has two honest owners; a leader never fails to plan.
- No deadline is above the configuration.
- No honest member is revoked without need in more than two rounds in a row. A member is revoked
  without need if it falls below its even share in a round in which all would keep more if the liar
  had said what is true, of the same topics.
- Honest members keep at least what Java's ``CooperativeStickyAssignor`` leaves them in the same
  round, of the same bytes. A round that Java cannot plan (it throws, so its group gets nothing)
  counts as one that leaves them nothing. Two kinds of partitions that Java leaves to somebody do
  not count, because no group can go on with them: those that it leaves to an honest member
  although another one claims them under the same generation, and as many as it leaves to members
  that do not subscribe to their topic.
- Where all members, the liar among them, keep as much as in Java, honest members may keep one
  fewer: of members with equal rights some have one partition more, and Java's choice is the order
  of a hash table. The same where the lie itself costs nothing, because they keep as much as if it
  had said what is true: balance comes first, and Java's plan may be less even by one.
- Under Designs II and III partitions wait for a departed member, and what waited goes back to a
  member. Where honest members keep fewer than in Java, Java is asked again: what waits is not
  there, and what came back is claimed by the member that has it now. Beside that answer they
  keep no fewer (a tie is one again). A lie may make the liar a member that is served from what
  others own, and not from what waits: beside what they would keep if it had said what is true,
  they keep at most its fair share less.
- Under lend what goes home moves, although Java leaves it where it is. Where honest members keep
  fewer than in Java, they keep no fewer than if the liar had said what is true. A tie is one
  again.
- A liar that always claims what departed members owned
  (:data:`tests.hostile.lies.HABITS`) gets no more of it than if it had said what is true. Where it
  always says that all is lent from it, honest members keep as much as if it had said what is true.
- One delay after the liar has left, everything is owned, evenly, and nothing moves or waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tests.hostile.group import ASSIGNORS, DELAY_MS, TOPICS, Round, read_as_leader
from tests.hostile.lies import LIAR

from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.designs import compute
from holdfast.core.model.partitions import Resource, grouped
from holdfast.core.wire.layouts.consumer_protocol import Subscription, encode_subscription

MOST_IN_A_ROW = 2
ONE = 1  # of members with equal rights some have one partition more
DEFERRING = ("holdfast-deferred", "holdfast-incremental")


class KeptByJava(NamedTuple):
    """Partitions of those that members list."""

    honest: int  # kept by honest members
    in_all: int  # kept by all members
    disputed: int  # kept by honest members, while others claim them under the same generation
    unread: int  # given to a member without a subscription to the topic


NOTHING_KEPT = KeptByJava(honest=0, in_all=0, disputed=0, unread=0)


class JavaRound(NamedTuple):
    """What Java is asked to plan."""

    members: Sequence[JoinedMember]
    absent: frozenset[Resource] = frozenset()


Java = Callable[[Sequence[JavaRound]], Sequence[KeptByJava]]


def broken_laws(
    rounds: Sequence[Round],
    kept_by_java: Sequence[KeptByJava] = (),
    java: Java | None = None,
) -> list[str]:
    """Each broken law once a round, with the number of the round.

    Parameters
    ----------
    rounds : sequence of Round
        Those of one group.
    kept_by_java : sequence of KeptByJava
        Java's answers to the first of these rounds; without it no round is compared.
    java : callable, optional
        Asks Java again.
    """
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
    for i, (done, answer) in enumerate(zip(rounds, kept_by_java, strict=False)):
        if (
            _is_fewer(done, answer, {})
            and not (java and _is_deferred(done, java))
            and not _costs_nothing(done, answer, {})
        ):
            broken.append(f"round {i}: honest keep {kept(done)}, {answer}")
    return broken + [f"at the end: {text}" for text in _at_the_end(rounds[-1])]


def _is_fewer(done: Round, java: KeptByJava, back: Mapping[str, frozenset[Resource]]) -> bool:
    """Whether honest members keep fewer than Java leaves them.

    What is ``back`` counts as kept by the member that has it now.
    """
    ours = kept(done) + sum(len(own) for name, own in back.items() if name != LIAR)
    fewer = java.honest - java.disputed - java.unread - ours
    in_all = ours + len((done.listed & done.given) | back.get(LIAR, frozenset()))
    return fewer > (ONE if in_all >= java.in_all else 0)


def _costs_nothing(done: Round, java: KeptByJava, back: Mapping[str, frozenset[Resource]]) -> bool:
    """Whether honest members keep one fewer than in Java, and would if nobody lied."""
    ours = kept(done) + sum(len(own) for name, own in back.items() if name != LIAR)
    return kept(done) >= kept_with_the_truth(done) and ours >= java.honest - ONE


def _is_deferred(done: Round, java: Java) -> bool:
    """Whether Java leaves no more to honest members when it is told what waits and what is back."""
    if done.name == "lend":
        return kept(done) >= kept_with_the_truth(done) - ONE
    if done.name not in DEFERRING:
        return False
    share = -(-sum(TOPICS.values()) // len(done.request.members))
    if kept(done) < kept_with_the_truth(done) - share:
        return False
    waits, back = deferred(done)
    (told,) = java([told_what_waits(done, waits, back)])
    return not _is_fewer(done, told, back) or _costs_nothing(done, told, back)


def deferred(done: Round) -> tuple[frozenset[Resource], dict[str, frozenset[Resource]]]:
    """What waits, and what came back to members that keep nothing of what they list.

    What nobody lists and nobody is given waits. What the liar lists counts if it claims the last
    generation.
    """
    said = read_as_leader(done.lie or b"")
    last = done.request.generation - 1
    listed = done.listed if said.generation == last else frozenset[Resource]()
    owners = {LIAR: listed, **done.before}
    unclaimed = frozenset((t, n) for t, count in TOPICS.items() for n in range(count))
    unclaimed = unclaimed.difference(*owners.values())
    after = {LIAR: done.given, **done.after}
    back = {name: unclaimed & own for name, own in after.items() if not own & owners[name]}
    return unclaimed.difference(*after.values()), {m: own for m, own in back.items() if own}


def told_what_waits(
    done: Round, waits: frozenset[Resource], back: Mapping[str, frozenset[Resource]]
) -> JavaRound:
    """The round without what waits, in which members claim what came back to them."""
    last = done.request.generation - 1
    members = []
    for m in done.request.members:
        metadata = m.metadata
        if own := back.get(m.member_id):
            said = read_as_leader(metadata)
            claim = Subscription(
                topics=said.topics, owned=grouped(sorted(own)), generation=last, rack=said.rack
            )
            metadata = encode_subscription(claim, version=3)
        members.append(replace(m, metadata=metadata))
    return JavaRound(members, waits)


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
    if done.lie and done.habit == "departed" and (n := taken_from_departed(done)):
        broken.append(f"{n} of departed members taken")
    if done.lie and done.habit == "homes" and (n := kept_with_the_truth(done) - kept(done)) > 0:
        broken.append(f"{n} taken as lent")
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
    assignor = ASSIGNORS[done.name]
    total = 0
    for name, data in compute([assignor], done.truth).assignments:
        told = assignor.read(data)
        own = done.before.get(name, frozenset())
        total += len(own & told.assigned if told.absence_revokes else own - told.revoked)
    return total


def taken_from_departed(done: Round) -> int:
    """Partitions of departed members that a lie gives to the liar, and the truth would not."""
    assignor = ASSIGNORS[done.name]
    told = dict(compute([assignor], done.truth).assignments).get(LIAR)
    with_the_truth = frozenset[Resource]() if told is None else assignor.read(told).assigned
    return max(0, len(done.given & done.gone) - len(with_the_truth & done.gone))


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

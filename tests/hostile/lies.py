"""A grammar of lies: subscriptions that one member sends, drawn from a seed.

**Rules.** A lie is a function of the generator and of what the member may know: the topics, the
generation of the last round, who owned what, its own last assignment. What it knows is more than a
real member would. Sizes are drawn by their logarithm, up to the size of the largest message.

**Strategy.** A message is noise, or made and then perhaps cut or bent. What is made has topics,
claims, a generation and user data, in which a share of the memory may be forged; each part has its
own productions below. A *habit* fixes some of the parts for several rounds, because constant bytes,
and a victim that changes from round to round, do more harm than noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from holdfast.core.machine.leader.ring import RoundMemory, identity_of, shares
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.model.limits import INT32_MAX
from holdfast.core.model.partitions import Resource, TopicPartitions, merge_topics
from holdfast.core.wire.layouts.consumer_protocol import Subscription, encode_subscription
from holdfast.core.wire.layouts.container import MemberSubscription, encode_member_subscription
from holdfast.core.wire.layouts.frames import Leaving
from holdfast.core.wire.layouts.memory import COPIES, RememberedMember
from holdfast.core.wire.layouts.sticky_user_data import (
    StickyUserData,
    encode_cooperative_user_data,
    encode_sticky_user_data,
)

Chance = np.random.Generator
LIAR = "m10-liar"
DEPARTED = "what departed members owned"
MADE = {"message": "made", "topics": "real", "generation": "last", "user data": "frame"}
HABITS: Mapping[str, Mapping[str, str]] = {
    "": {},
    "departed": {**MADE, "claims": DEPARTED, "memory": "as it came"},
    "homes": {**MADE, "claims": "its own", "memory": "homes"},
}
"""What a liar may do always: claim what departed members owned, or say that all is lent from it.

No draw chooses one of them, so seeds stay what they are.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the lying member knows when it writes a subscription."""

    partitions: Mapping[str, int]
    generation: int  # of the last round
    owners: Mapping[str, frozenset[Resource]]  # of the honest members
    mine: frozenset[Resource]  # what its last assignment gave it
    memory: bytes | None  # as it came with that assignment
    delay_ms: int  # of the configuration
    gone: frozenset[Resource] = frozenset()  # what members that are away owned


@dataclass(slots=True)
class Liar:
    """A member that lies; its habit changes every few rounds.

    Parameters
    ----------
    chance : numpy.random.Generator
        Decides everything.
    largest : int
        Bytes of the largest message.
    always : mapping of str to str
        A habit that never changes, for one lie in its general form.
    """

    chance: Chance
    largest: int = 1 << 16
    always: Mapping[str, str] = field(default_factory=dict)
    habit: Mapping[str, str] = field(default_factory=dict)
    rounds_left: int = 0
    constant: bytes | None = None

    def subscription(self, known: Known) -> bytes:
        """The bytes of the next round."""
        if not self.rounds_left:
            self._choose_habit()
        self.rounds_left -= 1
        if self.constant is not None:
            return self.constant
        data = self._message(known)
        if self.habit.get("all") == "constant":
            self.constant = data
        return data[: self.largest]

    def _choose_habit(self) -> None:
        rng = self.chance
        self.rounds_left = int(rng.integers(1, 12))
        self.constant = None
        if self.always:
            self.habit = self.always
            return
        self.habit = {"all": _pick(rng, "free", "free", "constant", "fixed")}
        if self.habit["all"] == "fixed":
            self.habit = {
                "all": "fixed",
                "message": "made",
                "topics": "real",
                "claims": _pick(rng, *CLAIMS),
                "generation": _pick(rng, "last", "last", *GENERATIONS),
            }

    def _message(self, known: Known) -> bytes:
        kind = self._of("message", "made", "made", "made", "made", "cut", "bent", "noise")
        if kind == "noise":
            return self.chance.bytes(self._size())
        data = self._made(known)
        if kind == "cut":
            return data[: int(self.chance.integers(0, len(data) + 1))]
        if kind == "bent":
            bent = bytearray(data)
            for _ in range(int(self.chance.integers(1, 5))):
                bent[int(self.chance.integers(0, len(bent)))] = int(self.chance.integers(0, 256))
            return bytes(bent)
        return data

    def _made(self, known: Known) -> bytes:
        topics = TOPICS[self._of("topics", "real", "real", "real", *TOPICS)](self, known)
        claims = self._of("claims", *CLAIMS)
        owned = _departed(known) if claims == DEPARTED else CLAIMS[claims](self, known)
        generation = GENERATIONS[self._of("generation", *GENERATIONS)](self, known)
        user_data = self._of(
            "user data", "frame", "frame", "frame", "none", "java", "sticky", "noise"
        )
        if user_data == "frame":
            return self._framed(known, topics, owned, generation)
        data = None
        if user_data == "java":
            data = encode_cooperative_user_data(generation)
        elif user_data == "sticky":
            claims = CLAIMS[_pick(self.chance, *CLAIMS)](self, known)
            data = encode_sticky_user_data(StickyUserData(partitions=claims, generation=generation))
        elif user_data == "noise":
            data = self.chance.bytes(self._size())
        version = int(_pick(self.chance, 0, 1, 2, 3, 3, 3, 3))
        value = Subscription(
            topics=topics, user_data=data, owned=owned, generation=generation, rack=self._rack()
        )
        return encode_subscription(value, version)

    def _framed(
        self, known: Known, topics: tuple[str, ...], owned: TopicPartitions, generation: int
    ) -> bytes:
        rng = self.chance
        named = tuple((t, tuple(n for n in ns if n >= 0)) for t, ns in self._given_up(known))
        rack, nonce = self._rack(), int(rng.integers(0, 2**32))
        leaving = _pick(rng, *Leaving, Leaving.STAYS, Leaving.STAYS)
        rng.integers(0, 4)  # says nothing; a seed stays the lie that it is
        return encode_member_subscription(
            MemberSubscription(
                topics=topics,
                owned=owned,
                generation=generation,
                rack=rack,
                nonce=nonce,
                leaving=leaving,
                memory_age_ms=int(_pick(rng, 0, 0, 1, known.delay_ms, INT32_MAX)),
                given_up=named,
                memory=self._memory(known),
            )
        )

    def _given_up(self, known: Known) -> TopicPartitions:
        return CLAIMS[_pick(self.chance, "nothing", "nothing", *CLAIMS)](self, known)

    def _memory(self, known: Known) -> bytes | None:
        rng, mine = self.chance, known.memory or b""
        kind = self._of("memory", "none", "as it came", "bent", "forged", "forged", "noise")
        if kind == "none":
            return None
        if kind == "as it came":
            return known.memory
        if kind == "bent" and mine:
            bent = bytearray(mine)
            bent[int(rng.integers(0, len(bent)))] = int(rng.integers(0, 256))
            return bytes(bent)
        if kind == "forged":
            return self._forged(known)
        if kind == "homes":
            return self._homes(known)
        return rng.bytes(self._size())

    def _forged(self, known: Known) -> bytes:
        """A share with ghosts, with honest members that own other things, with long delays."""
        rng = self.chance
        ghosts = [f"ghost-{i}" for i in range(int(_pick(rng, 1, 3, 30, 300)))]
        present = [m for m in sorted(known.owners) if rng.random() < 0.5]
        members = tuple(
            SubscribedMember(
                member_id=name,
                instance_id=name if rng.random() < 0.3 else None,
                subscription=MemberSubscription(topics=()),
            )
            for name in (*ghosts, *present, LIAR)
        )
        waiting = tuple(
            RememberedMember(
                identity=identity_of(m),
                static=m.instance_id is not None,
                delay_ms=int(_pick(rng, 1, known.delay_ms, INT32_MAX)),
                owned=self._some_claims(known),
            )
            for m in members
            if rng.random() < 0.3
        )
        generation = GENERATIONS[_pick(rng, "last", *GENERATIONS)](self, known)
        leader_id = _pick(rng, LIAR, ghosts[0])
        owned = {m.member_id: self._some_claims(known) for m in members}
        forged = RoundMemory(
            generation=max(0, generation),
            leader_id=leader_id,
            members=members,
            owned={name: owned[name] for name in _before_the_liar(members)},
            waiting=waiting,
            pace_ms=int(_pick(rng, 0, 1, known.delay_ms, INT32_MAX)),
        )
        return shares(forged)[LIAR]

    def _homes(self, known: Known) -> bytes:
        """A share by which all that honest members own is lent from the liar."""
        members = tuple(
            SubscribedMember(member_id=name, subscription=MemberSubscription(topics=()))
            for name in (*sorted(known.owners), LIAR)
        )
        home = RememberedMember(
            identity=identity_of(members[-1]),
            delay_ms=known.delay_ms,
            owned=_grouped(frozenset[Resource]().union(*known.owners.values())),
        )
        forged = RoundMemory(
            generation=known.generation,
            leader_id=LIAR,
            members=members,
            owned={name: _grouped(own) for name, own in known.owners.items() if own},
            waiting=(home,),
        )
        return shares(forged)[LIAR]

    def _some_claims(self, known: Known) -> TopicPartitions:
        return CLAIMS[_pick(self.chance, "nothing", "some", "victim", "all")](self, known)

    def _rack(self) -> str | None:
        return _pick(self.chance, None, None, "", "r", "x" * 300)

    def _of(self, part: str, *kinds: str) -> str:
        """The habit's production of a part, else any."""
        return self.habit.get(part) or _pick(self.chance, *kinds)

    def _size(self) -> int:
        return int(np.exp(self.chance.uniform(0, np.log(self.largest * 0.9))))


def _before_the_liar(members: Sequence[SubscribedMember]) -> list[str]:
    """The members that a share of the liar names; the others' shares are not asked for."""
    ring = sorted(members, key=lambda m: (identity_of(m), m.member_id))
    at = next(i for i, m in enumerate(ring) if m.member_id == LIAR)
    return [ring[at - back].member_id for back in range(1, min(COPIES, len(ring) - 1) + 1)]


def _pick(rng: Chance, *values):
    return values[int(rng.integers(0, len(values)))]


def _all(liar: Liar, known: Known) -> TopicPartitions:
    return tuple((topic, tuple(range(n))) for topic, n in known.partitions.items())


def _some(liar: Liar, known: Known) -> TopicPartitions:
    share = liar.chance.random()
    return tuple(
        (topic, tuple(np.flatnonzero(liar.chance.random(n) < share).tolist()))
        for topic, n in known.partitions.items()
    )


def _grouped(resources: frozenset[Resource]) -> TopicPartitions:
    return merge_topics((topic, (number,)) for topic, number in sorted(resources))


def _victim(liar: Liar, known: Known) -> TopicPartitions:
    return _grouped(known.owners[_pick(liar.chance, *sorted(known.owners))])


def _departed(known: Known) -> TopicPartitions:
    """What the liar owns, and what members that are away owned."""
    return _grouped(known.mine | known.gone)


def _one_each(liar: Liar, known: Known) -> TopicPartitions:
    first = [min(own) for _, own in sorted(known.owners.items()) if own]
    return _grouped(frozenset(first))


def _out_of_range(liar: Liar, known: Known) -> TopicPartitions:
    odd = (-1, 0, 0, 10**6, INT32_MAX, -(2**31))
    return tuple((topic, odd) for topic in known.partitions)


def _many(liar: Liar, known: Known) -> TopicPartitions:
    topic = _pick(liar.chance, *known.partitions, "no such topic")
    return ((topic, tuple(range(liar._size() // 4))),)


def _sparse(liar: Liar, known: Known) -> TopicPartitions:
    return tuple((f"z{i}", (16_383,)) for i in range(min(2_000, liar._size() // 14)))


def _repeated(liar: Liar, known: Known) -> TopicPartitions:
    topic, n = _pick(liar.chance, *known.partitions.items())
    return ((topic, tuple(range(n)) * max(1, min(50, liar._size() // (4 * n + 8)))),)


CLAIMS: Mapping[str, Callable[[Liar, Known], TopicPartitions]] = {
    "nothing": lambda liar, known: (),
    "its own": lambda liar, known: _grouped(known.mine),
    "all": _all,
    "some": _some,
    "victim": _victim,
    "one of each": _one_each,
    "out of range": _out_of_range,
    "many": _many,
    "sparse": _sparse,
    "repeated": _repeated,
}

GENERATIONS: Mapping[str, Callable[[Liar, Known], int]] = {
    "last": lambda liar, known: known.generation,
    "older": lambda liar, known: max(0, known.generation - int(liar.chance.integers(1, 9))),
    "this": lambda liar, known: known.generation + 1,
    "next": lambda liar, known: known.generation + 2,
    "highest": lambda liar, known: INT32_MAX,
    "none": lambda liar, known: -1,
    "negative": lambda liar, known: -7,
    "any": lambda liar, known: int(liar.chance.integers(0, INT32_MAX)),
}


def _names(liar: Liar, known: Known) -> tuple[str, ...]:
    return tuple(f"u{i}" for i in range(min(2_000, max(1, liar._size() // 8))))


TOPICS: Mapping[str, Callable[[Liar, Known], tuple[str, ...]]] = {
    "real": lambda liar, known: tuple(known.partitions),
    "none": lambda liar, known: (),
    "one": lambda liar, known: (_pick(liar.chance, *known.partitions),),
    "unknown": lambda liar, known: (*known.partitions, "no such topic"),
    "repeated": lambda liar, known: tuple(known.partitions) * 3,
    "many": _names,
    "long": lambda liar, known: (*known.partitions, "y" * min(30_000, liar._size())),
}

"""A group of honest members and one that lies, round by round, without network and time-outs.

**Rules.** Honest members do what assignments say and report what they own, through the assignor's
own half for members. The leader is an honest member. It keeps what :class:`~holdfast.members.
member.host.MemberHost` keeps from round to round. Some rounds a member leaves, comes back, or
starts anew under its static name, so that partitions move and wait.

**Strategy.** A :class:`Round` has all that the laws of :mod:`tests.hostile.laws` speak about; a
group never judges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from tests.hostile.lies import HABITS, LIAR, Known, Liar

from holdfast.core.machine.actions import ComputeAssignment, LedRound
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.designs import (
    Assignor,
    CooperativeAssignor,
    DesignAssignor,
    compute,
    led_round,
    named_in_round,
)
from holdfast.core.machine.leader.embedded import Instruction, MemberView
from holdfast.core.machine.leader.oversized import with_what_exists
from holdfast.core.machine.leader.places import digest_of
from holdfast.core.machine.leader.subscriptions import read_subscribed_member
from holdfast.core.machine.policy import Policy
from holdfast.core.model.designs import Design
from holdfast.core.model.partitions import Resource, resources_of
from holdfast.core.wire.layouts.consumer_protocol import Subscription, decode_subscription
from holdfast.core.wire.layouts.sticky_user_data import read_claims
from holdfast.errors import WireError

N_HONEST = 20
N_LYING = 50
DELAY_MS = 30_000
NOTHING = Instruction(assigned=frozenset())
TOPICS = {"clicks": 60, "orders": 121, "t": 20}


def policy(design: Design, *, lends: bool = False) -> Policy:
    return Policy(design=design, lends=lends, delay_ms=DELAY_MS, batch=3, interval_ms=5_000)


ASSIGNORS: dict[str, Assignor] = {
    "cooperative-sticky": CooperativeAssignor(),
    "holdfast-simple": DesignAssignor(policy(Design.SIMPLE)),
    "holdfast-deferred": DesignAssignor(policy(Design.DEFERRED)),
    "holdfast-incremental": DesignAssignor(policy(Design.INCREMENTAL)),
    "lend": DesignAssignor(policy(Design.DEFERRED, lends=True)),
}
"""By protocol; ``lend`` is a policy under the protocol of Design II."""

REMEMBERING = tuple(
    name for name, a in ASSIGNORS.items() if isinstance(a, DesignAssignor) and a.policy.remembers
)
"""Those whose members carry a memory, which says what departed members owned."""


@dataclass(slots=True)
class Honest:
    """An honest member between two rounds."""

    name: str
    instance_id: str | None = None
    owned: frozenset[Resource] = frozenset()
    generation: int = -1
    told: Instruction = NOTHING
    told_ms: int = 0
    nonce: int = 0
    place: bytes = b""

    def view(self, now_ms: int) -> MemberView:
        """What goes into its subscription."""
        self.nonce += 1
        return MemberView(
            topics=tuple(TOPICS),
            owned=tuple(sorted(self.owned)),
            previous=(),
            generation=self.generation,
            nonce=self.nonce,
            given_up=tuple(sorted(self.told.revoked)),
            memory=self.told.memory,
            memory_age_ms=now_ms - self.told_ms,
            place=self.place,
        )

    def obey(self, told: Instruction, generation: int, now_ms: int) -> None:
        """Own what the assignment says."""
        kept = frozenset[Resource]() if told.absence_revokes else self.owned - told.revoked
        self.owned, self.generation = kept | told.assigned, generation
        self.told, self.told_ms = told, now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round, as an observer sees it: honest members by name, before and after."""

    name: str  # of the group's assignor
    habit: str  # of the liar
    request: ComputeAssignment
    before: dict[str, frozenset[Resource]]
    after: dict[str, frozenset[Resource]]
    delays_ms: frozenset[int]
    again: bool
    failure: str | None
    lie: bytes | None
    listed: frozenset[Resource]  # by the liar
    given: frozenset[Resource]  # to the liar
    gone: frozenset[Resource]  # what members that are away owned
    truth: ComputeAssignment  # the same, if the liar said what is true (and wanted the same topics)


@dataclass(slots=True)
class HostileGroup:
    """The group.

    Parameters
    ----------
    name : str
        That of all members' assignor in :data:`ASSIGNORS`.
    seed : int
        Of the lies and of the honest members' coming and going.
    habit : str
        What the liar does always: one of :data:`tests.hostile.lies.HABITS`.
    """

    name: str
    seed: int
    largest: int = 1 << 16
    habit: str = ""
    step_ms: int = 3_000  # from one round to the next, unless a delay ends before
    members: dict[str, Honest] = field(default_factory=dict)
    away: list[tuple[int, Honest]] = field(default_factory=list)
    now_ms: int = 0
    generation: int = 0
    leader: str = ""
    led: LedRound | None = None
    given: Instruction = NOTHING
    n_started: int = 0

    @property
    def assignor(self) -> Assignor:
        return ASSIGNORS[self.name]

    def run(self) -> Iterator[Round]:
        """Settle; lie for 50 rounds; then the liar leaves, and one delay passes."""
        rng = np.random.default_rng(self.seed)
        liar = Liar(np.random.default_rng([self.seed, 1]), self.largest, HABITS[self.habit])
        self._begin_settled()
        for i in range(N_LYING):
            self._come_and_go(rng, i)
            yield self.round(liar)
        for _, member in self.away:
            self.members[member.name] = member
        self.away.clear()
        until_ms = self.now_ms + DELAY_MS
        self.step_ms = DELAY_MS // 3
        while self.now_ms <= until_ms:
            yield self.round(None)
        for _ in range(120):
            done = self.round(None)
            yield done
            if _at_rest(done):
                return

    def _begin_settled(self) -> None:
        """Twenty members that own everything evenly; no chance is in it."""
        rest = _settled(self.name)
        self.members = {name: replace(m) for name, m in rest.members.items()}
        self.now_ms, self.generation = rest.now_ms, rest.generation
        self.leader, self.led, self.n_started = rest.leader, rest.led, rest.n_started

    def settle(self) -> None:
        """Start twenty members and wait until nothing moves; under lend each has a place."""
        lends = self.name == "lend"
        places = [digest_of(f"home {i}") if lends else b"" for i in range(N_HONEST)]
        for i in range(N_HONEST):
            self._start(f"i{i}" if i % 3 == 0 else None, places[i])
        for _ in range(60):
            if _at_rest(self.round(None)):
                return

    def _start(self, instance_id: str | None, place: bytes = b"") -> Honest:
        self.n_started += 1
        name = f"m{self.n_started:02}"
        member = self.members[name] = Honest(name, instance_id, place=place)
        return member

    def _come_and_go(self, rng: np.random.Generator, i: int) -> None:
        for back, member in self.away[:]:
            if back <= i:
                self.away.remove((back, member))
                self._start(member.instance_id, member.place)
        if rng.random() < 0.15:
            gone = sorted(self.members)[int(rng.integers(0, len(self.members)))]
            if gone != self.leader or rng.random() < 0.3:
                self.away.append((i + int(rng.integers(1, 6)), self.members.pop(gone)))

    def round(self, liar: Liar | None) -> Round:
        """One JoinGroup and SyncGroup of everybody."""
        known = self._known()
        lie = None if liar is None else liar.subscription(known)
        before = {m.name: m.owned for m in self.members.values()}
        listed = _listed(lie or b"", self.assignor.name == "cooperative-sticky")
        truth = None if lie is None else self.truth(lie)
        request = self.request(lie)
        named = named_in_round(request)
        request = replace(request, partitions=tuple((t, TOPICS[t]) for t in named if t in TOPICS))
        done = compute([self.assignor], request)
        self.generation = request.generation
        self.led, self.leader = led_round(request, done), request.member_id
        told = {m: self.assignor.read(data) for m, data in done.assignments}
        self.given = told.pop(LIAR, self.given)
        for name, instruction in told.items():
            self.members[name].obey(instruction, self.generation, self.now_ms)
        delays = frozenset(t.delay_ms for t in told.values())
        again = any(t.again for t in told.values())
        members = (*request.members[: len(self.members)],)
        if truth is not None:
            members += (JoinedMember(member_id=LIAR, metadata=truth),)
        self.now_ms += 100 if again else min([self.step_ms, *(d for d in delays if d)])
        return Round(
            name=self.name,
            habit=self.habit,
            request=request,
            before=before,
            after={m.name: m.owned for m in self.members.values()},
            delays_ms=delays,
            again=again,
            failure=done.failure,
            lie=lie,
            listed=listed,
            given=frozenset() if lie is None else self.given.assigned,
            gone=known.gone,
            truth=replace(request, members=members),
        )

    def truth(self, lie: bytes) -> bytes:
        """What an honest member would have said in the liar's place.

        It was in the last round, unless the liar is new, and owns what it was given.
        """
        said = read_as_leader(lie)
        topics = tuple(sorted({t for t in said.topics if t in TOPICS}))
        owned = frozenset(r for r in self.given.assigned if r[0] in topics)
        return self.assignor.subscribe(
            MemberView(
                topics=topics,
                owned=tuple(sorted(owned)),
                previous=(),
                generation=-1 if self.given is NOTHING else self.generation,
                memory=self.given.memory,
            )
        )

    def request(self, lie: bytes | None) -> ComputeAssignment:
        """What the leader is asked to plan, if the liar sends ``lie`` (None: it is not there)."""
        joined = [
            JoinedMember(
                member_id=m.name,
                instance_id=m.instance_id,
                metadata=self.assignor.subscribe(m.view(self.now_ms)),
            )
            for m in self.members.values()
        ]
        if lie is not None:
            joined.append(JoinedMember(member_id=LIAR, metadata=lie))
        same = self.leader in self.members
        leader = self.leader if same else min(self.members)
        return ComputeAssignment(
            token=0,
            generation=self.generation + 1,
            protocol_name=self.assignor.name,
            members=tuple(joined),
            partitions=(),
            member_id=leader,
            waited_ms=0,
            unbroken=self.members[leader].generation == self.generation,
            led=self.led if same else None,
        )

    def _known(self) -> Known:
        return Known(
            partitions=TOPICS,
            generation=self.generation,
            owners={m.name: m.owned for m in self.members.values()},
            mine=self.given.assigned,
            memory=self.given.memory,
            delay_ms=DELAY_MS,
            gone=frozenset[Resource]().union(*(m.owned for _, m in self.away)),
        )


@cache
def _settled(name: str) -> HostileGroup:
    group = HostileGroup(name, 0)
    group.settle()
    return group


def read_as_leader(metadata: bytes) -> Subscription:
    """What a leader reads of the liar.

    It reads a large message without the names of topics that do not exist, which may be no UTF-8.
    """
    return read_subscribed_member(LIAR, None, _what_exists(metadata)).subscription


def _what_exists(metadata: bytes) -> bytes:
    (read,) = with_what_exists((JoinedMember(member_id=LIAR, metadata=metadata),), TOPICS)
    return read.metadata


def _listed(lie: bytes, in_user_data: bool) -> frozenset[Resource]:
    """What the liar lists, as its leader reads it; a cooperative one reads an eager member too."""
    said = read_as_leader(lie)
    if said.owned or not in_user_data:
        return resources_of(said.owned)
    try:
        claims = read_claims(decode_subscription(_what_exists(lie)), cooperative=False)
    except WireError:
        return frozenset()
    return resources_of(claims.partitions)


def _at_rest(done: Round) -> bool:
    quiet = not done.again and done.before == done.after and done.delays_ms <= {0}
    return quiet and sum(map(len, done.after.values())) == sum(TOPICS.values())

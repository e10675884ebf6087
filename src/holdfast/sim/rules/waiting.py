"""Which resources wait for which absent member, how long: rules D1 to D8, L5 and L6, over a run.

**Rules.**

- The checker keeps its own clock of every loss. A loss begins with the first round in which the
  resource is neither claimed nor assigned.
- A promise is the remaining time in the leader's memory. It is compared with that clock in the
  round that makes it. So a deadline that is restarted is found in the round that restarts it, and
  not only when it is overdue.
- The clocks of two processes have different origins in a world. A promise that is longer than the
  policy's delay is therefore a time of another process's clock (D7).

**Strategy.** One entry per waiting resource. The leader's memory names the absent members; times
come from the checker's own clock.

References: Incremental Cooperative Rebalancing, Design II.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.machine.leader.deferral import FIRST_MEMBERS, OWNERS_NOT_NAMED
from holdfast.machine.policy import Policy, When
from holdfast.model.partitions import Resource, resources_of
from holdfast.sim.rules.seen import Seen, SeenTurn, newest_memory, union
from holdfast.sim.world.ledger import Ledger
from holdfast.wire.layouts.frames import Leaving
from holdfast.wire.layouts.memory import Memory, read_memory

EARLY_MS = 1_000  # so long before its deadline a resource may be handed out
SLACK_MS = 90_000  # one rebalance that waits for a silent member, and detection


@dataclass(slots=True)
class Loss:
    """A resource that waits: since when, which members were there, and which one led."""

    since_ms: int
    present: frozenset[str]
    leader_id: str


@dataclass(frozen=True, slots=True)
class Owed:
    """The absent member that a resource waits for, and how long still."""

    member_id: str
    instance_id: str | None
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class Moment:
    """One round beside what the newest memory says."""

    turn: SeenTurn
    policy: Policy
    memory: Memory | None
    owed: Mapping[Resource, Owed]
    now_ms: int


@dataclass(slots=True)
class WaitingRules:
    """Follows the rounds of one run.

    Parameters
    ----------
    delay_ms : int
        The policy's delay, 0 none.
    slack_ms : int
        By how much a deadline may be missed: rounds wait for silent members.
    """

    ledger: Ledger
    delay_ms: int
    slack_ms: int = SLACK_MS
    losses: dict[Resource, Loss] = field(default_factory=dict)

    def check(self, turn: SeenTurn, policy: Policy, now_ms: int) -> None:
        """Take one round that has effect."""
        text = newest_memory((s.subscription for s in turn.members), turn.generation)
        memory = read_memory(text)
        at = Moment(turn, policy, memory, _owed(text, turn), now_ms)
        self._ended(at)
        unclaimed = turn.all_resources() - turn.claimed
        unassigned = sorted(unclaimed - turn.after)
        known = _known(at) if unassigned else None
        for resource in unassigned:
            self._unassigned(resource, at, known)
        self._returned(at)
        if memory is not None and policy.defers:
            self._newcomer(at, frozenset(m.member_id for m in memory.members))
        self._promises(at)

    # What waited and does no more

    def _ended(self, at: Moment) -> None:
        """What waits for an absent member goes to no member that was there at the loss (D1).

        One exception: newcomers have taken the absent member's place (:func:`_places_taken`), so
        the group waits for nobody any more. What is left of the absent member's resources may then
        go to a member that ends with no more than the least loaded of these newcomers.
        """
        turn = at.turn
        instances = {s.member.instance_id for s in turn.members} - {None}
        if not self.losses:
            return
        asked = at.owed.keys() | self.losses.keys()
        owner = {r: s.name for s in turn.members for r in s.after & asked}
        places = _places_taken(at, owner)
        for resource, loss in list(self.losses.items()):
            taken = resource in turn.claimed or resource in turn.after
            if turn.exists(resource) and not taken:
                continue
            del self.losses[resource]
            absent = at.owed.get(resource)
            if absent is None or absent.remaining_ms <= EARLY_MS:
                continue
            back = absent.member_id in turn.present or absent.instance_id in instances
            receiver = owner.get(resource, "")
            if back or receiver not in loss.present:
                continue
            new = places.get(absent.member_id)
            if new is None or _load(receiver, at, resource) > min(
                _load(name, at, resource) for name in new
            ):
                text = f"{resource} waits for {absent.member_id}, goes to {receiver}"
                self.ledger.fail("D1", at.now_ms, text)

    # What is not handed out

    def _unassigned(self, resource: Resource, at: Moment, known: Known | None) -> None:
        """Check that only lost resources wait (D3, D4), and no longer than their delay (L5, L6)."""
        turn, now_ms = at.turn, at.now_ms
        if not at.policy.defers:
            text = f"{resource} is claimed by nobody and assigned to nobody"
            self.ledger.fail("L1", now_ms, text)
            return
        rule = _at_once(resource, at, known)
        if rule is not None:
            self.ledger.fail(rule, now_ms, f"{resource} was not lost and is not assigned")
        loss = self.losses.get(resource)
        if loss is None or resource not in at.owed:
            was_here = {m.member_id for m in at.memory.members} if at.memory else turn.present
            present = turn.present & frozenset(was_here)
            self.losses[resource] = Loss(now_ms, present, turn.leader_id)
        elif now_ms > loss.since_ms + self.delay_ms + self.slack_ms:
            text = f"{resource} waits {now_ms - loss.since_ms} ms of {self.delay_ms}"
            self.ledger.fail(_late(loss, turn), now_ms, text)

    def _promises(self, at: Moment) -> None:
        """What the new memory says about deadlines (D7, D8, L5, L6)."""
        policy, turn, now_ms = at.policy, at.turn, at.now_ms
        at_once = policy.clean_leave is When.IMMEDIATE
        leaves = {s.name for s in turn.members if s.subscription.leaving is Leaving.FOR_GOOD}
        texts = sorted({s.assignment.memory for s in turn.members if s.assignment.memory})
        for memory in map(read_memory, texts):
            for m in () if memory is None else memory.members:
                if not m.delay_ms:
                    continue
                if m.delay_ms > policy.delay_ms:
                    text = f"{m.delay_ms} ms are left of {policy.delay_ms} for {m.member_id}"
                    self.ledger.fail("D7", now_ms, text)
                if m.member_id in leaves and at_once:
                    text = f"{m.member_id} leaves for good, and {m.delay_ms} ms are waited for it"
                    self.ledger.fail("D8", now_ms, text)
                for resource in sorted(resources_of(m.owned)):
                    self._promise(resource, m.delay_ms, at)

    def _promise(self, resource: Resource, left_ms: int, at: Moment) -> None:
        loss = self.losses.get(resource)
        if loss is None:
            return
        late_ms = at.now_ms + left_ms - (loss.since_ms + self.delay_ms)
        if late_ms > self.slack_ms:
            text = f"{resource} is to wait {late_ms} ms longer than {self.delay_ms}"
            self.ledger.fail(_late(loss, at.turn), at.now_ms, text)

    # Who is served

    def _returned(self, at: Moment) -> None:
        """A member that is back by identity gets all that waited (D2)."""
        claimed = at.turn.claimed
        for m in at.memory.members if at.memory is not None else ():
            if m.instance_id is None or not m.delay_ms:
                continue
            for s in at.turn.members:
                if s.member.instance_id != m.instance_id or not s.stays:
                    continue
                waited = _fitting(resources_of(m.owned) - claimed, s, at.turn)
                if not waited <= s.after:
                    text = f"{m.instance_id} is back and does not get {min(waited - s.after)}"
                    self.ledger.fail("D2", at.now_ms, text)

    def _newcomer(self, at: Moment, known: frozenset[str]) -> None:
        """One newcomer, one member gone, equal subscriptions: the newcomer is served first (D2)."""
        turn = at.turn
        new = [s for s in turn.members if s.name not in known]
        gone = {w for r, w in at.owed.items() if turn.exists(r)}
        equal = len({s.subscription.topics for s in turn.members}) == 1
        if len(new) != 1 or len(gone) != 1 or not equal:
            return
        (s,), (absent,) = new, gone
        alone = absent.instance_id is None and absent.member_id not in {
            *turn.present,
            FIRST_MEMBERS,
        }
        if s.claims or s.subscription.leaving is not Leaving.STAYS or not alone:
            return
        waited = _fitting(frozenset(at.owed) - turn.claimed, s, turn)
        if absent.remaining_ms <= EARLY_MS or not waited:
            return
        fair = len(turn.all_resources()) // len(turn.members)
        given = waited & s.after
        if not given or (len(waited) <= fair and waited > given):
            text = f"{s.name} comes empty-handed and gets {len(given)} of {len(waited)} that wait"
            self.ledger.fail("D2", at.now_ms, text)


def _late(loss: Loss, turn: SeenTurn) -> str:
    """The rule for what is late: L6 if another member leads than at the loss, else L5."""
    return "L5" if loss.leader_id == turn.leader_id else "L6"


@dataclass(frozen=True, slots=True)
class Known:
    """The memory's entries about resources that no member claims."""

    given_up: frozenset[Resource]
    owned: frozenset[Resource]
    topics: frozenset[str]
    unnamed: bool


def _known(at: Moment) -> Known | None:
    memory = at.memory
    if memory is None:
        return None
    owned = union(resources_of(m.owned) for m in memory.members)
    return Known(
        given_up=resources_of(memory.given_up)
        | union(resources_of(s.subscription.given_up) for s in at.turn.members),
        owned=owned,
        topics=frozenset(topic for topic, _ in owned),
        unnamed=any(m.member_id == OWNERS_NOT_NAMED for m in memory.members),
    )


def _at_once(resource: Resource, at: Moment, known: Known | None) -> str | None:
    """The rule by which a resource must be assigned now; None if it may be a loss that waits."""
    if known is None:
        new_group = at.policy.first_member is When.IMMEDIATE and not at.turn.claimed
        return "D4" if new_group else None
    if resource in known.given_up:
        return "D4"
    if not known.owned or known.unnamed or resource in known.owned:
        return None
    return "D4" if resource[0] in known.topics else "D3"


def _places_taken(at: Moment, owner: Mapping[Resource, str]) -> dict[str, frozenset[str]]:
    """Absent member -> the newcomers that took its place, where all it owned is handed out.

    A newcomer is a member without claims that the memory does not name. Newcomers take the place of
    an absent member in one of two ways. They received some of its resources; or, if no newcomer
    received any, one newcomer that took nobody else's place stands for it, whatever it received.

    For example, d and e died, and f and g join. f gets a resource of d: f has d's place. g gets
    new partitions only, and e's resources went to others: g has e's place.
    """
    memory = at.memory
    if memory is None:
        return {}
    known = {m.member_id for m in memory.members}
    new = {s.name: s for s in at.turn.members if not s.claims and s.name not in known}
    owed = {r: w.member_id for r, w in sorted(at.owed.items()) if at.turn.exists(r)}
    waits = {absent for r, absent in owed.items() if r not in owner}
    places: dict[str, frozenset[str]] = {}
    for resource, absent in owed.items():
        if owner.get(resource) in new and absent not in waits:
            places[absent] = places.get(absent, frozenset()) | {owner[resource]}
    spare = sorted(new.keys() - set().union(*places.values()))
    for resource, absent in owed.items():
        fit = [name for name in spare if resource[0] in new[name].subscription.topics]
        if fit and absent not in waits | places.keys():
            places[absent] = frozenset(fit[:1])
            spare.remove(fit[0])
    return places


def _load(name: str, at: Moment, resource: Resource) -> int:
    """How many resources a member has after the round; only of one kind if kinds are isolated."""
    (after,) = (s.after for s in at.turn.members if s.name == name)
    return sum(not at.policy.isolate or kind == resource[0] for kind, _ in after)


def _fitting(resources: frozenset[Resource], s: Seen, turn: SeenTurn) -> frozenset[Resource]:
    """Those of the resources that exist and that this member subscribes to."""
    return frozenset(r for r in resources if turn.exists(r) and r[0] in s.subscription.topics)


def _owed(text: bytes | None, turn: SeenTurn) -> dict[Resource, Owed]:
    """Each waiting resource, its absent member, and the time left by the oldest copy's age."""
    memory = read_memory(text)
    if memory is None:
        return {}
    ages = [s.subscription.memory_age_ms for s in turn.members if s.subscription.memory == text]
    age_ms = max(ages, default=0)
    return {
        r: Owed(m.member_id, m.instance_id, m.delay_ms - age_ms)
        for m in memory.members
        if m.delay_ms
        for r in resources_of(m.owned)
    }

"""Which resources wait for which absent member, and how long: D1 to D8, L5 and L6, over a run.

**Rules.**

- The checker keeps its own clock of every loss. A loss begins with the first round in which the
  resource is neither claimed nor assigned.
- The checker keeps a record of its own of every round: the members that were there, the owners
  afterwards, and the absent members that are waited for until when. Of the memory the checker reads
  two things. The shares that members bring say of which round they can know. A *promise* is the
  remaining time in a list of what waits.
- A promise is compared with the checker's clock in the round that makes it. So a deadline that is
  restarted is found in the round that restarts it, and not only when it is overdue.
- The clocks of two processes have different origins in a world. A promise that is longer than the
  policy's delay is therefore a time of another process's clock (D7).
- The checker keeps a record of its own of the members that came lately
  (:mod:`tests.proof.rules.lately`), by its own clock, which is never behind a member's. The group
  may stop waiting for so many departed dynamic members, and no more.
- Nothing is asked about what the members of a round cannot know: members that no carrier of the
  last round names, and what waits if no carrier of the list is here
  (:mod:`tests.proof.rules.records`).

**Strategy.** One entry per waiting resource. A record is found again by a member and the bytes of
the share that the member was assigned in that round. The bytes alone are not enough in a search:
A's share in a round of A and B equals C's share in a round of C and B. Only for a member whose id
is new (it was thrown out and came back, or its static predecessor was given the share) the bytes
must do.

References: Incremental Cooperative Rebalancing, Design II.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tests.proof.rules.lately import lately_after, shortest_wait_ms, with_successors
from tests.proof.rules.lent import kept_from_home, lent_after
from tests.proof.rules.records import (
    EARLY_MS,
    Awaited,
    Lately,
    Moment,
    SeenRound,
    arrived,
    awaited_now,
    had_room,
    name_of,
    new_members,
    promised,
    resources_of,
    unknown_of,
)
from tests.proof.rules.seen import Seen, SeenTurn

from holdfast.core.machine.leader.recall import longest_wait_ms
from holdfast.core.machine.leader.ring import identity_of, shown
from holdfast.core.machine.policy import Policy, When
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.frames import Leaving
from holdfast.core.wire.layouts.memory import read_share
from holdfast.sim.world.ledger import Ledger

_K = TypeVar("_K")
SLACK_MS = 90_000  # one rebalance that waits for a silent member, and detection


@dataclass(slots=True)
class Loss:
    """A resource that waits: since when, how long, the members that were there, the leader."""

    since_ms: int
    delay_ms: int
    present: frozenset[str]
    leader_id: str
    first: bool = False  # for the first members of a new group


MANY_ROUNDS = 256
"""Rounds of which records are kept in a run; nobody brings an older share."""


@dataclass(slots=True)
class WaitingRules:
    """Follows the rounds of one run."""

    ledger: Ledger
    slack_ms: int = SLACK_MS  # by how much a deadline may be missed: rounds wait for silent members
    losses: dict[Resource, Loss] = field(default_factory=dict)
    rounds: dict[tuple[str, bytes], SeenRound] = field(default_factory=dict)  # by member and share
    anybodys: dict[bytes, SeenRound] = field(default_factory=dict)  # by share
    keep: int = MANY_ROUNDS
    newcomers: set[str] = field(default_factory=set)  # identities of the newcomers of any round
    lived: set[str] = field(default_factory=set)  # identities with a place, of any round

    def check(self, turn: SeenTurn, policy: Policy, now_ms: int) -> None:
        """Take one round that has effect."""
        at = self._moment(turn, policy, now_ms)
        past, owed = at.past, at.owed
        self._ended(at)
        self._fresh(at)
        unclaimed = turn.all_resources() - turn.claimed
        for resource in sorted(unclaimed - turn.after):
            self._unassigned(resource, at)
        self._returned(at)
        self._sent_home(at)
        if past is not None and policy.defers and policy.own is None:
            self._newcomer(at, at.there | {w.member_id for w in owed.values()})
        self._promises(at)
        self._arrivals(at)
        self._write_down(at)

    def check_kept(self, turn: SeenTurn, policy: Policy) -> None:
        """What holds without a clock, for a search that meets rounds in any order.

        Rounds in which one member has equal shares are alike, so one record stands for all of them.
        """
        at = self._moment(turn, policy, 0).without_clock()
        self._fresh(at)
        self._kept(at)
        self._named_again(at)
        self._sent_home(at)
        self._arrivals(at)
        for resource in sorted(turn.all_resources() - turn.claimed - turn.after):
            self._never_lost(resource, at)
        self._write_down(at)

    # The record

    def note(self, turn: SeenTurn, policy: Policy, now_ms: int) -> None:
        """Write down a round that came too late: some member may know of the round all the same."""
        at = self._moment(turn, policy, now_ms)
        self._note_newcomers(at)
        self._write_down(at)

    def _note_newcomers(self, at: Moment) -> None:
        """Note identities, because a static member that comes back has a new member id."""
        new = new_members(at)
        if at.past is None and at.policy.asks_ages:  # the first members of a group have ages too
            new = [s for s in at.turn.members if not s.claims and s.subscription.generation < 0]
        self.newcomers |= {identity_of(s.member) for s in new}

    def _moment(self, turn: SeenTurn, policy: Policy, now_ms: int) -> Moment:
        past = self._past(turn)
        unknown = frozenset[Resource]() if past is None else unknown_of(past, turn)
        owed = {} if past is None else past.waiting
        lately = self._lately(turn, past, now_ms).at(now_ms, policy, self.slack_ms)
        return Moment(turn, policy, past, owed, unknown, now_ms, lately)

    def _lately(self, turn: SeenTurn, past: SeenRound | None, now_ms: int) -> Lately:
        """What the members of a round can know of the members that came lately.

        The list of the last round is known if a member that carries the list leads, or if two
        carriers are here. Else the list of any earlier round may be what counts.
        """
        if past is None:
            known = any(read_share(s.subscription.memory) for s in turn.members)
            return Lately(grown_ms=None if known else now_ms)
        brought = {s.name: found for s in turn.members if (found := self._brought(s)) is not None}
        told = {name for name, found in brought.items() if found is past}
        carriers = past.carriers() & told
        if past.whole and (turn.leader_id in carriers or len(carriers) > 1):
            return past.lately
        each = [past, *brought.values()]
        return Lately(came={n: ms for found in each for n, ms in found.lately.came.items()})

    def _past(self, turn: SeenTurn) -> SeenRound | None:
        """The newest round of which some member has a share.

        Of several rounds with one generation it is the leader's, or else the round that most
        members know.
        """
        known: list[tuple[bool, SeenRound]] = []
        for s in turn.members:
            found = self._brought(s)
            if found is not None and found.generation < turn.generation:
                known.append((s.name == turn.leader_id, found))
        if not known:
            return None
        newest = max(found.generation for _, found in known)
        last = [(leads, found) for leads, found in known if found.generation == newest]
        own = [found for leads, found in last if leads]
        each = own or [found for _, found in last]
        return max(each, key=lambda found: sum(found is other for other in each))

    def _brought(self, member: Seen) -> SeenRound | None:
        """The round of the share that a member brings."""
        share = member.subscription.memory or b""
        return self.rounds.get((member.name, share)) or self.anybodys.get(share)

    def _delay_ms(self, resource: Resource, policy: Policy) -> int:
        """How long a resource waits."""
        return policy.delay_of(resource[0]) if policy.kinds or policy.defers else 0

    def _deadline(self, resource: Resource, at: Moment) -> int:
        return at.now_ms + self._delay_ms(resource, at.policy)

    def _write_down(self, at: Moment) -> None:
        turn, past = at.turn, at.past
        self.lived |= turn.places
        owner = {
            r: Awaited(s.name, s.member.instance_id, identity_of(s.member), self._deadline(r, at))
            for s in turn.members
            for r in s.after
        }
        waiting = {}
        for r in turn.all_resources() - turn.claimed - turn.after:
            absent = None
            if past is not None and r not in at.unknown:
                lost = past.owner.get(r)
                deadline_ms = min(self._deadline(r, at), at.now_ms + shortest_wait_ms(at, lost))
                fresh = None if lost is None else replace(lost, deadline_ms=deadline_ms)
                absent = past.waiting.get(r, fresh)
            waiting[r] = absent or Awaited("", None, "", self._deadline(r, at))
        if at.policy.lends:
            waiting |= lent_after(at)
        record = SeenRound(
            generation=turn.generation,
            present=turn.present,
            owner=owner,
            waiting=waiting,
            topics=frozenset(topic for topic, _ in (*owner, *waiting)),
            ring=tuple(sorted((identity_of(s.member), s.name) for s in turn.members)),
            leader_id=turn.leader_id,
            whole=had_room(at),
            promised_ms=promised(turn),
            lately=lately_after(at, waiting),
            arrived=arrived(turn),
        )
        for s in turn.members:
            if s.assignment.memory:
                self.rounds[s.name, s.assignment.memory] = record
                self.anybodys[s.assignment.memory] = record
        most = self.keep * len(turn.members)
        _keep_newest(self.rounds, most)
        _keep_newest(self.anybodys, most)

    # What has stopped waiting

    def _ended(self, at: Moment) -> None:
        """What waits for an absent member goes to no member that was there at the loss (D1).

        One exception: newcomers have taken the absent member's place (:func:`_places_taken`), so
        the group has stopped waiting for the absent member. What is left of its resources may then
        go to a member that ends with no more than the least loaded of the newcomers.
        """
        turn = at.turn
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
            if absent is None or at.left_ms(absent) <= EARLY_MS or not absent.member_id:
                continue
            if at.policy.own is not None:  # a policy of the user may end a wait at any time
                continue
            receiver = owner.get(resource, "")
            if at.is_back(absent) or receiver not in loss.present:
                continue
            if _overtakes(receiver, resource, at, places.get(absent.member_id)):
                text = f"{resource} waits for {absent.member_id}, goes to {receiver}"
                self.ledger.fail("D1", at.now_ms, text)

    def _fresh(self, at: Moment) -> None:
        """What a departed member owned goes to no member that was there together with it (D1)."""
        past, turn = at.past, at.turn
        if past is None or not at.policy.defers or at.policy.own is not None:
            return
        gone = {
            r: absent
            for r, absent in past.owner.items()
            if not at.is_back(absent)
            and r not in turn.claimed
            and r not in at.unknown
            and turn.exists(r)
        }
        gone = {r: w for r, w in gone.items() if at.policy.delay_of(r[0]) > EARLY_MS}
        if not gone:
            return
        owner = {r: s.name for s in turn.members for r in s.after & gone.keys()}
        places = _places_taken(replace(at, owed={**at.owed, **gone}), owner)
        served = with_successors(at)
        for resource, absent in sorted(gone.items()):
            receiver = owner.get(resource, "")
            if receiver not in at.there or absent.member_id in served:
                continue
            if _overtakes(receiver, resource, at, places.get(absent.member_id)):
                text = f"{resource} was lost with {absent.member_id}, goes to {receiver}"
                self.ledger.fail("D1", at.now_ms, text)

    def _arrivals(self, at: Moment) -> None:
        """Members that the memory names as newcomers came as newcomers (D1)."""
        self._note_newcomers(at)
        for identity in arrived(at.turn):
            name = name_of(identity, at)
            known = any(each.startswith(identity) for each in self.newcomers)
            if name in at.turn.present and not known:
                text = f"{name} is to be a successor, and was there or came first"
                self.ledger.fail("D1", at.now_ms, text)

    # What is not handed out

    def _kept(self, at: Moment) -> None:
        """What waits by the memory goes to no member that was there, however old the memory is."""
        past, turn = at.past, at.turn
        if past is None or not at.policy.defers or at.remains_ms is None:
            return
        if at.policy.own is not None:
            return
        owner = {r: s.name for s in turn.members for r in s.after}
        places = _places_taken(at, owner)
        for resource, absent in sorted(past.waiting.items()):
            left_ms = at.remains_ms.get(resource, 0)
            known = resource not in at.unknown and absent.member_id != ""
            if at.is_back(absent) or not known or left_ms <= EARLY_MS or resource in turn.claimed:
                continue
            receiver = owner.get(resource, "")
            if receiver in at.there and absent.member_id not in places:
                text = f"{resource} waits {left_ms} ms for {absent.member_id}, goes to {receiver}"
                self.ledger.fail("D1", at.now_ms, text)

    def _named_again(self, at: Moment) -> None:
        """What goes on waiting waits for the same member, and no longer than before."""
        past, turn = at.past, at.turn
        if past is None or not at.policy.defers:
            return
        ages_ms = [s.subscription.memory_age_ms for s in turn.members if self._brought(s) is past]
        for m, resource in awaited_now(turn):
            absent = past.waiting.get(resource, past.owner.get(resource))
            if absent is None or resource in at.unknown or not absent.member_id:
                continue
            if not m.identity or not absent.identity.startswith(m.identity):
                text = f"{resource} waits for {shown(m.identity)}, and was {absent.member_id}'s"
                self.ledger.fail("D2", at.now_ms, text)
            before_ms = past.promised_ms.get(resource)
            if before_ms is not None and m.delay_ms > max(1, before_ms - min(ages_ms)):
                text = f"{resource} is to wait {m.delay_ms} ms, of {before_ms} before"
                self.ledger.fail("L5", at.now_ms, text)

    def _unassigned(self, resource: Resource, at: Moment) -> None:
        """Check that only lost resources wait (D3, D4), and no longer than their delay (L5, L6)."""
        turn, now_ms = at.turn, at.now_ms
        loss = self.losses.get(resource) if resource in at.owed else None
        first = at.policy.waits_first and at.past is None and not turn.claimed
        first = loss.first if loss is not None else first
        if not (first or (at.policy.delay_of(resource[0]) and not at.policy.lends)):
            text = f"{resource} is claimed by nobody and assigned to nobody"
            self.ledger.fail("L1", now_ms, text)
            return
        self._never_lost(resource, at)
        if loss is None:
            present = turn.present & (at.there if at.past else turn.present)
            waits_ms = at.policy.first_member_delay_ms if first else None
            delay_ms = self._delay_ms(resource, at.policy) if waits_ms is None else waits_ms
            self.losses[resource] = Loss(now_ms, delay_ms, present, turn.leader_id, first)
        elif now_ms > loss.since_ms + loss.delay_ms + self.slack_ms:
            text = f"{resource} waits {now_ms - loss.since_ms} ms of {loss.delay_ms}"
            self.ledger.fail(_late(loss, turn), now_ms, text)

    def _never_lost(self, resource: Resource, at: Moment) -> None:
        rule = _at_once(resource, at)
        if rule is not None:
            self.ledger.fail(rule, at.now_ms, f"{resource} was not lost and is not assigned")

    def _promises(self, at: Moment) -> None:
        """What the new memory says about deadlines (D7, D8, L5, L6)."""
        policy, turn, now_ms = at.policy, at.turn, at.now_ms
        leaves = {s.name for s in turn.members if s.subscription.leaving is Leaving.FOR_GOOD}
        lists = {
            share.digest: share
            for s in turn.members
            if (share := read_share(s.assignment.memory)) is not None and share.waiting
        }
        for _, share in sorted(lists.items()):
            for m in share.waiting:
                name = name_of(m.identity, at)
                if m.delay_ms > (longest_ms := longest_wait_ms(policy, m)):
                    text = f"{m.delay_ms} ms are left of {longest_ms} for {name}"
                    self.ledger.fail("D7", now_ms, text)
                if name in leaves:
                    text = f"{name} leaves for good, and {m.delay_ms} ms are waited for it"
                    self.ledger.fail("D8", now_ms, text)
                for resource in sorted(resources_of(m, share, turn)):
                    self._promise(resource, m.delay_ms, at)

    def _promise(self, resource: Resource, left_ms: int, at: Moment) -> None:
        loss = self.losses.get(resource)
        if loss is None:
            return
        late_ms = at.now_ms + left_ms - (loss.since_ms + loss.delay_ms)
        if late_ms > self.slack_ms:
            text = f"{resource} is to wait {late_ms} ms longer than {loss.delay_ms}"
            self.ledger.fail(_late(loss, at.turn), at.now_ms, text)

    # Which members are served

    def _sent_home(self, at: Moment) -> None:
        """What is lent goes back to a member that is back (D10)."""
        if at.policy.lends:
            for text in kept_from_home(at):
                self.ledger.fail("D10", at.now_ms, text)

    def _returned(self, at: Moment) -> None:
        """A member that is back by identity gets all that waited (D2), where anything waits."""
        if not at.policy.defers:
            return
        for s in at.turn.members:
            if s.member.place and s.stays and s.subscription.generation < 0:
                self._returned_to_its_place(s, at)
        claimed = at.turn.claimed
        static = {w.instance_id for w in at.owed.values()} - {None}
        for s in at.turn.members:
            instance_id = s.member.instance_id
            if instance_id not in static or not s.stays:
                continue
            owed = frozenset(r for r, w in at.owed.items() if w.instance_id == instance_id)
            waited = _fitting(owed - claimed, s, at.turn)
            if not waited <= s.after:
                text = f"{instance_id} is back and does not get {min(waited - s.after)}"
                self.ledger.fail("D2", at.now_ms, text)

    def _returned_to_its_place(self, s: Seen, at: Moment) -> None:
        who = identity_of(s.member)
        owed = {r for r, w in at.owed.items() if w.identity == who and r not in at.unknown}
        owed = {r for r in owed if at.left_ms(at.owed[r]) > EARLY_MS}
        waited = _fitting(frozenset(owed) - at.turn.claimed, s, at.turn)
        if not waited <= s.after:
            text = f"{s.name} is back where it lived and does not get {min(waited - s.after)}"
            self.ledger.fail("D2", at.now_ms, text)

    def _newcomer(self, at: Moment, known: frozenset[str]) -> None:
        """One newcomer, one member gone, equal subscriptions: the newcomer takes its place (D2)."""
        turn = at.turn
        new = [s for s in turn.members if s.name not in known]
        gone = {w for r, w in at.owed.items() if turn.exists(r) and r not in at.unknown}
        equal = len({s.subscription.topics for s in turn.members}) == 1
        if len(new) != 1 or len(gone) != 1 or not equal:
            return
        (s,), (absent,) = new, gone
        alone = absent.instance_id is None and absent.member_id not in turn.present
        alone &= absent.member_id != ""
        if s.claims or s.subscription.leaving is not Leaving.STAYS or not alone:
            return
        if s.member.place and identity_of(s.member) in self.lived:
            return  # it is back, and owned something else or nothing
        owed = frozenset(r for r, w in at.owed.items() if w == absent and r not in at.unknown)
        waited = _fitting(owed - turn.claimed, s, turn)
        if at.left_ms(absent) <= EARLY_MS:
            return
        given = waited & s.after
        if waited > given:
            text = f"{s.name} comes empty-handed and gets {len(given)} of {len(waited)} that wait"
            self.ledger.fail("D2", at.now_ms, text)


def _keep_newest(records: dict[_K, SeenRound], most: int) -> None:
    while len(records) > most:
        del records[next(iter(records))]


def _late(loss: Loss, turn: SeenTurn) -> str:
    """The rule for what is late: L6 if another member leads than at the loss, else L5."""
    return "L5" if loss.leader_id == turn.leader_id else "L6"


def _at_once(resource: Resource, at: Moment) -> str | None:
    """The rule by which a resource must be assigned now; None if it may be a loss that waits."""
    past = at.past
    if past is None:
        new_group = at.policy.first_member is When.IMMEDIATE and not at.turn.claimed
        return "D4" if new_group else None
    if at.unknown or not past.topics or resource in past.owner or resource in past.waiting:
        return None
    return "D4" if resource[0] in past.topics else "D3"


def _places_taken(at: Moment, owner: Mapping[Resource, str]) -> dict[str, frozenset[str]]:
    """Absent member -> the newcomers in its place, where all that the absent member owned is given.

    A newcomer is a member without claims that the memory does not name. Newcomers take the place of
    an absent member in one of two ways. They received some of its resources. Or, if no newcomer
    received any, one newcomer that took no other place stands for the absent member, whatever the
    newcomer received.

    For example, d and e died, and f and g join. f gets a resource of d: f has d's place. g gets
    new partitions only, and e's resources went to others: g has e's place.
    """
    if at.past is None:
        return {}
    known = at.there | {w.member_id for w in at.owed.values()}
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


def _overtakes(
    receiver: str, resource: Resource, at: Moment, newcomers: frozenset[str] | None
) -> bool:
    """Whether a member that was there gets more than the newcomers in the absent one's place."""
    if newcomers is None:
        return True
    return _load(receiver, at, resource) > min(_load(name, at, resource) for name in newcomers)


def _load(name: str, at: Moment, resource: Resource) -> int:
    """How many resources a member has after the round; only of one kind if kinds are isolated."""
    (after,) = (s.after for s in at.turn.members if s.name == name)
    return sum(not at.policy.isolate or kind == resource[0] for kind, _ in after)


def _fitting(resources: frozenset[Resource], s: Seen, turn: SeenTurn) -> frozenset[Resource]:
    """The resources that exist and that the member ``s`` subscribes to."""
    return frozenset(r for r in resources if turn.exists(r) and r[0] in s.subscription.topics)

"""Waiting resources, their absent members and their times: D1 to D8, L5 and L6, over a run.

**Rules.**

- The checker keeps its own clock of every loss. A loss begins with the first round in which the
  resource is neither claimed nor assigned.
- The checker keeps a record of its own of every round: the members of the round, the owners
  afterwards, and the absent members that resources wait for, with deadlines. Of the leader state
  the checker reads two things. The shards that members bring say of which round they can know. A
  *promise* is the remaining time in a list of what waits.
- A resource that nobody claims, and whose owner is in the round, was not lost: its owner's
  SyncGroup failed. It waits for nobody, though a round without a plan leaves it unassigned.
- A promise is compared with the checker's clock in the round that makes it. So a deadline that is
  restarted is found in the round that restarts it, and not only when it is overdue.
- The clocks of two processes have different origins in a world. A promise that is longer than the
  policy's delay is therefore a time of another process's clock (D7).
- The checker keeps a record of its own of the members that joined recently
  (:mod:`tests.proof.rules.recent_changes`), by its own clock, which is never behind a member's. The
  group may stop waiting for as many departed dynamic members, and no more.
- The checker asks nothing that the members of a round cannot know: members that no carrier of the
  last round names, and what waits if no carrier of the list is in the round
  (:mod:`tests.proof.rules.records`).

**Strategy.** One entry per waiting resource. A record is found again by a member and the bytes of
the shard that the member was assigned in that round. The bytes alone are not enough in a search:
A's shard in a round of A and B equals C's shard in a round of C and B. Only for a member whose id
is new (it was removed and came back, or its static predecessor got the shard) the bytes have to
suffice.

References: Incremental Cooperative Rebalancing, Design II.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tests.proof.rules.failback import kept_from_home, reassigned_after
from tests.proof.rules.recent_changes import recent_changes_after, shortest_wait_ms, with_successors
from tests.proof.rules.records import (
    EARLY_MS,
    Awaited,
    Moment,
    PastRound,
    RecentChanges,
    awaited_now,
    had_room,
    name_of,
    new_members,
    promised,
    recent_joiners,
    resources_of,
    unknown_of,
)
from tests.proof.rules.seen import Seen, SeenRound

from holdfast.core.machine.leader.state_reconstruction import longest_wait_ms
from holdfast.core.machine.leader.subscriptions import identity_of, identity_of_id, shown
from holdfast.core.machine.policy import Policy, When
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.container import Leaving
from holdfast.core.wire.layouts.state_shard import read_shard
from holdfast.sim.clock import OwnershipLog

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
"""Rounds of which records are kept in a run; no member brings an older shard."""


@dataclass(slots=True)
class WaitingRules:
    """Follows the rounds of one run."""

    ownership_log: OwnershipLog
    slack_ms: int = SLACK_MS  # by how much a deadline may be missed: rounds wait for silent members
    losses: dict[Resource, Loss] = field(default_factory=dict)
    rounds: dict[tuple[str, bytes], PastRound] = field(default_factory=dict)  # by member and shard
    anybodys: dict[bytes, PastRound] = field(default_factory=dict)  # by shard
    keep: int = MANY_ROUNDS
    joiners: set[str] = field(default_factory=set)  # identities of the new members of any round
    lived: set[str] = field(default_factory=set)  # identities with a location, of any round

    def check(self, seen: SeenRound, policy: Policy, now_ms: int) -> None:
        """Take one round that has effect."""
        at = self._moment(seen, policy, now_ms)
        past, owed = at.past, at.owed
        self._ended(at)
        self._fresh(at)
        unclaimed = seen.all_resources() - seen.claimed
        for resource in sorted(unclaimed - seen.after):
            self._unassigned(resource, at)
        self._returned(at)
        self._check_failback(at)
        if past is not None and policy.defers and policy.own is None:
            self._check_new_member(at, at.there | {w.member_id for w in owed.values()})
        self._promises(at)
        self._check_recent_joiners(at)
        self._write_down(at)

    def check_kept(self, seen: SeenRound, policy: Policy) -> None:
        """Check the rules that need no clock, for a search that meets rounds in any order.

        Rounds in which one member has equal shards are alike, so one record stands for all of them.
        """
        at = self._moment(seen, policy, 0).without_clock()
        self._fresh(at)
        self._kept(at)
        self._named_again(at)
        self._check_failback(at)
        self._check_recent_joiners(at)
        for resource in sorted(seen.all_resources() - seen.claimed - seen.after):
            self._never_lost(resource, at)
        self._write_down(at)

    # The record

    def note(self, seen: SeenRound, policy: Policy, now_ms: int) -> None:
        """Record a round that came too late: some member may know of it all the same."""
        at = self._moment(seen, policy, now_ms)
        self._note_new_members(at)
        self._write_down(at)

    def _note_new_members(self, at: Moment) -> None:
        """Note identities, because a static member that comes back has a new member id.

        A member that loses its location to another one is named by its member id from then on.
        """
        new = new_members(at)
        if at.past is None and at.policy.needs_ages:  # the first members of a group have ages too
            new = [s for s in at.seen.members if not s.claims and s.subscription.generation < 0]
        self.joiners |= {identity_of(s.member) for s in new}
        self.joiners |= {identity_of_id(s.member) for s in new}

    def _moment(self, seen: SeenRound, policy: Policy, now_ms: int) -> Moment:
        past = self._past(seen)
        unknown = frozenset[Resource]() if past is None else unknown_of(past, seen)
        owed = {} if past is None else past.waiting
        recent_changes = self._recent_changes(seen, past, now_ms).at(now_ms, policy, self.slack_ms)
        return Moment(seen, policy, past, owed, unknown, now_ms, recent_changes)

    def _recent_changes(
        self, seen: SeenRound, past: PastRound | None, now_ms: int
    ) -> RecentChanges:
        """Return what members of a round can know of members that joined recently.

        The list of the last round is known if a member that carries the list leads, or if two
        carriers are in the round. Else the list of any earlier round may be what counts.
        """
        if past is None:
            known = any(read_shard(s.subscription.leader_state) for s in seen.members)
            return RecentChanges(grown_ms=None if known else now_ms)
        brought = {s.name: found for s in seen.members if (found := self._brought(s)) is not None}
        told = {name for name, found in brought.items() if found is past}
        carriers = past.carriers() & told
        if past.whole and (seen.leader_id in carriers or len(carriers) > 1):
            return past.recent_changes
        each = [past, *brought.values()]
        return RecentChanges(
            came={n: ms for found in each for n, ms in found.recent_changes.came.items()}
        )

    def _past(self, seen: SeenRound) -> PastRound | None:
        """Return the newest round of which some member has a shard.

        Of several rounds with one generation it is the leader's, or else the round that most
        members know.
        """
        known: list[tuple[bool, PastRound]] = []
        for s in seen.members:
            found = self._brought(s)
            if found is not None and found.generation < seen.generation:
                known.append((s.name == seen.leader_id, found))
        if not known:
            return None
        newest = max(found.generation for _, found in known)
        last = [(leads, found) for leads, found in known if found.generation == newest]
        own = [found for leads, found in last if leads]
        each = own or [found for _, found in last]
        return max(each, key=lambda found: sum(found is other for other in each))

    def _brought(self, member: Seen) -> PastRound | None:
        """Return the round of the shard that a member brings."""
        shard = member.subscription.leader_state or b""
        return self.rounds.get((member.name, shard)) or self.anybodys.get(shard)

    def _delay_ms(self, resource: Resource, policy: Policy) -> int:
        """Return how long a resource waits, in ms."""
        return policy.delay_of(resource[0]) if policy.kinds or policy.defers else 0

    def _deadline(self, resource: Resource, at: Moment) -> int:
        return at.now_ms + self._delay_ms(resource, at.policy)

    def _write_down(self, at: Moment) -> None:
        seen, past = at.seen, at.past
        self.lived |= seen.locations
        owner = {
            r: Awaited(s.name, s.member.instance_id, identity_of(s.member), self._deadline(r, at))
            for s in seen.members
            for r in s.after
        }
        waiting = {}
        for r in seen.all_resources() - seen.claimed - seen.after:
            absent = None
            if past is not None and r not in at.unknown:
                lost = _departed(past.owner.get(r), seen)
                deadline_ms = min(self._deadline(r, at), at.now_ms + shortest_wait_ms(at, lost))
                fresh = None if lost is None else replace(lost, deadline_ms=deadline_ms)
                absent = past.waiting.get(r, fresh)
            waiting[r] = absent or Awaited("", None, "", self._deadline(r, at))
        if at.policy.failback:
            waiting |= reassigned_after(at)
        record = PastRound(
            generation=seen.generation,
            present=seen.present,
            owner=owner,
            waiting=waiting,
            topics=frozenset(topic for topic, _ in (*owner, *waiting)),
            ring=tuple(sorted((identity_of(s.member), s.name) for s in seen.members)),
            leader_id=seen.leader_id,
            whole=had_room(at),
            promised_ms=promised(seen),
            recent_changes=recent_changes_after(at, waiting),
            recent_joiners=recent_joiners(seen),
        )
        for s in seen.members:
            if s.assignment.leader_state:
                self.rounds[s.name, s.assignment.leader_state] = record
                self.anybodys[s.assignment.leader_state] = record
        most = self.keep * len(seen.members)
        _keep_newest(self.rounds, most)
        _keep_newest(self.anybodys, most)

    # What has stopped waiting

    def _ended(self, at: Moment) -> None:
        """Check that what waits for an absent member goes to no member of the lost round (D1).

        One exception: new members have replaced the absent member (:func:`_taken_over`), so the
        group has stopped waiting for it. The rest of its resources may then go to a member that
        ends with no more than the least loaded of the new members.
        """
        seen = at.seen
        if not self.losses:
            return
        asked = at.owed.keys() | self.losses.keys()
        owner = {r: s.name for s in seen.members for r in s.after & asked}
        locations = _taken_over(at, owner)
        for resource, loss in list(self.losses.items()):
            taken = resource in seen.claimed or resource in seen.after
            if seen.exists(resource) and not taken:
                continue
            del self.losses[resource]
            absent = at.owed.get(resource)
            if absent is None or at.left_ms(absent) <= EARLY_MS or not absent.member_id:
                continue
            if at.policy.own is not None:  # a user's own policy may end a wait at any time
                continue
            receiver = owner.get(resource, "")
            if at.is_back(absent) or receiver not in loss.present:
                continue
            if _overtakes(receiver, resource, at, locations.get(absent.member_id)):
                text = f"{resource} waits for {absent.member_id}, goes to {receiver}"
                self.ownership_log.fail("D1", at.now_ms, text)

    def _fresh(self, at: Moment) -> None:
        """Check that what a departed member owned goes to no fellow member of its time (D1)."""
        past, seen = at.past, at.seen
        if past is None or not at.policy.defers or at.policy.own is not None:
            return
        gone = {
            r: absent
            for r, absent in past.owner.items()
            if not at.is_back(absent)
            and r not in seen.claimed
            and r not in at.unknown
            and seen.exists(r)
        }
        gone = {r: w for r, w in gone.items() if at.policy.delay_of(r[0]) > EARLY_MS}
        if not gone:
            return
        owner = {r: s.name for s in seen.members for r in s.after & gone.keys()}
        locations = _taken_over(replace(at, owed={**at.owed, **gone}), owner)
        served = with_successors(at)
        for resource, absent in sorted(gone.items()):
            receiver = owner.get(resource, "")
            if receiver not in at.there or absent.member_id in served:
                continue
            if _overtakes(receiver, resource, at, locations.get(absent.member_id)):
                text = f"{resource} was lost with {absent.member_id}, goes to {receiver}"
                self.ownership_log.fail("D1", at.now_ms, text)

    def _check_recent_joiners(self, at: Moment) -> None:
        """Check that members named as new members joined as new members (D1)."""
        self._note_new_members(at)
        for identity in recent_joiners(at.seen):
            name = name_of(identity, at)
            known = any(each.startswith(identity) for each in self.joiners)
            if name in at.seen.present and not known:
                text = f"{name} is to be a successor, and was there or came first"
                self.ownership_log.fail("D1", at.now_ms, text)

    # What is not assigned

    def _kept(self, at: Moment) -> None:
        """Check that waiting resources go to no member of the lost round, at any state age."""
        past, seen = at.past, at.seen
        if past is None or not at.policy.defers or at.remains_ms is None:
            return
        if at.policy.own is not None:
            return
        owner = {r: s.name for s in seen.members for r in s.after}
        locations = _taken_over(at, owner)
        for resource, absent in sorted(past.waiting.items()):
            left_ms = at.remains_ms.get(resource, 0)
            known = resource not in at.unknown and absent.member_id != ""
            if at.is_back(absent) or not known or left_ms <= EARLY_MS or resource in seen.claimed:
                continue
            receiver = owner.get(resource, "")
            if receiver in at.there and absent.member_id not in locations:
                text = f"{resource} waits {left_ms} ms for {absent.member_id}, goes to {receiver}"
                self.ownership_log.fail("D1", at.now_ms, text)

    def _named_again(self, at: Moment) -> None:
        """Check that waiting resources wait for the same member, no longer than before."""
        past, seen = at.past, at.seen
        if past is None or not at.policy.defers:
            return
        ages_ms = [s.subscription.state_age_ms for s in seen.members if self._brought(s) is past]
        for m, resource in awaited_now(seen):
            absent = past.waiting.get(resource, past.owner.get(resource))
            if absent is None or resource in at.unknown or not absent.member_id:
                continue
            if not m.identity or not absent.identity.startswith(m.identity):
                text = f"{resource} waits for {shown(m.identity)}, and was {absent.member_id}'s"
                self.ownership_log.fail("D2", at.now_ms, text)
            before_ms = past.promised_ms.get(resource)
            if before_ms is not None and m.delay_ms > max(1, before_ms - min(ages_ms)):
                text = f"{resource} is to wait {m.delay_ms} ms, of {before_ms} before"
                self.ownership_log.fail("L5", at.now_ms, text)

    def _unassigned(self, resource: Resource, at: Moment) -> None:
        """Check that only lost resources wait (D3, D4), and no longer than their delay (L5, L6)."""
        seen, now_ms = at.seen, at.now_ms
        loss = self.losses.get(resource) if resource in at.owed else None
        first = at.policy.waits_first and at.past is None and not seen.claimed
        first = loss.first if loss is not None else first
        if not (first or (at.policy.delay_of(resource[0]) and not at.policy.failback)):
            text = f"{resource} has neither a claim nor an assignment"
            self.ownership_log.fail("L1", now_ms, text)
            return
        self._never_lost(resource, at)
        if loss is None:
            present = seen.present & (at.there if at.past else seen.present)
            waits_ms = at.policy.first_member_delay_ms if first else None
            delay_ms = self._delay_ms(resource, at.policy) if waits_ms is None else waits_ms
            self.losses[resource] = Loss(now_ms, delay_ms, present, seen.leader_id, first)
        elif now_ms > loss.since_ms + loss.delay_ms + self.slack_ms:
            text = f"{resource} waits {now_ms - loss.since_ms} ms of {loss.delay_ms}"
            self.ownership_log.fail(_late(loss, seen), now_ms, text)

    def _never_lost(self, resource: Resource, at: Moment) -> None:
        rule = _at_once(resource, at)
        if rule is not None:
            self.ownership_log.fail(rule, at.now_ms, f"{resource} was not lost and is not assigned")

    def _promises(self, at: Moment) -> None:
        """Check the deadlines in the new leader state (D7, D8, L5, L6)."""
        policy, seen, now_ms = at.policy, at.seen, at.now_ms
        leaves = {s.name for s in seen.members if s.subscription.leaving is Leaving.FOR_GOOD}
        lists = {
            shard.digest: shard
            for s in seen.members
            if (shard := read_shard(s.assignment.leader_state)) is not None and shard.waiting
        }
        for _, shard in sorted(lists.items()):
            for m in shard.waiting:
                name = name_of(m.identity, at)
                if m.delay_ms > (longest_ms := longest_wait_ms(policy, m)):
                    text = f"{m.delay_ms} ms are left of {longest_ms} for {name}"
                    self.ownership_log.fail("D7", now_ms, text)
                if name in leaves:
                    text = f"{name} leaves for good, and {m.delay_ms} ms are waited for it"
                    self.ownership_log.fail("D8", now_ms, text)
                for resource in sorted(resources_of(m, shard, seen)):
                    self._promise(resource, m.delay_ms, at)

    def _promise(self, resource: Resource, left_ms: int, at: Moment) -> None:
        loss = self.losses.get(resource)
        if loss is None:
            return
        late_ms = at.now_ms + left_ms - (loss.since_ms + loss.delay_ms)
        if late_ms > self.slack_ms:
            text = f"{resource} is to wait {late_ms} ms longer than {loss.delay_ms}"
            self.ownership_log.fail(_late(loss, at.seen), at.now_ms, text)

    # Which members are served

    def _check_failback(self, at: Moment) -> None:
        """Check that temporary reassignments return to a member that is back (D10)."""
        if at.policy.failback:
            for text in kept_from_home(at):
                self.ownership_log.fail("D10", at.now_ms, text)

    def _returned(self, at: Moment) -> None:
        """Check that a member that is back by identity gets all that waited (D2)."""
        if not at.policy.defers:
            return
        for s in at.seen.members:
            if s.member.location and s.stays and s.subscription.generation < 0:
                self._returned_to_its_location(s, at)
        claimed = at.seen.claimed
        static = {w.instance_id for w in at.owed.values()} - {None}
        for s in at.seen.members:
            instance_id = s.member.instance_id
            if instance_id not in static or not s.stays:
                continue
            owed = frozenset(r for r, w in at.owed.items() if w.instance_id == instance_id)
            waited = _fitting(owed - claimed, s, at.seen)
            if not waited <= s.after:
                text = f"{instance_id} is back and does not get {min(waited - s.after)}"
                self.ownership_log.fail("D2", at.now_ms, text)

    def _returned_to_its_location(self, s: Seen, at: Moment) -> None:
        who = identity_of(s.member)
        owed = {r for r, w in at.owed.items() if w.identity == who and r not in at.unknown}
        owed = {r for r in owed if at.left_ms(at.owed[r]) > EARLY_MS}
        waited = _fitting(frozenset(owed) - at.seen.claimed, s, at.seen)
        if not waited <= s.after:
            text = f"{s.name} is back where it lived and does not get {min(waited - s.after)}"
            self.ownership_log.fail("D2", at.now_ms, text)

    def _check_new_member(self, at: Moment, known: frozenset[str]) -> None:
        """Check that one new member replaces one equal departed member (D2)."""
        seen = at.seen
        new = [s for s in seen.members if s.name not in known]
        gone = {w for r, w in at.owed.items() if seen.exists(r) and r not in at.unknown}
        equal = len({s.subscription.topics for s in seen.members}) == 1
        if len(new) != 1 or len(gone) != 1 or not equal:
            return
        (s,), (absent,) = new, gone
        alone = absent.instance_id is None and absent.member_id not in seen.present
        alone &= absent.member_id != ""
        if s.claims or s.subscription.leaving is not Leaving.STAYS or not alone:
            return
        if s.member.location and identity_of(s.member) in self.lived:
            return  # it is back, and owned something else or nothing
        owed = frozenset(r for r, w in at.owed.items() if w == absent and r not in at.unknown)
        waited = _fitting(owed - seen.claimed, s, seen)
        if at.left_ms(absent) <= EARLY_MS:
            return
        given = waited & s.after
        if waited > given:
            text = f"{s.name} has no claims and gets {len(given)} of {len(waited)} that wait"
            self.ownership_log.fail("D2", at.now_ms, text)


def _departed(owner: Awaited | None, seen: SeenRound) -> Awaited | None:
    """Return the owner of an unclaimed resource; None if the owner is here, so nothing is lost.

    The SyncGroup of an owner that is here failed: it never learned of the resource. A static
    member, or one with a location, that is in no generation is another process: the resource waits
    for it.
    """
    here = next((s for s in seen.members if owner and s.name == owner.member_id), None)
    if owner is None or here is None:
        return owner
    known = owner.identity == identity_of_id(here.member)
    return None if known or here.subscription.generation >= 0 else owner


def _keep_newest(records: dict[_K, PastRound], most: int) -> None:
    while len(records) > most:
        del records[next(iter(records))]


def _late(loss: Loss, seen: SeenRound) -> str:
    """Return the rule for what is late: L6 if another member leads than at the loss, else L5."""
    return "L5" if loss.leader_id == seen.leader_id else "L6"


def _at_once(resource: Resource, at: Moment) -> str | None:
    """Return the rule by which a resource must be assigned now; None if it may wait."""
    past = at.past
    if past is None:
        new_group = at.policy.first_member is When.IMMEDIATE and not at.seen.claimed
        return "D4" if new_group else None
    if at.unknown or not past.topics or resource in past.owner or resource in past.waiting:
        return None
    return "D4" if resource[0] in past.topics else "D3"


def _taken_over(at: Moment, owner: Mapping[Resource, str]) -> dict[str, frozenset[str]]:
    """Return absent member -> the new members that replace it, if all it owned is assigned.

    A new member is a member without claims that the leader state does not name. New members replace
    an absent member in one of two ways. They received some of its resources. Or, if no new member
    received any, one new member that replaced no other counts as its replacement, whatever the new
    member received.

    For example, d and e died, and f and g join. f gets a resource of d: f replaces d. g gets new
    partitions only, and e's resources went to others: g replaces e.
    """
    if at.past is None:
        return {}
    known = at.there | {w.member_id for w in at.owed.values()}
    new = {s.name: s for s in at.seen.members if not s.claims and s.name not in known}
    owed = {r: w.member_id for r, w in sorted(at.owed.items()) if at.seen.exists(r)}
    waits = {absent for r, absent in owed.items() if r not in owner}
    locations: dict[str, frozenset[str]] = {}
    for resource, absent in owed.items():
        if owner.get(resource) in new and absent not in waits:
            locations[absent] = locations.get(absent, frozenset()) | {owner[resource]}
    spare = sorted(new.keys() - set().union(*locations.values()))
    for resource, absent in owed.items():
        fit = [name for name in spare if resource[0] in new[name].subscription.topics]
        if fit and absent not in waits | locations.keys():
            locations[absent] = frozenset(fit[:1])
            spare.remove(fit[0])
    return locations


def _overtakes(
    receiver: str, resource: Resource, at: Moment, joiners: frozenset[str] | None
) -> bool:
    """Return whether a member of the last round gets more than the absent one's replacements."""
    if joiners is None:
        return True
    return _load(receiver, at, resource) > min(_load(name, at, resource) for name in joiners)


def _load(name: str, at: Moment, resource: Resource) -> int:
    """Return how many resources a member has after the round; of one kind if kinds are isolated."""
    (after,) = (s.after for s in at.seen.members if s.name == name)
    return sum(not at.policy.isolate or kind == resource[0] for kind, _ in after)


def _fitting(resources: frozenset[Resource], s: Seen, seen: SeenRound) -> frozenset[Resource]:
    """Return the resources that exist and that the member ``s`` subscribes to."""
    return frozenset(r for r in resources if seen.exists(r) and r[0] in s.subscription.topics)

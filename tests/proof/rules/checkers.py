"""The rules of the protocol, checked on bytes and on time, and the table of all of them.

The simulation, the exhaustive search and the property tests share them. :data:`RULES` describes
each rule. Some rules are checked in part by the way in which a world works:

- S14: listener calls are one queue and carry no generation, so their order is what is checked.
- S15: the runtime decides where fetching starts. A world starts at the committed offset by
  construction, and the tests of the adapters check the real runtime.
- L6 is stricter than the document: members carry the old leader's leader state to a new leader.
- D3: a topic of one partition is in the leader state as soon as the partition had an owner. Without
  that, a group of one-partition topics could never wait.

**Rules.** A checker reports to the ownership log and never raises. It reads messages and its own
clock, and never the machine under check.

**Strategy.** :class:`RoundChecker` takes every leader's round: safety here, S13 by planning again
in another order, L2 and L3 in :mod:`tests.proof.rules.pacing`, delayed rebalance in
:mod:`tests.proof.rules.waiting`. Rules about running processes are in
:mod:`tests.proof.rules.running`. :mod:`tests.proof.rules.attached` brings all of them into a world.
Rules of a whole run are checked at its end (:mod:`holdfast.sim.scenarios`, ``tests/proof``).

References: Incremental Cooperative Rebalancing, "Leader process".
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.proof.rules.pacing import Pacing
from tests.proof.rules.seen import Seen, SeenRound, read_assignment, see
from tests.proof.rules.staying import Staying, revoked_valid_claims
from tests.proof.rules.waiting import WaitingRules

from holdfast.core.assignors.registry import find
from holdfast.core.machine.actions import ComputeAssignment, JoinCompleted
from holdfast.core.machine.events import AssignmentComputed
from holdfast.core.machine.leader.assignor_protocol import Assignor, LeaderRound
from holdfast.core.machine.leader.designs import (
    CooperativeAssignor,
    DesignAssignor,
    EagerAssignor,
)
from holdfast.core.machine.leader.leader_round import just_before
from holdfast.core.machine.member.holdings import ordered
from holdfast.core.machine.policy import TOLERANCE_MS, Policy
from holdfast.core.model.constants import Design
from holdfast.core.model.partitions import Resource
from holdfast.sim.clock import OwnershipLog

RULES: Mapping[str, str] = {
    "S1": "After a round no resource has two owners. No resource runs at two processes, unless "
    "nothing could stop the first one (Attached._excused lists when).",
    "S2": "A process whose member was removed stops within the session timeout plus one slow batch "
    "plus 1 s. The coordinator refuses its commits while another process runs the resource.",
    "S3": "A member gains only resources that no member claimed in that round.",
    "S4": "A resource that is revoked from one member is not given to another in the same round.",
    "S5": "A resource starts at a process only after the process before has stopped it and that "
    "process's commit of it has ended.",
    "S6": "A process starts only resources that its member owns and subscribes to.",
    "S7": "A member that reads an assignment owns what the bytes say. In a design that is (owned - "
    "revoked) + assigned, under any other assignor assigned alone. Example: owned {0, 1}, assigned "
    "{2}, revoked {1}: {0, 2} in a design, {2} elsewhere.",
    "S8": "A leader revokes from a member only resources that the member claimed in that round.",
    "S9": "All members get one delay, and a round that revokes has none. Example: a waits for t-3, "
    "and b and c both claim t-1. S1 is worth more, so t-1 is revoked and the delay is 0.",
    "S10": "Of several claims to a resource only one of the newest generation may count. A member "
    "without a generation claims nothing. A resource never starts in an older generation than the "
    "one it ran in before.",
    "S11": "A resource that two members claim with the same newest generation has no owner after "
    "the round. Example: a and b both claim t-0 at generation 4: it is revoked from both.",
    "S12": "An assigned resource exists, and its receiver subscribes to it and does not leave for "
    "good.",
    "S13": "A leader gives the same bytes when it plans the same round again with members and "
    "topics in another order. Above 2,000 claims only every sixteenth round is planned again.",
    "S14": "For each resource a listener is called with assigned, then once with revoked or lost, "
    "then with assigned again, and so on. Only dropped resources are lost, and nothing is left "
    "open at a member's end.",
    "S15": "A committed offset never decreases.",
    "S16": "A member lets its application commit records that were handed out since the resource "
    "was last started, as long as it owns the resource, and no older records. Example: a hands out "
    "107, loses t-0, and gets t-0 again after b has committed 308: a refuses to commit 107.",
    "L1": "Some time after the last fault everything is owned and processed. Where the policy has "
    "no delay, a round leaves nothing unassigned.",
    "L2": "In the end the loads of two members differ by one at most, under assignors that level "
    "loads. Under Design III the balance score never rises while nothing happens to the group.",
    "L3": "While nothing happens to the group, each round that revokes has a smaller (balance "
    "score, moves left) than the last one that revoked. Example: (4, 2), then (4, 1), then (2, 1).",
    "L4": "The number of rounds stays below a multiple of the group's events, and no round begins "
    "in a minute without an event.",
    "L5": "A lost resource waits no longer than the policy's delay and some slack, counted from "
    "the round that first saw the loss. The leader state promises no later time either.",
    "L6": "L5 holds as well when another member leads than at the loss.",
    "D1": "While a resource waits for an absent member, it goes to no member that was in the group "
    "at the loss, nor does it in the round that first sees the loss. A member that was given "
    "nothing and has been in no generation is a new member. The group does not wait for a dynamic "
    "member that has a successor of its own: a member that joined within the delay before, "
    "replaced no member and filled no vacancy, and subscribes to all topics of the resources. One "
    "more exception: new members have replaced the absent member, and the receiver ends with no "
    "more than the least loaded of them. Example: d dies with t-3 and t-4, and e joins. The leader "
    "gives t-3 to e. Then a may get t-4 if a has nothing else, and may not if a has.",
    "D2": "Where the policy has a delay, a member that is back by its instance id gets all that "
    "waited for it. If one member has departed and one new member has joined, the new member gets "
    "all that waits. Resources that continue to wait do so for the same member as before (the "
    "search checks that).",
    "D3": "A topic of which the leader state names no partition is assigned in the first round "
    "that sees it.",
    "D4": "Also assigned at once are new partitions of a topic that the leader state names, "
    "resources that a member revoked when a leader asked for it, and everything in a group that "
    "has neither claims nor a leader state (unless the policy makes a first member wait).",
    "D5": "A delay is longer than the policy's tolerance.",
    "D6": "A round has no delay where the policy has none.",
    "D7": "The leader state promises no more than the policy's delay. Example: a leader that takes "
    "a time of another process's clock for its own promises 1,000,003 ms of 30,000.",
    "D8": "Nothing waits for a member that announced to leave for good.",
    "D9": "Waiting resources hold nothing else up: under Design II all other resources are "
    "balanced in a round with a delay, as if the lost ones did not exist. Example: c's ten wait, "
    "and d joins a and b, which own ten each. The round after the one that revokes leaves them 7, "
    "7 and 6.",
    "D10": "Under failback nothing waits. A member that is back by its identity in time gets what "
    "it owned when it departed, from every member that has it, before it gets anything else.",
    "D11": "Under damped a round of a leader that led the round before revokes no more, of valid "
    "claims, than the members that have stayed lack of their fair share. Example: a and b own six "
    "each, and c joins: nothing is revoked until c has stayed.",
    "III": "Under Design III a round revokes, of valid claims, at most a batch for each member "
    "that can gain, and at most the group's batch.",
    "again": "A round that revokes announces another round to every member.",
}
"""Rule -> its meaning."""

MANY_CLAIMS = 2_000
PURE = (DesignAssignor, CooperativeAssignor, EagerAssignor)
"""Assignors that can plan a round again; Connect's cannot, because its leader has state."""


class RoundChecker:
    """Checks every leader's round of a run, with a record of what waits.

    Parameters
    ----------
    ownership_log : OwnershipLog
        Receives broken rules.
    """

    def __init__(self, ownership_log: OwnershipLog):
        self.ownership_log = ownership_log
        self.waiting = WaitingRules(ownership_log)
        self.pacing = Pacing(ownership_log)
        self.staying = Staying(ownership_log)
        self.rounds = 0
        self._assignors: dict[str, Assignor] = {}
        self._stored: dict[str, bytes] = {}
        self._stored_as: tuple[int, str] = (-1, "")

    def check(
        self,
        request: ComputeAssignment,
        done: AssignmentComputed,
        now_ms: int,
        assignor: Assignor,
        *,
        current: bool = True,
    ) -> None:
        """Check one round; one that is not ``current`` comes too late to have an effect."""
        seen = see(request, done, assignor)
        self.rounds += 1
        self._assignors[request.protocol_name] = assignor
        self._safety(seen, now_ms)
        if isinstance(assignor, DesignAssignor):
            self._designs(seen, assignor, now_ms)
        if not current:
            if isinstance(assignor, DesignAssignor):
                self.waiting.note(seen, assignor.policy, now_ms)
            return
        if sum(len(s.claims) for s in seen.members) <= MANY_CLAIMS or self.rounds % 16 == 0:
            self._order(request, done, assignor, now_ms)
        if isinstance(assignor, DesignAssignor):
            self.waiting.check(seen, assignor.policy, now_ms)
            if assignor.policy.damps:
                levels = _levels(assignor.policy, seen)
                self.staying.check(seen, assignor.policy, now_ms, levels=levels)
        self.pacing.check(seen, assignor, now_ms)

    def note(
        self,
        request: ComputeAssignment,
        done: AssignmentComputed,
        now_ms: int,
        assignor: Assignor,
    ) -> None:
        """Record a round that could not be planned: its members know of the round anyway."""
        if isinstance(assignor, DesignAssignor):
            self.waiting.note(see(request, done, assignor), assignor.policy, now_ms)

    def stored(self, generation: int, protocol: str, assignments: Mapping[str, bytes]) -> None:
        """Record that the coordinator has stored ``assignments`` for a generation."""
        self._stored_as, self._stored = (generation, protocol), dict(assignments)

    def completed(self, done: JoinCompleted, now_ms: int) -> None:
        """Check that a member read its assignment (S7)."""
        data = self._stored.get(done.member_id)
        assignor = self._assignors.get(done.protocol_name)
        if data is None or assignor is None:
            return
        if self._stored_as != (done.generation, done.protocol_name):
            return
        assignment = read_assignment(assignor, data)
        nothing_revoked = not (assignment.revoked or done.revoked)
        if nothing_revoked and ordered(assignment.assigned) == done.owned:
            return  # the usual case: all that the member owns was listed
        owned = frozenset(done.owned)
        before = owned.difference(done.gained).union(done.revoked)
        right = assignment.owned_after(before)
        if right != owned:
            wrong = min(right ^ owned)
            self.ownership_log.fail(
                "S7", now_ms, f"{done.member_id} reads its assignment of {wrong} wrong"
            )

    # One round

    def _safety(self, seen: SeenRound, now_ms: int) -> None:
        if not _plainly_safe(seen):
            self._look_closely(seen, now_ms)

    def _look_closely(self, seen: SeenRound, now_ms: int) -> None:
        """Name each resource and rule."""
        fail = self.ownership_log.fail
        claimed: dict[Resource, list[tuple[int, str]]] = {}
        for s in seen.members:
            if s.claims and s.subscription.generation < 0:
                fail("S10", now_ms, f"{s.name} has no generation and claims {min(s.claims)}")
            for resource in s.claims:
                claimed.setdefault(resource, []).append((s.subscription.generation, s.name))
        owner: dict[Resource, str] = {}
        for s in seen.members:
            for resource in sorted(s.after):
                if resource in owner:
                    fail("S1", now_ms, f"{resource} is {owner[resource]}'s and {s.name}'s after")
                owner[resource] = s.name
                self._right(s, resource, claimed.get(resource, []), now_ms)
            for resource in sorted(s.gained):
                topic, partition = resource
                exists = 0 <= partition < seen.partitions.get(topic, 0)
                if not exists or topic not in s.subscription.topics or not s.stays:
                    fail("S12", now_ms, f"{resource} goes to {s.name}, which cannot have it")
            if s.revoked - s.claims:
                fail("S8", now_ms, f"{s.name} is to give up {min(s.revoked - s.claims)}")
        taken = {r: s.name for s in seen.members for r in s.revoked}
        for s in seen.members:
            for resource in sorted(s.gained & taken.keys()):
                fail("S4", now_ms, f"{resource} from {taken[resource]} to {s.name}")

    def _right(
        self, s: Seen, resource: Resource, claims: list[tuple[int, str]], now_ms: int
    ) -> None:
        """Return whether a member may have a resource after the round: S3, S10, S11."""
        fail = self.ownership_log.fail
        newest = max(claims, default=(-1, ""))[0]
        if resource not in s.claims:
            if claims:
                fail("S3", now_ms, f"{resource} goes to {s.name}, claimed by {claims[0][1]}")
            return
        mine = s.subscription.generation
        if mine < newest:
            fail("S10", now_ms, f"{resource} stays with {s.name} at {mine} < {newest}")
        elif sum(g == newest for g, _ in claims) > 1:
            fail("S11", now_ms, f"{resource} stays with {s.name} though claimed twice")

    def _order(
        self, request: ComputeAssignment, done: AssignmentComputed, assignor: Assignor, now_ms: int
    ) -> None:
        """Plan the same round with everything in another order: S13."""
        if not isinstance(assignor, PURE):
            return
        half = (len(request.members) + 1) // 2
        turned = (*request.members[half:], *request.members[:half])
        seen = LeaderRound(
            members=turned if self.rounds % 2 else request.members[::-1],
            partitions=dict(reversed(request.partitions)),
            generation=request.generation,
            leader_id=request.member_id,
            waited_ms=request.waited_ms,
            unbroken=request.unbroken,
            led=just_before(request),
        )
        other, given = assignor.lead(seen), dict(done.assignments)
        if other != given:
            name = min(m for m in given if other.get(m) != given[m])
            self.ownership_log.fail("S13", now_ms, f"{name} gets something else in another order")

    def _designs(self, seen: SeenRound, assignor: DesignAssignor, now_ms: int) -> None:
        fail, policy = self.ownership_log.fail, assignor.policy
        delays = {s.assignment.delay_ms for s in seen.members}
        if len(delays) > 1:
            fail("S9", now_ms, f"different delays: {sorted(delays)}")
        delay_ms = max(delays, default=0)
        n_revoked = sum(len(s.revoked) for s in seen.members)
        if delay_ms and n_revoked:
            fail("S9", now_ms, f"{n_revoked} revoked beside a delay of {delay_ms} ms")
        if 0 < delay_ms <= TOLERANCE_MS:
            fail("D5", now_ms, f"a delay of {delay_ms} ms")
        designs = {policy.design, *map(policy.design_of, policy.kinds)}
        paced = Design.INCREMENTAL in designs and policy.interval_ms > 0
        if delay_ms and not (policy.defers or paced or policy.waits_first or policy.needs_ages):
            fail("D6", now_ms, f"a delay of {delay_ms} ms where the policy has none")
        if n_revoked and not all(s.assignment.another_round for s in seen.members):
            fail("again", now_ms, "a member does not learn that another round is coming")
        paced |= Design.INCREMENTAL in designs or policy.needs_ages
        if delay_ms and not paced and _levels(policy, seen):
            loads = sorted(sum(map(seen.exists, s.after)) for s in seen.members if s.stays)
            if loads and loads[-1] - loads[0] > 1:
                text = f"beside a delay of {delay_ms} ms members own {loads[0]} to {loads[-1]}"
                fail("D9", now_ms, text)
        if Design.INCREMENTAL in designs:
            moves, most = _moves(seen, policy), _most_moves(seen, policy)
            if moves > most:
                fail("III", now_ms, f"{moves} moves in a round, at most {most} may be")


def _plainly_safe(seen: SeenRound) -> bool:
    """Return whether whole sets show S1, S3, S4, S8, S10 to S12; the usual case.

    Every claimed resource has one claim, so no claim is stale or doubled (S10, S11). Every owned
    resource has one owner afterwards (S1). No member claimed a gained resource (S3), so it was
    revoked from no member either (S4). S8 and S12 are checked member by member.
    """
    members = seen.members
    if sum(len(s.claims) for s in members) != len(seen.claimed):
        return False
    if sum(len(s.after) for s in members) != len(seen.after):
        return False
    for s in members:
        gained = s.gained
        if (s.claims and s.subscription.generation < 0) or not s.revoked <= s.claims:
            return False
        if not gained:
            continue
        subscribed = s.subscription.topics if s.stays else ()
        if not gained.isdisjoint(seen.claimed):
            return False
        if any(t not in subscribed or not 0 <= p < seen.partitions.get(t, 0) for t, p in gained):
            return False
    return True


def _levels(policy: Policy, seen: SeenRound) -> bool:
    """Return whether the remaining members can and shall own equally many, or one more."""
    subscribed = {s.subscription.topics for s in seen.members if s.stays}
    best = "optimal" in find(policy.assignor).laws
    return best and not (policy.isolate or policy.weights) and len(subscribed) == 1


def _most_moves(seen: SeenRound, policy: Policy) -> int:
    """Return how many moves Design III may make: a batch for each member that can gain.

    Where members shall own equally many, a member that owns less than its fair share gains.
    Elsewhere all but one may: a move leads from a member to another one.
    """
    stay = [s for s in seen.members if s.stays]
    takers = len(stay) - 1
    if _levels(policy, seen):
        owned = [sum(map(seen.exists, s.claims)) for s in stay]
        total = sum(seen.partitions.get(topic, 0) for topic in seen.subscribed)
        takers = min(takers, sum(n < -(-total // len(stay)) for n in owned))
    most = policy.batch * max(0, takers)
    return min(most, policy.group_batch) if policy.group_batch else most


def _moves(seen: SeenRound, policy: Policy) -> int:
    """Return revocations of valid claims: newest, single, of existing and subscribed resources.

    Revocations of a kind that Design III does not pace do not count.
    """
    return sum(
        policy.design_of(kind) is Design.INCREMENTAL for kind, _ in revoked_valid_claims(seen)
    )

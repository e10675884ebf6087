"""The rules of the protocol, checked on bytes and on time; this file has the table of all of them.

Shared by the simulation, the exhaustive search and the property tests. :data:`RULES` says of each
rule what is checked here; where that is another form than the protocol's text, it says why.

**Rules.** A checker reports to the ledger and never raises. What it needs it reads from messages or
keeps by its own clock; it does not ask the machine under check.

**Strategy.** :class:`RoundChecker` takes every leader's turn: safety here, S13 by planning again in
another order, L2 and L3 in :mod:`holdfast.sim.rules.pacing`, deferral in
:mod:`holdfast.sim.rules.waiting`. Rules that need time stand in :mod:`holdfast.sim.world.ledger`,
those of a whole run at its end (:mod:`holdfast.sim.scenarios`, :mod:`holdfast.sim.soak`).

References: Incremental Cooperative Rebalancing, "Leader process".
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.machine.actions import ComputeAssignment, JoinCompleted
from holdfast.machine.events import AssignmentComputed
from holdfast.machine.leader.designs import (
    Assignor,
    CooperativeAssignor,
    DesignAssignor,
    EagerAssignor,
    LeaderRound,
)
from holdfast.machine.member.holdings import ordered
from holdfast.model.partitions import Resource
from holdfast.sim.rules.pacing import Pacing
from holdfast.sim.rules.seen import Seen, SeenTurn, read_assignment, see
from holdfast.sim.rules.waiting import WaitingRules
from holdfast.sim.world.ledger import Ledger
from holdfast.wire.layouts.incremental import Design

RULES: Mapping[str, str] = {
    "S1": "no resource is owned by two members after a round, nor runs at two members of the group",
    "S2": "who was removed stops within session timeout and callbacks; its commits are refused",
    "S3": "what is gained was claimed by nobody else in that round",
    "S4": "nothing is revoked from one member and given to another in one round",
    "S5": "a resource starts only after the one before has stopped and its commit has ended",
    "S6": "a member starts only what it owns and subscribes to",
    "S7": "next = (owned - revoked) + assigned in a design, assigned alone elsewhere",
    "S8": "what is revoked was claimed by that member in that round",
    "S9": "one delay for all, none beside a revocation. Doubled and stale claims are revoked while "
    "something waits, because S1 is worth more: that round carries no delay",
    "S10": "no claim older than the newest stands; a reset member claims nothing; never backwards",
    "S11": "what two members claim at one generation is nobody's after the round",
    "S12": "what is assigned exists and its receiver subscribes to it",
    "S13": "the same turn in another order of members and topics gives the same bytes; there is no "
    "clock in a turn. Above 2,000 claims every sixteenth turn only: it doubles the planning",
    "S14": "assigned, then exactly one of revoked or lost, also at a member's end; only what was "
    "dropped is lost. Calls are one queue and carry no generation: their order is this alternation",
    "S15": "a committed offset never decreases. Where fetching starts is the runtime's duty: a "
    "world starts at the commit by construction, the adapters' tests check the real one",
    "L1": "without new faults all is owned and processed within a bound; nothing free stays free",
    "L2": "loads end within one of each other; Design III's balance score never rises on the way",
    "L3": "each revoking round has a smaller (balance score, moves left) than the one before it",
    "L4": "rounds stay below a multiple of their causes, and none happens in a quiet minute",
    "L5": "what waits is promised and handed out by the deadline of its own loss",
    "L6": "the same after a change of leader. Stricter than the document: members tell a newcomer",
    "D1": "what waits goes to nobody who was there when it was lost, until the member is back. If "
    "newcomers have its place, what they need not carry is free for who has no more than they: D2 "
    "ends their share, and there is nobody left to wait for",
    "D2": "who is back by identity gets all that waited; a newcomer alone is served first, up to "
    "its fair share",
    "D3": "a topic that the memory has never seen is assigned in the round that sees it. One that "
    "it names is known, or a group of one-partition topics could never wait",
    "D4": "so are new partitions of a known topic, what was given up on request, and everything in "
    "a group without claims or memory",
    "D5": "a delay is longer than the tolerance",
    "D6": "no delay where the policy has none",
    "D7": "no more is promised than the policy's delay, though every process has its own clock",
    "D8": "where the policy says so, who announced to leave for good is not waited for",
    "III": "at most a batch of balancing moves in a round",
    "again": "a round that revokes tells everybody that another one is coming",
}
"""Rule -> what is checked."""

MANY_CLAIMS = 2_000
PURE = (DesignAssignor, CooperativeAssignor, EagerAssignor)
"""Assignors whose turn has no memory of its own; Connect's has, and cannot be asked twice."""


class RoundChecker:
    """Checks every leader's turn of a run; remembers what waits.

    Parameters
    ----------
    ledger : Ledger
        Where broken rules are noted.
    delay_ms : int
        The policy's delay, 0 none.
    """

    def __init__(self, ledger: Ledger, delay_ms: int):
        self.ledger = ledger
        self.waiting = WaitingRules(ledger, delay_ms)
        self.pacing = Pacing(ledger)
        self.turns = 0
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
        """Check one turn; one that is not ``current`` comes too late to have an effect."""
        turn = see(request, done, assignor)
        self.turns += 1
        self._assignors[request.protocol_name] = assignor
        self._safety(turn, now_ms)
        if isinstance(assignor, DesignAssignor):
            self._designs(turn, assignor, now_ms)
        if not current:
            return
        if sum(len(s.claims) for s in turn.members) <= MANY_CLAIMS or self.turns % 16 == 0:
            self._order(request, done, assignor, now_ms)
        if isinstance(assignor, DesignAssignor):
            self.waiting.check(turn, assignor.policy, now_ms)
        self.pacing.check(turn, assignor, now_ms)

    def stored(self, generation: int, protocol: str, assignments: Mapping[str, bytes]) -> None:
        """The coordinator has taken these assignments for a generation."""
        self._stored_as, self._stored = (generation, protocol), dict(assignments)

    def completed(self, done: JoinCompleted, now_ms: int) -> None:
        """A member has taken over its assignment (S7)."""
        data = self._stored.get(done.member_id)
        assignor = self._assignors.get(done.protocol_name)
        if data is None or assignor is None:
            return
        if self._stored_as != (done.generation, done.protocol_name):
            return
        assignment = read_assignment(assignor, data)
        nothing_revoked = not (assignment.revoked or done.revoked)
        if nothing_revoked and ordered(assignment.assigned) == done.owned:
            return  # the usual case: all that it owns was listed
        owned = frozenset(done.owned)
        before = owned.difference(done.gained).union(done.revoked)
        right = assignment.owned_after(before)
        if right != owned:
            wrong = min(right ^ owned)
            self.ledger.fail(
                "S7", now_ms, f"{done.member_id} reads its assignment of {wrong} wrong"
            )

    # One turn

    def _safety(self, turn: SeenTurn, now_ms: int) -> None:
        if not _plainly_safe(turn):
            self._look_closely(turn, now_ms)

    def _look_closely(self, turn: SeenTurn, now_ms: int) -> None:
        """Name each resource and rule."""
        fail = self.ledger.fail
        claimed: dict[Resource, list[tuple[int, str]]] = {}
        for s in turn.members:
            if s.claims and s.subscription.generation < 0:
                fail("S10", now_ms, f"{s.name} has no generation and claims {min(s.claims)}")
            for resource in s.claims:
                claimed.setdefault(resource, []).append((s.subscription.generation, s.name))
        owner: dict[Resource, str] = {}
        for s in turn.members:
            for resource in sorted(s.after):
                if resource in owner:
                    fail("S1", now_ms, f"{resource} is {owner[resource]}'s and {s.name}'s after")
                owner[resource] = s.name
                self._right(s, resource, claimed.get(resource, []), now_ms)
            for resource in sorted(s.gained):
                topic, partition = resource
                exists = 0 <= partition < turn.partitions.get(topic, 0)
                if not exists or topic not in s.subscription.topics or not s.stays:
                    fail("S12", now_ms, f"{resource} goes to {s.name}, which cannot have it")
            if s.revoked - s.claims:
                fail("S8", now_ms, f"{s.name} is to give up {min(s.revoked - s.claims)}")
        taken = {r: s.name for s in turn.members for r in s.revoked}
        for s in turn.members:
            for resource in sorted(s.gained & taken.keys()):
                fail("S4", now_ms, f"{resource} from {taken[resource]} to {s.name}")

    def _right(
        self, s: Seen, resource: Resource, claims: list[tuple[int, str]], now_ms: int
    ) -> None:
        """S3, S10, S11: whether a member may have this after the round."""
        fail = self.ledger.fail
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
        """S13: plan the same turn with everything in another order."""
        if not isinstance(assignor, PURE):
            return
        half = (len(request.members) + 1) // 2
        turned = (*request.members[half:], *request.members[:half])
        turn = LeaderRound(
            members=turned if self.turns % 2 else request.members[::-1],
            partitions=dict(reversed(request.partitions)),
            generation=request.generation,
            leader_id=request.member_id,
            waited_ms=request.waited_ms,
        )
        other, given = assignor.lead(turn), dict(done.assignments)
        if other != given:
            name = min(m for m in given if other.get(m) != given[m])
            self.ledger.fail("S13", now_ms, f"{name} gets something else in another order")

    def _designs(self, turn: SeenTurn, assignor: DesignAssignor, now_ms: int) -> None:
        fail, policy = self.ledger.fail, assignor.policy
        delays = {s.assignment.delay_ms for s in turn.members}
        if len(delays) > 1:
            fail("S9", now_ms, f"different delays: {sorted(delays)}")
        delay_ms = max(delays, default=0)
        n_revoked = sum(len(s.revoked) for s in turn.members)
        if delay_ms and n_revoked:
            fail("S9", now_ms, f"{n_revoked} revoked beside a delay of {delay_ms} ms")
        if 0 < delay_ms <= policy.tolerance_ms:
            fail("D5", now_ms, f"a delay of {delay_ms} ms")
        paced = policy.design is Design.INCREMENTAL and policy.interval_ms > 0
        if delay_ms and not policy.defers and not paced:
            fail("D6", now_ms, f"a delay of {delay_ms} ms where the policy has none")
        if n_revoked and not all(s.assignment.another_round for s in turn.members):
            fail("again", now_ms, "somebody is not told that another round is coming")
        if policy.design is Design.INCREMENTAL:
            moves = _moves(turn)
            if moves > policy.batch:
                fail("III", now_ms, f"{moves} moves in a round, batch {policy.batch}")


def _plainly_safe(turn: SeenTurn) -> bool:
    """Whether whole sets already show that S1, S3, S4, S8, S10, S11 and S12 hold; the usual case.

    Everything is claimed once and had once afterwards, so no claim is stale or doubled; what is
    gained was claimed by nobody, so it was not taken from anybody either.
    """
    members = turn.members
    if sum(len(s.claims) for s in members) != len(turn.claimed):
        return False
    if sum(len(s.after) for s in members) != len(turn.after):
        return False
    for s in members:
        gained = s.gained
        if (s.claims and s.subscription.generation < 0) or not s.revoked <= s.claims:
            return False
        if not gained:
            continue
        subscribed = s.subscription.topics if s.stays else ()
        if not gained.isdisjoint(turn.claimed):
            return False
        if any(t not in subscribed or not 0 <= p < turn.partitions.get(t, 0) for t, p in gained):
            return False
    return True


def _moves(turn: SeenTurn) -> int:
    """Revocations of claims that stand: newest, single, of what exists and is subscribed to."""
    if not any(s.revoked for s in turn.members):
        return 0
    newest: dict[Resource, int] = {}
    times: dict[tuple[Resource, int], int] = {}
    for s in turn.members:
        for r in s.claims:
            newest[r] = max(newest.get(r, -1), s.subscription.generation)
            key = (r, s.subscription.generation)
            times[key] = times.get(key, 0) + 1
    return sum(
        s.subscription.generation == newest[r]
        and times[r, newest[r]] == 1
        and r[0] in s.subscription.topics
        and turn.exists(r)
        for s in turn.members
        for r in s.revoked & s.claims
    )

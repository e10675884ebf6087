"""The rules that one leader's turn can break, checked on bytes: what came in, what went out.

Shared by the simulation, the exhaustive search and the property tests.

====  ==========================================================  =============================
rule  checked here as                                             elsewhere
====  ==========================================================  =============================
S1    no resource is in what two members own after the round      ledger, over time
S2    -                                                           ledger: a removed one stops
S3    what is gained was claimed by nobody else                   -
S4    nothing is revoked from one and given to another            -
S5    -                                                           ledger: commit before start
S6    -                                                           world: starts what it owns
S7    one message, one reading                                    the member's own tests
S8    what is revoked was claimed by that member                  -
S9    one delay for all, and none beside a revocation             -
S10   no claim older than the newest of its resource stands       ledger: never goes back
S11   what two claim at one generation, nobody owns after         -
S12   what is assigned exists and is subscribed                   -
S13   -                                                           tests: any order, one plan
S14   -                                                           ledger: callbacks
S15   -                                                           ledger: offsets
D1    what waits goes to nobody who was there when it was lost    -
D2    a member that is back by identity gets all that waited      -
D3-4  new resources are assigned in the round that sees them      -
D5    a delay is longer than the tolerance                        -
D6    no delay where the policy has none                          -
L5    what waits is handed out by its own deadline                -
III   at most a batch of balancing moves in a round               -
====  ==========================================================  =============================

**Forms other than PROTOCOL's, and why.** S9 allows revocations of doubled or stale claims while
something waits, because S1 is worth more; such a round carries no delay. D3 counts a topic that the
memory names as known, or a group of one-partition topics could never wait. L6 is kept more
strictly than asked: a leader new to the group hears of the deadline from the others. D7 and D8 are
properties of the member's inputs (monotonic time; an announcement): tests, not run-time checks.

References: PROTOCOL sections c and f; Incremental Cooperative Rebalancing, "Leader process".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import WireError
from holdfast.machine.actions import ComputeAssignment
from holdfast.machine.designs import Assignor, Designed, read_claimant, resources_of
from holdfast.machine.embedded import Instruction
from holdfast.machine.events import AssignmentComputed, Resource
from holdfast.machine.leader import Claimant
from holdfast.sim.ledger import Ledger
from holdfast.wire.container import Leaving, Memory, decode_memory
from holdfast.wire.incremental import Design

EARLY_MS = 1_000  # handing out so long before the deadline is too early
SLACK_MS = 90_000  # one rebalance that waits for a silent member, and detection


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One member in one round: what it claimed and what it was told."""

    claimant: Claimant
    claims: frozenset[Resource]
    told: Instruction
    revoked: frozenset[Resource]
    after: frozenset[Resource]

    @property
    def gained(self) -> frozenset[Resource]:
        """What it did not claim and gets."""
        return self.told.assigned - self.claims


@dataclass(slots=True)
class Loss:
    """A resource that waits: since when, and who was there."""

    since_ms: int
    present: frozenset[str]


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
        self.delay_ms = delay_ms
        self.losses: dict[Resource, Loss] = {}
        self.slack_ms = SLACK_MS

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
        given = dict(done.assignments)
        seen = []
        for member in request.members:
            older_ms = request.waited_ms if member.member_id == request.member_id else 0
            claimant = read_claimant(
                member.member_id, member.instance_id, member.metadata, older_ms=older_ms
            )
            seen.append(_seen(claimant, assignor, given.get(member.member_id)))
        seen.sort(key=lambda s: s.claimant.member_id)
        partitions = dict(request.partitions)
        self._safety(seen, partitions, now_ms)
        if isinstance(assignor, Designed):
            self._designs(seen, assignor, now_ms)
            if current:
                self._waiting(seen, partitions, assignor, request.generation, now_ms)

    def _safety(self, seen: list[Seen], partitions: Mapping[str, int], now_ms: int) -> None:
        fail = self.ledger.fail
        claimed: dict[Resource, list[tuple[int, str]]] = {}
        for s in seen:
            for resource in s.claims:
                claimed.setdefault(resource, []).append(
                    (s.claimant.generation, s.claimant.member_id)
                )
        owner: dict[Resource, str] = {}
        for s in seen:
            name = s.claimant.member_id
            for resource in sorted(s.after):
                if resource in owner:
                    fail("S1", now_ms, f"{resource} is {owner[resource]}'s and {name}'s after")
                owner[resource] = name
                self._right(s, resource, claimed.get(resource, []), now_ms)
            for resource in sorted(s.gained):
                topic, partition = resource
                exists = 0 <= partition < partitions.get(topic, 0)
                leaves = s.claimant.leaving is Leaving.FOR_GOOD
                if not exists or topic not in s.claimant.topics or leaves:
                    fail("S12", now_ms, f"{resource} goes to {name}, which cannot have it")
            if s.revoked - s.claims:
                fail("S8", now_ms, f"{name} is to give up {sorted(s.revoked - s.claims)[0]}")
        taken = {r: s.claimant.member_id for s in seen for r in s.revoked}
        for s in seen:
            for resource in sorted(s.gained & taken.keys()):
                fail("S4", now_ms, f"{resource} from {taken[resource]} to {s.claimant.member_id}")

    def _right(
        self, s: Seen, resource: Resource, claims: list[tuple[int, str]], now_ms: int
    ) -> None:
        """S3, S10, S11: whether a member may have this after the round."""
        fail, name = self.ledger.fail, s.claimant.member_id
        newest = max(claims, default=(-1, ""))[0]
        if resource not in s.claims:
            if claims:
                fail("S3", now_ms, f"{resource} goes to {name}, claimed by {claims[0][1]}")
            return
        mine = s.claimant.generation
        if mine < newest:
            fail("S10", now_ms, f"{resource} stays with {name} at {mine} < {newest}")
        elif sum(g == newest for g, _ in claims) > 1:
            fail("S11", now_ms, f"{resource} stays with {name} though claimed twice")

    def _designs(self, seen: list[Seen], assignor: Designed, now_ms: int) -> None:
        fail, policy = self.ledger.fail, assignor.policy
        delays = {s.told.delay_ms for s in seen}
        if len(delays) > 1:
            fail("S9", now_ms, f"different delays: {sorted(delays)}")
        delay_ms = max(delays, default=0)
        n_revoked = sum(len(s.revoked) for s in seen)
        if delay_ms and n_revoked:
            fail("S9", now_ms, f"{n_revoked} revoked beside a delay of {delay_ms} ms")
        if 0 < delay_ms <= policy.tolerance_ms:
            fail("D5", now_ms, f"a delay of {delay_ms} ms")
        paced = policy.design is Design.INCREMENTAL and policy.interval_ms > 0
        if delay_ms and not policy.defers and not paced:
            fail("D6", now_ms, f"a delay of {delay_ms} ms where the policy has none")
        if n_revoked and not all(s.told.again for s in seen):
            fail("again", now_ms, "somebody is not told that another round is coming")
        if policy.design is Design.INCREMENTAL:
            newest: dict[Resource, int] = {}
            times: dict[tuple[Resource, int], int] = {}
            for s in seen:
                for r in s.claims:
                    newest[r] = max(newest.get(r, -1), s.claimant.generation)
                    key = (r, s.claimant.generation)
                    times[key] = times.get(key, 0) + 1
            moves = sum(
                s.claimant.generation == newest[r]
                and times[r, newest[r]] == 1
                and r[0] in s.claimant.topics
                for s in seen
                for r in s.revoked & s.claims
            )
            if moves > policy.batch:
                fail("III", now_ms, f"{moves} moves in a round, batch {policy.batch}")

    def _waiting(
        self,
        seen: list[Seen],
        partitions: Mapping[str, int],
        assignor: Designed,
        generation: int,
        now_ms: int,
    ) -> None:
        """D1, D2, D3, D4 and L5."""
        present = frozenset(s.claimant.member_id for s in seen)
        instances = {s.claimant.instance_id for s in seen} - {None}
        memory = newest_memory([s.claimant for s in seen], generation)
        copies = [c for c in (s.claimant for s in seen) if _is_copy(c, memory)]
        named = _named(memory, max((c.memory_age_ms for c in copies), default=0))
        was_here = {m.member_id for m in memory.members} if memory is not None else present
        subscribed = {
            t for s in seen if s.claimant.leaving is not Leaving.FOR_GOOD for t in s.claimant.topics
        }
        claimed = frozenset[Resource]().union(*(s.claims for s in seen))
        owned = {r: s.claimant for s in seen for r in s.after}
        for resource, loss in list(self.losses.items()):
            topic, partition = resource
            exists = 0 <= partition < partitions.get(topic, 0) and topic in subscribed
            if not exists or resource in claimed or resource in owned:
                who = named.get(resource)
                back = who is not None and (who[0] in present or who[1] in instances)
                early = who is not None and who[2] > EARLY_MS
                if who is not None and early and not back:  # back: it has it, or refuses it
                    self._handed(resource, loss, owned.get(resource), who[0], now_ms)
                del self.losses[resource]
        for topic in sorted(subscribed):
            for partition in range(partitions.get(topic, 0)):
                resource = (topic, partition)
                if resource not in claimed and resource not in owned:
                    self._unassigned(
                        resource,
                        present & was_here,
                        memory,
                        named,
                        now_ms,
                        defers=assignor.policy.defers,
                    )
        self._returned(seen, memory, claimed, partitions, now_ms)

    def _handed(
        self,
        resource: Resource,
        loss: Loss,
        receiver: Claimant | None,
        owner: str,
        now_ms: int,
    ) -> None:
        """What waits for a member that is not back goes to nobody who was there (D1)."""
        if receiver is None or receiver.member_id not in loss.present:
            return
        text = f"{resource} waits for {owner}, goes to {receiver.member_id}"
        self.ledger.fail("D1", now_ms, text)

    def _unassigned(
        self,
        resource: Resource,
        present: frozenset[str],
        memory: Memory | None,
        named: Mapping[Resource, tuple[str, str | None, int]],
        now_ms: int,
        *,
        defers: bool,
    ) -> None:
        if not defers:
            self.ledger.fail(
                "L1", now_ms, f"{resource} is claimed by nobody and assigned to nobody"
            )
            return
        loss = self.losses.get(resource)
        if loss is None or resource not in named:
            self.losses[resource] = Loss(since_ms=now_ms, present=present)
            fresh = memory is not None and resource not in _known(memory)
            if fresh and memory is not None and any(m.owned for m in memory.members):
                self.ledger.fail("D3", now_ms, f"{resource} is new and is not assigned")
            return
        if now_ms > loss.since_ms + self.delay_ms + self.slack_ms:
            text = f"{resource} waits {now_ms - loss.since_ms} ms of {self.delay_ms}"
            self.ledger.fail("L5", now_ms, text)

    def _returned(
        self,
        seen: list[Seen],
        memory: Memory | None,
        claimed: frozenset[Resource],
        partitions: Mapping[str, int],
        now_ms: int,
    ) -> None:
        for m in memory.members if memory is not None else ():
            if m.instance_id is None or not m.delay_ms:
                continue
            back = [s for s in seen if s.claimant.instance_id == m.instance_id]
            for s in back:
                waited = {
                    (t, p)
                    for t, p in resources_of(m.owned) - claimed
                    if t in s.claimant.topics and p < partitions.get(t, 0)
                }
                if s.claimant.leaving is not Leaving.FOR_GOOD and not waited <= s.after:
                    text = f"{m.instance_id} is back and does not get {sorted(waited - s.after)[0]}"
                    self.ledger.fail("D2", now_ms, text)


def newest_memory(claimants: list[Claimant], generation: int) -> Memory | None:
    """The memory of the newest generation that anybody carries, as it was written."""
    found: list[Memory] = []
    for data in sorted({c.memory for c in claimants if c.memory is not None}):
        try:
            found.append(decode_memory(data))
        except WireError:
            continue
    found = [m for m in found if m.generation < generation]
    return max(found, key=lambda m: m.generation, default=None)


def _is_copy(claimant: Claimant, memory: Memory | None) -> bool:
    """Whether a member carries this very memory."""
    found = newest_memory([claimant], 2**31)
    return memory is not None and found is not None and found.generation == memory.generation


def _named(memory: Memory | None, age_ms: int) -> dict[Resource, tuple[str, str | None, int]]:
    """Whom each waiting resource waits for, and how long still."""
    if memory is None:
        return {}
    return {
        r: (m.member_id, m.instance_id, m.delay_ms - age_ms)
        for m in memory.members
        if m.delay_ms
        for r in resources_of(m.owned)
    }


def _known(memory: Memory) -> frozenset[Resource]:
    """Everything the memory speaks of."""
    parts = [resources_of(m.owned) for m in memory.members]
    return frozenset[Resource]().union(*parts, resources_of(memory.given_up))


def _seen(claimant: Claimant, assignor: Assignor, data: bytes | None) -> Seen:
    told = Instruction(assigned=frozenset()) if data is None else assignor.read(data)
    claims = resources_of(claimant.owned)
    revoked = claims - told.assigned if told.absence_revokes else told.revoked
    return Seen(
        claimant=claimant,
        claims=claims,
        told=told,
        revoked=revoked,
        after=(claims - revoked) | told.assigned,
    )

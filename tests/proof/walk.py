"""Exhaustive search of small worlds: every interleaving within a bound, by the real machines.

**Rules.** A state in which nothing more happens must be settled: each partition is run once, loads
are even, every member is stable (L1, L2). From every other state a settled one must be reached
without further faults (L1). Safety is checked at each leader's plan and at each start.

**Reductions.** In many states it is enough to follow the steps of one process i first and to leave
the steps of all others for later (a *persistent set*). Numbers in brackets are referred to below.

(1) *The set of i* is: each message from or to i that is under way, as it arrives, is lost or
becomes late; the end of i's action; i's timer, if it is due; i's crash; i's leaving; the loss of
i's shard of the leader state, and a new subscription of i, which no other process reads but in a
join of i. A held message is not in it, because it arrives only after time has moved.

(2) The set of i may be followed alone if no join or sync of i waits for an answer at the
coordinator, and if each step in it is one of R1 to R5 (faults of i's own messages aside, see (6)):

====  ============================================================================================
R1    an answer arrives at i, i's duty ends, or i's timer runs out and sends no heartbeat
R2    i's join arrives while the group prepares a round and waits for another join, too; or i's
      heartbeat of the current generation arrives while the prepared round waits for i's join
R3    i's sync for the current generation arrives, i is not the leader, the leader's sync is still
      awaited, and i's session has just begun
R4    i's commit for the current generation arrives while the group prepares a round or is stable
R5    i's heartbeat of an older generation arrives, and i is a member
====  ============================================================================================

(3) *What the others do first does not change what a step of i does, and the other way round.*

- R1 reads and writes only i's own state; what it sends sets out. Example: m0's SyncGroup answer
  arrives, and m1's join arrives at the coordinator. Neither reads what the other one changes.
- R2: the round cannot end without i's join. Example: joins of m0 and m1 are awaited. If m0's comes
  first, it waits, and m1's join ends the round; the other way round m1's waits. Both orders give
  the same generation and the same answers. A heartbeat meanwhile is answered REBALANCE_IN_PROGRESS
  in either order.
- R3: the sync is answered with the same assignment, whether it waits for the leader's sync or comes
  after it. If somebody's join ends the generation, it is refused with REBALANCE_IN_PROGRESS in
  either order. Either way i's session begins now; that is why it must have begun just now before.
- R4: a commit is refused only in ``COMPLETING_REBALANCE``, which the group cannot enter without a
  join of i, and i has not joined. Example: m0 commits for its revocation, and m1's join moves the
  group from ``STABLE`` to ``PREPARING_REBALANCE``: the commit is accepted before and after it.
- R5: the heartbeat is refused with ILLEGAL_GENERATION and changes nothing. A generation that has
  ended is never current again, and only time can remove i, and time does not move (5).

(4) *The others open no other step of i.* A message comes to i only as the answer to a request of i,
and by (2) the coordinator holds none. Example for why (2) asks for that: m1's sync waits, and m0's,
the leader's, answers it. Then m0's step opens a step of m1, so m1 must not be followed alone.

(5) *Time does not come between.* It moves only when no message, action or timer is open, and the
set of i is not empty. Held messages arrive after that.

(6) *Faults are shared, and no end is lost by that.* Example: one join may be lost, and joins of m0
and m1 are under way. If m1's is lost first, m0's can only arrive. Followed alone, m0's arrives or
is lost; after its arrival m1's can still be lost. The same holds for crashes and leaves.

(7) *A check that sees something in one order sees it in the other.* Example: m0 still runs p, and
m1 is to start p. If m0's step, which ends p, is followed first, m1's start finds no other. But the
leader assigned p to m1 while m0 claimed it, and that plan was refused when it was made (S3, S4). If
both start p, the second start finds the first one in either order (S1).

(8) *An answer that its receiver does not await is dropped at once.* Request numbers are given once,
so it would change nothing. To lose it instead would only spend a fault: whatever happens after that
also happens with the fault unspent.

(9) *States that behave equally are one* (:mod:`tests.proof.canonical`).

``Bound.reduce`` false searches without (2), (8) and (9), and a test compares settled ends and
broken rules of both.

**Strategy.** Depth first. Seen states are kept as packed numbers. Of each state the first step
without a fault is kept as well; following these steps must lead to a settled state.

References: Godefroid, "Partial-Order Methods" (persistent sets).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.proof.canonical import OPTIONS
from tests.proof.small_state import (
    GONE,
    KIND_OF,
    NOT_STARTED,
    InFlight,
    Left,
    NodeFacts,
    State,
)
from tests.proof.small_world import SmallWorld

from holdfast.core.machine.actions import SendJoin, SendSync
from holdfast.core.machine.coordinator.group import SendCommit
from holdfast.core.machine.events import (
    Drained,
    LeaveRequested,
    RequestFailed,
    SubscriptionChanged,
    Tick,
)
from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.member.member_data import NEVER_MS
from holdfast.core.machine.states import GroupState
from holdfast.core.model.partitions import Resource
from holdfast.sim.clock import Violation

KINDS = ("join", "sync", "heartbeat", "leave", "commit")
"""Kinds of request of which a message may be lost or late."""

Numbered = tuple[State, int]
Track = Callable[[Iterator[Numbered]], Iterable[Numbered]]

PREPARING, COMPLETING = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The bound of a search.

    Parameters
    ----------
    crashes, leaves, joins : int
        How many members crash, how many leaders leave, how many members join, at any moment.
    subscribes, more : int
        How many members subscribe to a second topic, at any moment, and its partitions.
    forgets : int
        How many members lose their shard of the leader state, each at any moment.
    lost : str
        Kinds of request with commas between: of each, one request or answer is lost or late.
    locations : bool
        Whether members have locations; joining members have that of the first member.
    generations : int
        Rounds after which a path is aborted, which breaks L4; counted in ``cut``.
    reduce : bool
        Whether the reductions are used.
    """

    members: int = 3
    joins: int = 1
    partitions: int = 4
    crashes: int = 1
    leaves: int = 1
    subscribes: int = 0
    more: int = 2
    forgets: int = 0
    lost: str = ""
    static: bool = False
    locations: bool = False
    generations: int = 30
    max_states: int = 20_000_000
    reduce: bool = True


@dataclass(slots=True, kw_only=True)
class Found:
    """The results of a search.

    ``outcomes`` are the settled ends: what each process runs.
    """

    states: int = 0
    transitions: int = 0
    settled: int = 0
    cut: int = 0
    complete: bool = True
    violations: list[Violation] = field(default_factory=list)
    outcomes: set[tuple[tuple[Resource, ...], ...]] = field(default_factory=set)

    def line(self) -> str:
        """Return one line for people."""
        whole = "complete" if self.complete else "stopped at the limit"
        return (
            f"{self.states} states, {self.transitions} transitions, {self.settled} settled, "
            f"{self.cut} cut, {len(self.violations)} violations, {whole}"
        )


class Search:
    """A search of one bound under one policy."""

    def __init__(self, assignors: tuple[Assignor, ...], bound: Bound):
        self.bound = bound
        total = bound.members + bound.joins
        self.world = SmallWorld(
            assignors,
            total,
            bound.partitions,
            more=bound.more if bound.subscribes else 0,
            static=bound.static,
            locations=bound.members if bound.locations else 0,
            reduce=bound.reduce,
        )
        self.ownership_log = self.world.ownership_log
        self.found = Found()

    # Transitions

    def next_states(self, state: State) -> Iterator[State]:
        """Yield every state that one step leads to, those without a fault first."""
        if self.bound.reduce:
            alone = self._alone(state)
            if alone is not None:
                i, messages, own = alone
                for message in messages:
                    yield from self._steps_of(state, i, message)
                if own:
                    yield from self._steps_of(state, i, None)
                yield from self._faults_of(state, i)
                return
        yield from self._events(state)
        for i in range(len(state.nodes)):
            yield from self._faults_of(state, i)
        left = self.world.lefts.values[state.left]
        if left.joins:
            i = len(state.nodes) - left.joins
            yield self.world.start(self._spend(state, joins=left.joins - 1), i)

    def _events(self, state: State) -> Iterator[State]:
        """Yield every step but crash, leave and start; time moves only when there is no other."""
        world = self.world
        values = world.messages.values
        ready = [m for m in state.messages if not values[m].held]
        living = self._living(state)
        pending_drains = [i for i, facts in living if facts.pending_drain >= 0]
        due = [i for i, facts in living if facts.deadline_ms <= 0]
        if not ready and not pending_drains:
            if not due:
                yield from self._pass_time(state, living)
                return
            if world.group_facts(state.group).state is GroupState.STABLE:
                after = state
                for i in due:
                    after = world.notify(after, i, Tick(0))
                yield after
                for i in due:
                    yield from self._lose_heartbeat(state, i)
                return
        for message in ready:
            yield from self._steps_of(state, values[message].member, message)
        for i in dict.fromkeys((*pending_drains, *due)):
            yield from self._steps_of(state, i, None)

    def _steps_of(self, state: State, i: int, message: int | None) -> Iterator[State]:
        """Deliver, lose or delay a message; or without one, end an action or run a timer."""
        world = self.world
        if message is not None:
            yield world.deliver(state, message)
            kind = KIND_OF[type(world.messages.values[message].body)]
            if self._may_fail(state, kind):
                spent = self._spend_fault(state, kind)
                yield world.lose(spent, message)
                yield world.hold(spent, message)
            return
        facts = world.facts(i, state.nodes[i])
        if facts.pending_drain >= 0:
            yield world.notify(state, i, Drained(facts.pending_drain))
        if facts.deadline_ms <= 0:
            yield world.notify(state, i, Tick(0))
            yield from self._lose_heartbeat(state, i)

    def _lose_heartbeat(self, state: State, i: int) -> Iterator[State]:
        """Lose or delay a due heartbeat, or its answer."""
        world = self.world
        if not self._may_fail(state, "heartbeat"):
            return
        effect = world.react(i, state.nodes[i], Tick(0))
        if not effect.beats:
            return
        spent = self._spend_fault(state, "heartbeat")
        placed = world.placed(spent, i, effect)
        for body in effect.beats:
            yield world.notify(placed, i, RequestFailed(body.request))
            yield world.add(placed, InFlight(i, True, body, held=True))
            group, answer = world.beat(placed.group, i, body)
            late = placed._replace(group=group)
            yield world.add(late, InFlight(i, False, answer, held=True))

    def _faults_of(self, state: State, i: int) -> Iterator[State]:
        """Crash one process, lose its shard, or let the last leader leave."""
        world = self.world
        node = state.nodes[i]
        if node <= GONE:
            return
        left, facts = world.lefts.values[state.left], world.facts(i, node)
        if facts.ended:
            return
        if left.crashes:
            yield world.crash(self._spend(state, crashes=left.crashes - 1), i)
        if left.forgets:
            forgetful = world.forget(self._spend(state, forgets=left.forgets - 1), i)
            if forgetful.nodes[i] != node:
                yield forgetful
        if left.subscribes and facts.topics == ("t",) and not facts.leaving:
            spent = self._spend(state, subscribes=left.subscribes - 1)
            yield world.notify(spent, i, SubscriptionChanged(("t", "u")))
        if left.leaves and facts.leads:
            yield world.notify(self._spend(state, leaves=left.leaves - 1), i, LeaveRequested())

    def _pass_time(self, state: State, living: list[tuple[int, NodeFacts]]) -> Iterator[State]:
        """Move all clocks to the next deadline; held messages are on their way from then on."""
        world = self.world
        delta = min((f.deadline_ms for _, f in living), default=NEVER_MS)
        delta = min(delta, world.group_facts(state.group).deadline_ms)
        delta = 0 if delta >= NEVER_MS else delta
        values = world.messages.values
        about = {values[m].member for m in state.messages}
        waits = world.group_facts(state.group).blocked
        nodes = tuple(
            node
            if node <= GONE
            else world.shift(i, node, delta, alone=i not in about and i not in waits)
            for i, node in enumerate(state.nodes)
        )
        group, answers = world.group_shift(state.group, delta)
        free = tuple(
            sorted(world.messages.number(values[m]._replace(held=False)) for m in state.messages)
        )
        yield world.with_answers(State(nodes, group, free, state.left), answers)

    def _may_fail(self, state: State, kind: str) -> bool:
        return kind in self.world.lefts.values[state.left].faults

    def _spend_fault(self, state: State, kind: str) -> State:
        left = self.world.lefts.values[state.left]
        return self._spend(state, faults=tuple(f for f in left.faults if f != kind))

    def _spend(self, state: State, **less: Any) -> State:
        left = self.world.lefts.values[state.left]._replace(**less)
        return state._replace(left=self.world.lefts.number(left))

    def _living(self, state: State) -> list[tuple[int, NodeFacts]]:
        world = self.world
        return [(i, world.facts(i, n)) for i, n in enumerate(state.nodes) if n > GONE]

    # Reductions

    def _alone(self, state: State) -> tuple[int, list[int], bool] | None:
        """Return a process whose steps are followed alone, by (2), or None.

        Returns
        -------
        tuple of int, list of int, bool
            The process, its messages, and whether it has an action or a timer that is due. Of
            several such processes it is the first with the fewest steps.
        """
        world = self.world
        values = world.messages.values
        mine: dict[int, list[int]] = {}
        for m in state.messages:
            if not values[m].held:  # (1)
                mine.setdefault(values[m].member, []).append(m)
        blocked = world.group_facts(state.group).blocked
        best: tuple[int, list[int], bool] | None = None
        fewest = 1_000
        for i, node in enumerate(state.nodes):
            if node == NOT_STARTED or i in blocked:
                continue
            messages = mine.get(i, [])
            facts = world.facts(i, node) if node > GONE else None
            own = facts is not None and (facts.pending_drain >= 0 or facts.deadline_ms <= 0)
            count = len(messages) + own
            if not 0 < count < fewest or not all(self._may_come_first(state, m) for m in messages):
                continue
            if facts is None or facts.deadline_ms > 0 or self._local(state, i, facts):
                best, fewest = (i, messages, own), count
                if count == 1:
                    break
        return best

    def _local(self, state: State, i: int, facts: NodeFacts) -> bool:
        """Return whether a timer that is due is R1, R2 or R5."""
        effect = self.world.react(i, state.nodes[i], Tick(0))
        if not effect.beats:
            return True
        group = self.world.group_facts(state.group)
        mine = group.members.get(facts.member_id)
        if mine is None:
            return False
        if all(b.generation < group.generation for b in effect.beats):
            return True
        return (
            group.state is PREPARING
            and mine.joining is None
            and all(b.generation == group.generation for b in effect.beats)
        )

    def _may_come_first(self, state: State, message: int) -> bool:
        """Return whether the arrival of a message is R1, R2, R3 or R4."""
        _, to_group, body, _ = self.world.messages.values[message]
        if not to_group:
            return True
        group = self.world.group_facts(state.group)
        mine = group.members.get(body.member_id)
        if mine is None or mine.instance_id != body.instance_id:
            return False
        if isinstance(body, SendJoin):
            others = [m for m in group.members.values() if m is not mine]
            more = group.pending or any(m.joining is None for m in others)
            return group.state is PREPARING and more
        if isinstance(body, SendSync):
            current = body.generation == group.generation
            fresh = group.sessions[body.member_id] == OPTIONS.session_timeout_ms
            leads = body.member_id == group.leader_id
            return group.state is COMPLETING and fresh and current and not leads
        if isinstance(body, SendCommit):
            current = body.generation == group.generation
            return current and group.state in (PREPARING, GroupState.STABLE)
        return False

    # The search

    def initial(self) -> State:
        """Return a settled group of the first members; joiners have not started."""
        bound, world = self.bound, self.world
        nodes = (NOT_STARTED,) * (bound.members + bound.joins)
        state = State(nodes, world.save_group(), (), world.lefts.number(Left()))
        for i in range(bound.members):
            state = world.start(state, i)
            for _ in range(400):
                if self._settled(state) and self._ready(state, i + 1):
                    break
                state = next(self._events(state))
            else:
                self.ownership_log.fail("L1", 0, f"a group of {i + 1} does not settle")
        faults = tuple(k for k in bound.lost.split(",") if k)
        return self._spend(
            state,
            crashes=bound.crashes,
            leaves=bound.leaves,
            joins=bound.joins,
            subscribes=bound.subscribes,
            forgets=bound.forgets,
            faults=faults,
        )

    def _ready(self, state: State, count: int) -> bool:
        group = self.world.group_facts(state.group)
        return group.state is GroupState.STABLE and len(group.members) == count

    def _settled(self, state: State) -> bool:
        if state.messages:
            return False
        living = [(i, f) for i, f in self._living(state) if not f.ended]
        if not all(f.quiescent and f.pending_drain < 0 for _, f in living):
            return False
        run = sorted(r for _, f in living for r in f.running)
        topics = {topic for _, f in living for topic in f.topics}
        return not living or run == [r for r in self.world.resources if r[0] in topics]

    def run(self, track: Track = iter) -> Found:
        """Search everything within the bound.

        Parameters
        ----------
        track : callable
            Passes on the examined states, and may count them.

        Returns
        -------
        Found
            Counts and broken rules; ``complete`` unless ``max_states`` was reached.
        """
        found, bound = self.found, self.bound
        first = self.initial()
        seen: dict[bytes, int] = {_packed(first): 0}
        leads_to = array("i", [-1])
        fine = bytearray(1)
        stack: list[Numbered] = [(first, 0)]
        for state, number in track(_popped(stack)):
            found.states += 1
            if len(seen) >= bound.max_states:
                found.complete = False
                break
            if self.world.group_facts(state.group).generation > bound.generations:
                found.cut += 1
                fine[number] = 1
                self.ownership_log.fail("L4", 0, f"more than {bound.generations} rounds")
                continue
            if self._settled(state):
                self._note_settled(state)
                fine[number] = 1
            for after in self.next_states(state):
                found.transitions += 1
                key = _packed(after)
                other = seen.get(key)
                if other is None:
                    other = seen[key] = len(seen)
                    leads_to.append(-1)
                    fine.append(0)
                    stack.append((after, other))
                if leads_to[number] < 0:
                    leads_to[number] = other
        self._check_ends(leads_to, fine)
        found.violations = list(self.ownership_log.violations)
        return found

    def _note_settled(self, state: State) -> None:
        """Count a settled state, and check that loads are even (L2)."""
        self.found.settled += 1
        living = [(i, f) for i, f in self._living(state) if not f.ended]
        outcome = tuple(
            tuple(sorted(self.world.facts(i, n).running)) if n > GONE else ()
            for i, n in enumerate(state.nodes)
        )
        self.found.outcomes.add(outcome)
        group = self.world.group_facts(state.group)
        known = set(group.members) == {f.member_id for _, f in living}
        loads = [len(f.running) for _, f in living] or [0]
        known &= len({f.topics for _, f in living}) == 1
        if known and group.state is GroupState.STABLE and max(loads) - min(loads) > 1:
            self.ownership_log.fail("L2", 0, f"settled with loads {loads}")

    def _check_ends(self, leads_to: array[int], fine: bytearray) -> None:
        """Check that from every state the steps without a fault lead to a settled one (L1, L3)."""
        if not self.found.complete:
            return
        for first in range(len(leads_to)):
            path, now = [], first
            while not fine[now]:
                fine[now] = 2  # on this path
                path.append(now)
                now = leads_to[now]
                if now < 0 or fine[now] == 2:
                    self.ownership_log.fail("L1", 0, "steps without a fault that never settle")
                    break
            for number in path:
                fine[number] = 1


def _popped(stack: list[Numbered]) -> Iterator[Numbered]:
    while stack:
        yield stack.pop()


def _packed(state: State) -> bytes:
    """Return a state as bytes: half the memory of tuples."""
    return array("I", (*state.nodes, state.group, state.left, *state.messages)).tobytes()

"""Exhaustive search of small worlds: every interleaving within a bound, by the real machines.

**Rules.** A state in which nothing more happens must be settled: each partition run once, loads
even, everybody stable (L1, L2); from every other state a settled one must be reached when nothing
more goes wrong. Safety is checked at each leader's turn and each start.

**Reductions.** Of the steps that are open in a state only some are followed where the others can
wait without a loss (*persistent sets*): all steps of one member i, together with what may go wrong
*with i* (its crash, its leaving, the loss or lateness of these very messages), when i has no answer
to wait for at the coordinator and each of its steps is one of

====  ============================================================================================
R1    an answer arrives at i, a duty of i ends, or a timer of i runs out without a heartbeat: only
      i's own state changes, and messages of i set out
R2    i's join arrives while the group gathers joins and still waits for another one, or i's
      heartbeat while it waits for i: a round cannot end without i
R3    i's sync arrives, i is not the leader, and the leader's sync is awaited: it is parked
R4    i's commit arrives while the group gathers joins or is stable, and i has not joined: no round
      can begin without i
R5    i's heartbeat is of a generation that is over, and i is a member: it is refused without a
      trace, and nobody makes that generation current again or, while time stands, i no member
====  ============================================================================================

Then whatever the others do first neither reads nor changes what these steps do, nor opens another
step of i (answers come only to who has asked), so it gives the same state in either order; time
cannot come between, because it stands while anything is to be done, and late messages with it. A
loss that another message takes away from i's leaves i's arrival, which is followed as well. What a
check could see in the one order and not in the other, it sees at the other's step: the plan that
gives away what is still run is refused as it is made (S3, S4), a second start meets the first one
(S1). An answer that its receiver has ceased to wait for is dropped: request numbers are given once,
so it would change nothing, and to spend a fault on it only leaves less to go wrong. Besides,
machine states that behave alike are one (:mod:`holdfast.sim.search.canonical`). ``Bound.reduce``
false searches without any of this, and a test holds both against each other.

**Strategy.** Depth first; seen states are kept as packed numbers, and of each state the first step
without a fault, along which the search for settled states then goes.

References: Godefroid, "Partial-Order Methods" (persistent sets).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.machine.actions import SendJoin, SendSync
from holdfast.machine.coordinator.group_messages import SendCommit
from holdfast.machine.events import Drained, LeaveRequested, RequestFailed, Tick
from holdfast.machine.leader.designs import Assignor
from holdfast.machine.member.member_data import NEVER_MS
from holdfast.machine.states import GroupState
from holdfast.model.partitions import Resource
from holdfast.sim.search.canonical import OPTIONS
from holdfast.sim.search.small_state import (
    GONE,
    KIND_OF,
    NOT_STARTED,
    InFlight,
    Left,
    NodeFacts,
    State,
)
from holdfast.sim.search.small_world import SmallWorld
from holdfast.sim.world.ledger import Violation

KINDS = ("join", "sync", "heartbeat", "leave", "commit")
"""Kinds of request of which a message may be lost or late."""

Numbered = tuple[State, int]
Track = Callable[[Iterator[Numbered]], Iterable[Numbered]]

PREPARING, COMPLETING = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How far to search.

    Parameters
    ----------
    crashes, leaves, joins : int
        How many members crash, how many leaders leave, how many members join, at any moment.
    lost : str
        Kinds of request with commas between: of each, one request or answer is lost or late.
    generations : int
        Rounds after which a path is given up, which breaks L4; counted in ``cut``.
    reduce : bool
        Whether the reductions are used.
    """

    members: int = 3
    joins: int = 1
    partitions: int = 4
    crashes: int = 1
    leaves: int = 1
    lost: str = ""
    static: bool = False
    generations: int = 30
    max_states: int = 20_000_000
    reduce: bool = True


@dataclass(slots=True, kw_only=True)
class Found:
    """What a search saw.

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
        """One line for people."""
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
            assignors, total, bound.partitions, static=bound.static, reduce=bound.reduce
        )
        self.ledger = self.world.ledger
        self.found = Found()

    # Transitions

    def next_states(self, state: State) -> Iterator[State]:
        """Every state that one step leads to, those without a fault first."""
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
        """What happens of itself; time only when nothing else can."""
        world = self.world
        values = world.messages.values
        ready = [m for m in state.messages if not values[m].held]
        living = self._living(state)
        duties = [i for i, facts in living if facts.duty >= 0]
        due = [i for i, facts in living if facts.deadline_ms <= 0]
        if not ready and not duties:
            if not due:
                yield from self._pass_time(state, living)
                return
            if world.group_facts(state.group).state is GroupState.STABLE:
                after = state
                for i in due:
                    after = world.tell(after, i, Tick(0))
                yield after
                for i in due:
                    yield from self._lose_heartbeat(state, i)
                return
        for message in ready:
            yield from self._steps_of(state, values[message].member, message)
        for i in dict.fromkeys((*duties, *due)):
            yield from self._steps_of(state, i, None)

    def _steps_of(self, state: State, i: int, message: int | None) -> Iterator[State]:
        """A message arrives, is lost or late; or without one, a duty ends or a timer runs out."""
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
        if facts.duty >= 0:
            yield world.tell(state, i, Drained(facts.duty))
        if facts.deadline_ms <= 0:
            yield world.tell(state, i, Tick(0))
            yield from self._lose_heartbeat(state, i)

    def _lose_heartbeat(self, state: State, i: int) -> Iterator[State]:
        """A heartbeat that is due is lost, or arrives late, or its answer does."""
        world = self.world
        if not self._may_fail(state, "heartbeat"):
            return
        effect = world.react(i, state.nodes[i], Tick(0))
        if not effect.beats:
            return
        spent = self._spend_fault(state, "heartbeat")
        placed = world.placed(spent, i, effect)
        for body in effect.beats:
            yield world.tell(placed, i, RequestFailed(body.request))
            yield world.add(placed, InFlight(i, True, body, held=True))
            group, answer = world.beat(placed.group, i, body)
            late = placed._replace(group=group)
            yield world.add(late, InFlight(i, False, answer, held=True))

    def _faults_of(self, state: State, i: int) -> Iterator[State]:
        """One process crashes, or leaves if it led its last round."""
        world = self.world
        node = state.nodes[i]
        if node <= GONE:
            return
        left, facts = world.lefts.values[state.left], world.facts(i, node)
        if facts.ended:
            return
        if left.crashes:
            yield world.crash(self._spend(state, crashes=left.crashes - 1), i)
        if left.leaves and facts.leads:
            yield world.tell(self._spend(state, leaves=left.leaves - 1), i, LeaveRequested())

    def _pass_time(self, state: State, living: list[tuple[int, NodeFacts]]) -> Iterator[State]:
        """Move all clocks to the next deadline; held messages are on their way from then on."""
        world = self.world
        delta = min((f.deadline_ms for _, f in living), default=NEVER_MS)
        delta = min(delta, world.group_facts(state.group).deadline_ms)
        delta = 0 if delta >= NEVER_MS else delta
        values = world.messages.values
        about = {values[m].member for m in state.messages}
        waits = world.group_facts(state.group).parked
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
        """A process whose steps are followed alone: its messages; whether a duty or timer too."""
        world = self.world
        values = world.messages.values
        mine: dict[int, list[int]] = {}
        for m in state.messages:
            if not values[m].held:  # that comes with time, which stands now
                mine.setdefault(values[m].member, []).append(m)
        parked = world.group_facts(state.group).parked
        best: tuple[int, list[int], bool] | None = None
        fewest = 1_000
        for i, node in enumerate(state.nodes):
            if node == NOT_STARTED or i in parked:
                continue
            messages = mine.get(i, [])
            facts = world.facts(i, node) if node > GONE else None
            own = facts is not None and (facts.duty >= 0 or facts.deadline_ms <= 0)
            count = len(messages) + own
            if not 0 < count < fewest or not all(self._waits_for(state, m) for m in messages):
                continue
            if facts is None or facts.deadline_ms > 0 or self._local(state, i, facts):
                best, fewest = (i, messages, own), count
                if count == 1:
                    break
        return best

    def _local(self, state: State, i: int, facts: NodeFacts) -> bool:
        """R1, R2 and R5 for a timer that is due."""
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

    def _waits_for(self, state: State, message: int) -> bool:
        """R1 to R4: an answer, or a request without which the coordinator cannot go on."""
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
        current = getattr(body, "generation", None) == group.generation
        if isinstance(body, SendSync):
            fresh = group.sessions[body.member_id] == OPTIONS.session_timeout_ms
            led = body.member_id == group.leader_id
            return group.state is COMPLETING and fresh and current and not led
        gathers = group.state in (PREPARING, GroupState.STABLE)
        return isinstance(body, SendCommit) and gathers and current

    # The search

    def initial(self) -> State:
        """A settled group of the first members; joiners have not started."""
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
                self.ledger.fail("L1", 0, f"a group of {i + 1} does not settle")
        faults = tuple(k for k in bound.lost.split(",") if k)
        return self._spend(
            state, crashes=bound.crashes, leaves=bound.leaves, joins=bound.joins, faults=faults
        )

    def _ready(self, state: State, count: int) -> bool:
        group = self.world.group_facts(state.group)
        return group.state is GroupState.STABLE and len(group.members) == count

    def _settled(self, state: State) -> bool:
        if state.messages:
            return False
        living = [(i, f) for i, f in self._living(state) if not f.ended]
        if not all(f.calm and f.duty < 0 for _, f in living):
            return False
        run = sorted(r for _, f in living for r in f.running)
        return not living or run == self.world.resources

    def run(self, track: Track = iter) -> Found:
        """Search everything within the bound.

        Parameters
        ----------
        track : callable
            Passes on the states that are looked at, and may count them.

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
                self.ledger.fail("L4", 0, f"more than {bound.generations} rounds")
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
        found.violations = list(self.ledger.violations)
        return found

    def _note_settled(self, state: State) -> None:
        """A settled state: count it, and check that loads are even (L2)."""
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
        if known and group.state is GroupState.STABLE and max(loads) - min(loads) > 1:
            self.ledger.fail("L2", 0, f"settled with loads {loads}")

    def _check_ends(self, leads_to: array[int], fine: bytearray) -> None:
        """From every state the steps without a fault must lead to a settled one (L1, L3)."""
        if not self.found.complete:
            return
        for first in range(len(leads_to)):
            path, now = [], first
            while not fine[now]:
                fine[now] = 2  # on this path
                path.append(now)
                now = leads_to[now]
                if now < 0 or fine[now] == 2:
                    self.ledger.fail("L1", 0, "steps without a fault that never settle")
                    break
            for number in path:
                fine[number] = 1


def _popped(stack: list[Numbered]) -> Iterator[Numbered]:
    while stack:
        yield stack.pop()


def _packed(state: State) -> bytes:
    """A state as bytes: half the memory of tuples."""
    return array("I", (*state.nodes, state.group, state.left, *state.messages)).tobytes()

"""Exhaustive search of small worlds: every interleaving within a bound, by the real machines.

**Rules.**

- A state is the machines' own slots, the messages in flight and what is left of the bound. Times
  are kept relative to now, so waiting longer for nothing is the same state.
- Messages and duties happen in any order and take no time; time moves to the next deadline when
  nothing else can happen. A delayed message outlives that, a lost one fails at its sender.
- A heartbeat and its answer are one step, and heartbeats of a stable group commute.
- Every leader's turn is checked, and every start against what others run; a state in which nothing
  changes any more must be settled: each partition run once, everybody stable (L1).

**Strategy.** Depth first with a set of seen states. Components are interned, so a state is a short
tuple of numbers, and a machine's step from one state with one event is computed once.

References: PROTOCOL, "Suggested state space".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.machine.actions import (
    Action,
    CallListener,
    Commit,
    ComputeAssignment,
    DropNow,
    Fail,
    FindCoordinator,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    StartFetching,
    StopFetching,
)
from holdfast.machine.coordinator import (
    Answer,
    CommitDone,
    Coordinator,
    CoordinatorOptions,
    GroupState,
    Received,
    SendCommit,
)
from holdfast.machine.designs import Assignor, compute
from holdfast.machine.events import (
    CommitAnswered,
    CoordinatorFound,
    Drained,
    LeaveRequested,
    ListenerReturned,
    MetadataChanged,
    RequestFailed,
    Resource,
    Started,
    SubscriptionChanged,
    Tick,
)
from holdfast.machine.member import NEVER_MS, NO_REQUEST, Member
from holdfast.machine.options import MemberOptions
from holdfast.machine.states import ENDED, MemberState
from holdfast.sim.checkers import RoundChecker
from holdfast.sim.ledger import Ledger, Violation

OPTIONS = MemberOptions(
    session_timeout_ms=30_000,
    heartbeat_interval_ms=10_000,
    again_pause_ms=1_000,
    rebalance_timeout_ms=60_000,
    max_poll_interval_ms=0,
    drain_timeout_ms=60_000,
    retry_backoff_ms=1_000,
    retry_backoff_max_ms=1_000,
)
_CONSTANT = {"assignors", "options", "mode", "holdings"}
_TIMES = (
    "contact_ms", "memory_ms", "rejoin_at_ms", "_retry_ms", "_join_sent_ms", "_heartbeat_due_ms",
    "_heartbeat_sent_ms", "_deadline_ms", "_polled_ms",
)  # fmt: skip
MEMBER_SLOTS = tuple(s for s in Member.__slots__ if s not in _CONSTANT)
HOLDING_SLOTS = (
    "owned", "told", "started", "queue", "calling", "out_token", "next_token", "hand_over",
)  # fmt: skip
GROUP_SLOTS = tuple(
    s
    for s in Coordinator.__slots__
    if s not in {"options", "group_id", "durable", "members", "sessions", "pending"}
)
_GROUP_TIMES = ("_round_ends_ms", "_first_wait_until_ms", "_floor_ms")
KINDS = ("join", "sync", "heartbeat", "leave", "commit")
_KIND_OF: dict[type, str] = {
    SendJoin: "join",
    SendSync: "sync",
    SendLeave: "leave",
    SendCommit: "commit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How far to search.

    Parameters
    ----------
    crashes, leaves, joins : int
        How many members crash, leave cleanly or join, at any moment.
    lost : str
        Request kind of which one message may be lost or delayed; empty none.
    generations : int
        Rounds after which a path is given up; counted in ``cut``.
    """

    members: int = 3
    joins: int = 1
    partitions: int = 4
    crashes: int = 1
    leaves: int = 0
    lost: str = ""
    static: bool = False
    generations: int = 12
    max_states: int = 2_000_000


@dataclass(slots=True, kw_only=True)
class Found:
    """What a search saw."""

    states: int = 0
    transitions: int = 0
    settled: int = 0
    cut: int = 0
    complete: bool = True
    violations: list[Violation] = field(default_factory=list)

    def line(self) -> str:
        """One line for people."""
        whole = "complete" if self.complete else "stopped at the limit"
        return (
            f"{self.states} states, {self.transitions} transitions, {self.settled} settled ends, "
            f"{self.cut} cut, {len(self.violations)} violations, {whole}"
        )


@dataclass(frozen=True, slots=True)
class Node:
    """One member's part of a state; ids of interned snapshots."""

    snapshot: int  # -1: not started, -2: gone
    running: frozenset[Resource] = frozenset()
    duty: int = -1  # token of a drain to be done


@dataclass(frozen=True, slots=True)
class Message:
    """A message in flight; ``held`` until time has moved."""

    member: int
    to_group: bool
    body: Any
    held: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """Everything there is."""

    nodes: tuple[Node, ...]
    group: int
    messages: tuple[Message, ...]
    crashes: int
    leaves: int
    joins: int
    faults: int


class Pool:
    """Numbers for values, and back."""

    def __init__(self) -> None:
        self.ids: dict[Hashable, int] = {}
        self.values: list[Any] = []

    def number(self, value: Hashable) -> int:
        """The value's number, a new one if it was not seen."""
        found = self.ids.get(value)
        if found is None:
            found = self.ids[value] = len(self.values)
            self.values.append(value)
        return found


class Search:
    """A search of one bound under one policy."""

    def __init__(self, assignors: tuple[Assignor, ...], bound: Bound):
        self.assignors, self.bound = assignors, bound
        total = bound.members + bound.joins
        self.vessels = [
            Member(
                assignors,
                replace(OPTIONS, instance_id=f"i{i}" if bound.static else None),
            )
            for i in range(total)
        ]
        self.group = Coordinator("g", CoordinatorOptions(initial_delay_ms=0))
        self.resources = [("t", p) for p in range(bound.partitions)]
        self.ledger = Ledger(self.resources)
        self.members, self.groups = Pool(), Pool()
        self.steps: dict[tuple[int, int, Any], tuple[int, tuple[Action, ...]]] = {}
        self.turns: set[Hashable] = set()
        self.found = Found()

    # Snapshots

    def _save_member(self, i: int) -> int:
        member = self.vessels[i]
        idle = member.holdings.calling is None and member.holdings.hand_over is None
        if idle and not member.holdings.queue:
            member.holdings.next_token, member.holdings.out_token = 0, -1
        requests = (member._join, member._sync, member._leave, member._find, member._plan_token)
        if all(r == NO_REQUEST for r in requests) and member._heartbeat == NO_REQUEST:
            member._next_request = 0
        values = tuple(getattr(member, s) for s in MEMBER_SLOTS)
        holdings = tuple(getattr(member.holdings, s) for s in HOLDING_SLOTS)
        return self.members.number((values, holdings))

    def _load_member(self, i: int, snapshot: int) -> Member:
        member = self.vessels[i]
        values, holdings = self.members.values[snapshot]
        for slot, value in zip(MEMBER_SLOTS, values, strict=True):
            setattr(member, slot, value)
        for slot, value in zip(HOLDING_SLOTS, holdings, strict=True):
            setattr(member.holdings, slot, value)
        return member

    def _save_group(self) -> int:
        group = self.group
        values = tuple(getattr(group, s) for s in GROUP_SLOTS)
        tables = tuple(
            tuple(table.items()) for table in (group.members, group.sessions, group.pending)
        )
        return self.groups.number((values, tables))

    def _load_group(self, snapshot: int) -> Coordinator:
        group = self.group
        values, tables = self.groups.values[snapshot]
        for slot, value in zip(GROUP_SLOTS, values, strict=True):
            setattr(group, slot, value)
        group.members, group.sessions, group.pending = (dict(t) for t in tables)
        return group

    # Steps

    def _tell(self, state: State, i: int, *events: Any) -> State:
        """Deliver events to a member and do what can be done at once."""
        queue = list(events)
        while queue:
            node = state.nodes[i]
            if node.snapshot < 0:
                return state
            key = (i, node.snapshot, queue.pop(0))
            if key not in self.steps:
                member = self._load_member(i, node.snapshot)
                actions = member.receive(key[2])
                self.steps[key] = (self._save_member(i), actions)
            snapshot, actions = self.steps[key]
            state = _with_node(state, i, replace(node, snapshot=snapshot))
            for action in actions:
                state, more = self._do(state, i, action)
                queue += more
        return state

    def _do(  # noqa: PLR0911 - one arm per action
        self, state: State, i: int, action: Action
    ) -> tuple[State, list[Any]]:
        node = state.nodes[i]
        match action:
            case FindCoordinator(request):
                return state, [CoordinatorFound(request)]
            case SendJoin() | SendSync() | SendLeave():
                return _send(state, Message(i, True, action)), []
            case SendHeartbeat():
                group = self._load_group(state.group)
                outs = group.step(0, Received(f"m{i}", action))
                state = replace(state, group=self._save_group())
                return state, [o.response for o in outs if isinstance(o, Answer)]
            case Commit():
                body = SendCommit(
                    request=action.token,
                    generation=action.generation,
                    member_id=action.member_id,
                    instance_id=action.instance_id,
                    offsets=tuple((r, 0) for r in action.resources),
                )
                return _send(state, Message(i, True, body)), []
            case ComputeAssignment():
                return state, [self._plan(action)]
            case StopFetching():
                return _with_node(state, i, replace(node, duty=action.token)), []
            case CallListener():
                return state, [ListenerReturned(action.token)]
            case DropNow(resources):
                left = node.running - frozenset(resources)
                return _with_node(state, i, replace(node, running=left, duty=-1)), []
            case StartFetching(resources):
                self._check_start(state, i, resources)
                more = node.running | frozenset(resources)
                return _with_node(state, i, replace(node, running=more)), []
            case Fail(text=text):
                self.ledger.fail("fail", 0, f"m{i}: {text}")
            case _:
                pass  # for logs
        return state, []

    def _plan(self, action: ComputeAssignment) -> Any:
        done = compute(self.assignors, action)
        if done.failure is not None:
            self.ledger.fail("plan", 0, done.failure)
        key = (action.members, action.generation, done.assignments)
        if key not in self.turns:
            self.turns.add(key)
            chosen = next(a for a in self.assignors if a.name == action.protocol_name)
            RoundChecker(self.ledger, 0).check(action, done, 0, chosen, current=False)
        return done

    def _check_start(self, state: State, i: int, resources: tuple[Resource, ...]) -> None:
        group = self._load_group(state.group)
        for j, other in enumerate(state.nodes):
            if j == i or other.snapshot < 0 or other.running.isdisjoint(resources):
                continue
            rival = self._load_member(j, other.snapshot)
            if rival.member_id in group.members:
                both = sorted(other.running & frozenset(resources))[0]
                self.ledger.fail("S1", 0, f"{both} runs at m{j} and starts at m{i}")

    # Transitions

    def next_states(self, state: State) -> Iterator[State]:
        """Every state that one step leads to."""
        yield from self._events(state)
        if state.crashes:
            for i, node in enumerate(state.nodes):
                if node.snapshot >= 0:
                    yield self._crash(state, i)
        if state.leaves:
            for i, node in enumerate(state.nodes):
                if node.snapshot >= 0 and self._leads(state, i):
                    left = replace(state, leaves=state.leaves - 1)
                    yield self._tell(left, i, LeaveRequested())
        if state.joins:
            i = len(state.nodes) - state.joins
            yield self._start(replace(state, joins=state.joins - 1), i)

    def _events(self, state: State) -> Iterator[State]:
        """What happens without anybody's fault; time only when nothing else can."""
        ready = [m for m in state.messages if not m.held]
        duties = [i for i, n in enumerate(state.nodes) if n.duty >= 0 and n.snapshot >= 0]
        due = [i for i, n in enumerate(state.nodes) if n.snapshot >= 0 and self._due(i, n) <= 0]
        group = self._load_group(state.group)
        if not ready and not duties:
            if group.state is GroupState.STABLE and due:
                after = state
                for i in due:
                    after = self._tell(after, i, Tick(0))
                yield after
                if state.faults and self.bound.lost == "heartbeat":
                    for i in due:
                        yield self._lose_heartbeat(state, i)
                return
            if not due:
                yield self._pass_time(state)
                return
        for message in ready:
            yield self._deliver(state, message)
            if state.faults and _KIND_OF.get(type(message.body)) == self.bound.lost:
                yield self._lose(state, message)
                yield self._hold(state, message)
        for i in duties:
            node = state.nodes[i]
            job = self._load_member(i, node.snapshot).holdings.hand_over
            left = node.running - (job.resources if job is not None else frozenset())
            after = _with_node(state, i, replace(node, duty=-1, running=left))
            yield self._tell(after, i, Drained(node.duty))
        for i in due:
            yield self._tell(state, i, Tick(0))

    def _due(self, i: int, node: Node) -> int:
        values, _ = self.members.values[node.snapshot]
        deadline: int = values[MEMBER_SLOTS.index("_deadline_ms")]
        return deadline

    def _leads(self, state: State, i: int) -> bool:
        group = self._load_group(state.group)
        member = self._load_member(i, state.nodes[i].snapshot)
        return member.member_id != "" and member.member_id == group.leader_id

    def _start(self, state: State, i: int) -> State:
        fresh = Member(self.assignors, self.vessels[i].options)
        self.vessels[i] = fresh
        state = _with_node(state, i, Node(self._save_member(i)))
        counts = (("t", self.bound.partitions),)
        return self._tell(state, i, MetadataChanged(counts), SubscriptionChanged(("t",)), Started())

    def _crash(self, state: State, i: int) -> State:
        messages = tuple(m for m in state.messages if m.member != i)
        state = replace(state, messages=messages, crashes=state.crashes - 1)
        return _with_node(state, i, Node(-2))

    def _deliver(self, state: State, message: Message) -> State:
        left = list(state.messages)
        left.remove(message)
        state = replace(state, messages=tuple(left))
        if not message.to_group:
            body = message.body
            if isinstance(body, CommitDone):
                body = CommitAnswered(body.request, body.error)
            return self._tell(state, message.member, body)
        group = self._load_group(state.group)
        outs = group.step(0, Received(f"m{message.member}", message.body))
        state = replace(state, group=self._save_group())
        return self._answers(state, outs)

    def _answers(self, state: State, outs: tuple[Any, ...]) -> State:
        for out in outs:
            if isinstance(out, Answer):
                i = int(out.client[1:])
                if state.nodes[i].snapshot >= 0:
                    state = _send(state, Message(i, False, out.response))
        return state

    def _lose(self, state: State, message: Message) -> State:
        left = list(state.messages)
        left.remove(message)
        state = replace(state, messages=tuple(left), faults=state.faults - 1)
        if isinstance(message.body, SendCommit):
            return self._tell(state, message.member, CommitAnswered(message.body.request, -1))
        return self._tell(state, message.member, RequestFailed(message.body.request))

    def _hold(self, state: State, message: Message) -> State:
        left = list(state.messages)
        left.remove(message)
        state = replace(state, messages=tuple(left), faults=state.faults - 1)
        return _send(state, replace(message, held=True))

    def _lose_heartbeat(self, state: State, i: int) -> State:
        node = state.nodes[i]
        member = self._load_member(i, node.snapshot)
        actions = member.receive(Tick(0))
        snapshot = self._save_member(i)
        state = _with_node(
            replace(state, faults=state.faults - 1), i, replace(node, snapshot=snapshot)
        )
        for action in actions:
            if isinstance(action, SendHeartbeat):
                state = self._tell(state, i, RequestFailed(action.request))
            else:
                state, _ = self._do(state, i, action)
        return state

    def _pass_time(self, state: State) -> State:
        """Move everybody's clock to the next deadline; held messages arrive from then on."""
        group = self._load_group(state.group)
        deadlines = [self._due(i, n) for i, n in enumerate(state.nodes) if n.snapshot >= 0]
        deadlines.append(group.deadline_ms if group.deadline_ms is not None else NEVER_MS)
        delta = min(deadlines)
        if delta >= NEVER_MS:
            delta = 0
        nodes = []
        for i, node in enumerate(state.nodes):
            if node.snapshot >= 0:
                member = self._load_member(i, node.snapshot)
                _shift_member(member, delta)
                nodes.append(replace(node, snapshot=self._save_member(i)))
            else:
                nodes.append(node)
        _shift_group(group, delta)
        outs = group.step(0)
        messages = tuple(sorted((replace(m, held=False) for m in state.messages), key=_order))
        state = replace(state, nodes=tuple(nodes), messages=messages, group=self._save_group())
        return self._answers(state, outs)

    # The search

    def initial(self) -> State:
        """A settled group of the first members; joiners have not started."""
        bound = self.bound
        nodes = tuple(Node(-1) for _ in range(bound.members + bound.joins))
        state = State(nodes, self._save_group(), (), 0, 0, 0, 0)
        for i in range(bound.members):
            state = self._start(state, i)
            for _ in range(400):
                if self._settled(state) and self._ready(state, i + 1):
                    break
                state = next(self._events(state))
        return replace(
            state,
            crashes=bound.crashes,
            leaves=bound.leaves,
            joins=bound.joins,
            faults=1 if bound.lost else 0,
        )

    def _ready(self, state: State, count: int) -> bool:
        group = self._load_group(state.group)
        return group.state is GroupState.STABLE and len(group.members) == count

    def _settled(self, state: State) -> bool:
        if state.messages or any(n.duty >= 0 for n in state.nodes):
            return False
        run: list[Resource] = []
        living = False
        for i, node in enumerate(state.nodes):
            if node.snapshot < 0:
                continue
            member = self._load_member(i, node.snapshot)
            if member.state in ENDED:
                continue
            living = True
            calm = member.state is MemberState.STABLE and member.rejoin_reason is None
            if not calm or member.rejoin_at_ms is not None or member.holdings.handing_over:
                return False
            run += node.running
        return not living or sorted(run) == self.resources

    def run(self) -> Found:
        """Search everything within the bound.

        Returns
        -------
        Found
            Counts and broken rules; ``complete`` unless ``max_states`` was reached.
        """
        found, bound = self.found, self.bound
        first = self.initial()
        seen: set[State] = {first}
        stack = [first]
        while stack:
            state = stack.pop()
            found.states += 1
            if found.states >= bound.max_states:
                found.complete = False
                break
            if self._load_group(state.group).generation > bound.generations:
                found.cut += 1
                continue
            fresh = False
            moved = False
            for after in self.next_states(state):
                found.transitions += 1
                moved = moved or after != state
                if after not in seen:
                    fresh = True
                    seen.add(after)
                    stack.append(after)
            if self._settled(state):
                found.settled += 1
            elif not moved and not fresh:
                self.ledger.fail("L1", 0, "nothing happens any more, and the group has not settled")
        self._check_cycles(seen)
        found.violations = list(self.ledger.violations)
        return found

    def _check_cycles(self, seen: set[State]) -> None:
        """Every state without faults left to spend must lead to a settled one (L1, L3)."""
        good: set[State] = set()
        for state in seen:
            if state in good:
                continue
            path: list[State] = []
            on_path: set[State] = set()
            now = state
            while now not in good and not self._settled(now):
                generation = self._load_group(now.group).generation
                if now in on_path or generation > self.bound.generations:
                    if generation <= self.bound.generations:
                        self.ledger.fail("L1", 0, "a cycle that never settles")
                    break
                on_path.add(now)
                path.append(now)
                now = next(self._events(now))
            good.update(path)


def _with_node(state: State, i: int, node: Node) -> State:
    return replace(state, nodes=(*state.nodes[:i], node, *state.nodes[i + 1 :]))


def _send(state: State, message: Message) -> State:
    """Add a message; which of several was sent first is no part of a state."""
    return replace(state, messages=tuple(sorted((*state.messages, message), key=_order)))


def _order(message: Message) -> tuple[int, bool, bool, str, int]:
    body = message.body
    return (
        message.member,
        message.to_group,
        message.held,
        type(body).__name__,
        body.request,
    )


def _shift_member(member: Member, delta: int) -> None:
    """Move a member's times; its deadline moves along, and one that is reached stays due."""
    for name in _TIMES:
        value = getattr(member, name)
        if value is not None and value < NEVER_MS:
            setattr(member, name, value - delta)
    member._retry_ms = max(member._retry_ms, 0)
    member._heartbeat_due_ms = max(member._heartbeat_due_ms, 0)
    if member.state in ENDED:  # it hears of time no more
        member.contact_ms = member.memory_ms = member._heartbeat_due_ms = 0
        member._heartbeat_sent_ms = member._join_sent_ms = 0
    member._polled_ms = 0
    if member.state is not MemberState.PREPARING_REBALANCE:
        member._join_sent_ms = 0
    if member._heartbeat == NO_REQUEST:
        member._heartbeat_sent_ms = 0
    if member.memory is None:
        member.memory_ms = 0
    member.memory_ms = max(member.memory_ms, -60_000)
    if member.holdings.hand_over is not None:
        job = member.holdings.hand_over
        retry_ms = None if job.retry_ms is None else job.retry_ms - delta
        member.holdings.hand_over = replace(
            job, deadline_ms=job.deadline_ms - delta, retry_ms=retry_ms
        )
    if member.generation < 0:
        member.contact_ms = 0
    if member._deadline_ms < NEVER_MS:
        member._deadline_ms = max(0, member._deadline_ms)


def _shift_group(group: Coordinator, delta: int) -> None:
    for name in _GROUP_TIMES:
        value = getattr(group, name)
        if value is not None and value < NEVER_MS:
            setattr(group, name, value - delta)
    group.sessions = {m: t - delta for m, t in group.sessions.items()}
    group.pending = {m: t - delta for m, t in group.pending.items()}

"""A world small enough to be searched: the real machines, and a table of their steps.

**Rules.**

- Messages and actions happen in any order and take no time. Time moves to the next deadline when
  nothing else can happen. A late message arrives after that. If a request or its answer is lost,
  the member that sent the request gets an event of failure.
- A heartbeat and its answer are one step, unless the heartbeat is the one that is lost or late.
- If a process crashes, requests that it has sent still arrive, and answers to it are dropped.
- Each plan of a leader is checked, and each start is checked against what other processes run.
- An application keeps a batch of every resource that is revoked or dropped. After each step its
  member is asked to commit them and the batches of running resources (S16).

**Strategy.** A step of a machine depends only on its state and on the event. It is computed once,
by the real machine, and looked up from then on (:mod:`tests.proof.small_state` numbers
states and events). That makes millions of states affordable.

References: Clarke, Grumberg and Peled, "Model Checking".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.proof import copies
from tests.proof.canonical import (
    OPTIONS,
    renumber,
    renumber_terms,
    settle_group,
    settle_member,
    stop_old_clocks,
)
from tests.proof.rules.checkers import RoundChecker
from tests.proof.rules.commits import DeliveredBatch, check_commits
from tests.proof.rules.seen import see
from tests.proof.rules.waiting import WaitingRules
from tests.proof.small_state import (
    GONE,
    Effect,
    GroupFacts,
    InFlight,
    Interner,
    Left,
    Node,
    NodeFacts,
    State,
    without,
)

from holdfast.core.machine import actions, events
from holdfast.core.machine.coordinator.coordinator import Coordinator
from holdfast.core.machine.coordinator.group import (
    CoordinatorOptions,
    Received,
    SendCommit,
    SendResponse,
)
from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.leader.designs import DesignAssignor, compute
from holdfast.core.machine.leader.subscriptions import digest_of
from holdfast.core.machine.member.member import Member
from holdfast.core.machine.states import ENDED, MemberState
from holdfast.core.model.partitions import Resource
from holdfast.sim.clock import OwnershipLog
from holdfast.sim.process import is_quiescent


@dataclass(slots=True)
class _Doing:
    """The effects of a member's step so far."""

    running: frozenset[Resource]
    pending_drain: int
    batches: frozenset[DeliveredBatch]
    late: frozenset[DeliveredBatch]
    sends: list[int] = field(default_factory=list)
    starts: list[Resource] = field(default_factory=list)
    beats: list[actions.SendHeartbeat] = field(default_factory=list)

    def end(self, resources: frozenset[Resource]) -> frozenset[DeliveredBatch]:
        """End running resources, with no drain owed; return their batches."""
        ended = frozenset(batch for batch in self.batches if batch.resource in resources)
        self.running, self.batches, self.pending_drain = (
            self.running - resources,
            self.batches - ended,
            -1,
        )
        return ended


class SmallWorld:
    """Machines whose states are numbered.

    Parameters
    ----------
    assignors : sequence of Assignor
        The assignors of every member.
    members : int
        Number of processes, joiners included.
    partitions : int
        Partitions of the topic ``t``, to which every member subscribes.
    more : int
        Partitions of the topic ``u``, to which a member may subscribe later; 0: no such topic.
    static : bool
        Whether members have instance ids.
    locations : int
        Number of locations; 0 for members that have none.
    reduce : bool
        Whether states that behave equally count as one (:mod:`tests.proof.canonical`).
    """

    def __init__(
        self,
        assignors: Sequence[Assignor],
        members: int,
        partitions: int,
        *,
        more: int = 0,
        static: bool = False,
        locations: int = 0,
        reduce: bool = True,
    ):
        self.assignors, self.reduce = tuple(assignors), reduce
        counts = (("t", partitions), *([("u", more)] if more else []))
        self.vessels: list[Member] = []
        for i in range(members):
            options = replace(
                OPTIONS,
                instance_id=f"i{i}" if static else None,
                location=digest_of(f"place {i % locations}") if locations else b"",
            )
            member = Member(self.assignors, options)
            member.receive(events.MetadataChanged(counts))
            member.receive(events.SubscriptionChanged(("t",)))
            self.vessels.append(member)
        self.newborn = [copies.saved_member(m.data) for m in self.vessels]
        self.coordinator = Coordinator("g", CoordinatorOptions(initial_delay_ms=0))
        self.resources = [(topic, p) for topic, count in counts for p in range(count)]
        self.ownership_log = OwnershipLog(self.resources)
        self.nodes: Interner[Node] = Interner(Node("not started"), Node("gone"))
        self.groups: Interner[Any] = Interner()
        self.messages: Interner[InFlight] = Interner()
        self.lefts: Interner[Left] = Interner()
        self._facts: dict[int, NodeFacts] = {}
        self._group_facts: dict[int, GroupFacts] = {}
        self._effects: dict[tuple[int, int, Hashable], Effect] = {}
        self._group_steps: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}
        self._beats: dict[
            tuple[int, int, actions.SendHeartbeat], tuple[int, events.HeartbeatAnswered]
        ] = {}
        self._shifts: dict[tuple[int, int, int, bool], int] = {}
        self._group_shifts: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}
        self._rounds: set[Hashable] = set()
        self.waiting = WaitingRules(self.ownership_log, keep=2**31)

    # Members

    def load(self, i: int, node: int) -> Member:
        """Return the member of process ``i`` with a node's state; valid until the next call."""
        member = self.vessels[i]
        copies.restore_member(member.data, self.nodes.values[node].saved)
        return member

    def _save(self, member: Member, node: Node) -> int:
        """Number a node; the member has the state that goes into it."""
        if self.reduce:
            settle_member(member.data)
        else:
            stop_old_clocks(member.data)
        if member.state in ENDED and not node.running and not _calls(member):
            return GONE
        batches, late = renumber_terms(member.holdings, node.batches, node.late)
        saved = copies.saved_member(member.data)
        return self.nodes.number(node._replace(saved=saved, batches=batches, late=late))

    def facts(self, i: int, node: int) -> NodeFacts:
        """Return facts about a node that has a member."""
        found = self._facts.get(node)
        if found is None:
            member = self.load(i, node).data
            _, running, pending_drain, _, _ = self.nodes.values[node]
            job = member.holdings.revocation
            found = self._facts[node] = NodeFacts(
                deadline_ms=member.deadline_ms,
                pending_drain=pending_drain,
                leads=member.is_leader and member.leaving is None,
                member_id=member.member_id,
                topics=member.topics,
                leaving=member.state is MemberState.LEAVING,
                running=running,
                quiescent=is_quiescent(member) and member.rejoin_reason is None,
                ended=member.state in ENDED,
                awaits=frozenset(
                    (
                        member.join_request,
                        member.sync_request,
                        member.leave_request,
                        member.heartbeat_request,
                    )
                ),
                commits=-1 if job is None else job.token,
            )
        return found

    def newborn_node(self, i: int) -> int:
        """Return the node of a process that is about to start."""
        return self.nodes.number(Node(self.newborn[i]))

    def react(self, i: int, node: int, event: Hashable) -> Effect:
        """Return a member's effect of an event, with all that takes no time and no coordinator.

        A number means the message of that number, for speed.
        """
        key = (i, node, event)
        found = self._effects.get(key)
        if found is None:
            what = self.messages.values[event].body if isinstance(event, int) else event
            found = self._effects[key] = self._react(i, node, what)
        return found

    def _react(self, i: int, node: int, event: Any) -> Effect:
        member = self.load(i, node)
        _, running, pending_drain, batches, late = self.nodes.values[node]
        doing = _Doing(running, pending_drain, batches, late)
        if isinstance(event, events.Drained):
            job = member.holdings.revocation
            doing.late |= doing.end(job.resources if job is not None else frozenset())
        queue = [event]
        if member.data.now_ms >= member.data.session_ends_ms and not isinstance(event, events.Tick):
            # As in Member.step: the clock comes first, and a session that has ended has no answers.
            queue.insert(0, events.Tick(member.data.now_ms))
        while queue:
            for action in member.receive(queue.pop(0)):
                queue += self._do(i, doing, action)
        self._check_commits(i, member, doing)
        after = Node(None, doing.running, doing.pending_drain, doing.batches, doing.late)
        return Effect(
            node=self._save(member, after),
            sends=tuple(doing.sends),
            starts=tuple(doing.starts),
            beats=tuple(doing.beats),
        )

    def _do(self, i: int, doing: _Doing, action: actions.Action) -> list[Any]:
        match action:
            case actions.FindCoordinator(request):
                return [events.CoordinatorFound(request)]
            case actions.SendJoin():
                body: Any = replace(action, reason="") if self.reduce else action
                doing.sends.append(self.messages.number(InFlight(i, True, body)))
            case actions.SendSync() | actions.SendLeave():
                doing.sends.append(self.messages.number(InFlight(i, True, action)))
            case actions.SendHeartbeat():
                doing.beats.append(action)
            case actions.Commit():
                doing.sends.append(self.messages.number(InFlight(i, True, _commit(action))))
            case actions.ComputeAssignment():
                return [self._plan(action)]
            case actions.StopFetching():
                doing.pending_drain = action.token
            case actions.CallListener():
                return [events.ListenerReturned(action.token)]
            case actions.DropNow(resources):
                doing.late |= doing.end(frozenset(resources))
            case actions.StartFetching(resources, term):
                doing.starts += resources
                doing.running |= frozenset(resources)
                doing.batches |= {DeliveredBatch(resource, term) for resource in resources}
                self._check_own_start(i, resources)
            case actions.Fail(text=text):
                self.ownership_log.fail("fail", 0, f"m{i}: {text}")
            case _:
                pass  # for logs
        return []

    def _plan(self, action: actions.ComputeAssignment) -> Any:
        done = compute(self.assignors, action)
        if done.failure is not None:
            self.ownership_log.fail("plan", 0, done.failure)
        key = (action.members, action.generation, done.assignments)
        if key not in self._rounds:
            self._rounds.add(key)
            chosen = next(a for a in self.assignors if a.name == action.protocol_name)
            RoundChecker(self.ownership_log).check(action, done, 0, chosen, current=False)
            if isinstance(chosen, DesignAssignor):
                self.waiting.check_kept(see(action, done, chosen), chosen.policy)
        return done

    def _check_commits(self, i: int, member: Member, doing: _Doing) -> None:
        """Check that revoking resources are in neither a running nor an ended term."""
        job = member.holdings.revocation
        to_revoke = frozenset[Resource]() if job is None else job.resources
        ended = [batch for batch in doing.late if batch.resource not in to_revoke]
        check_commits(self.ownership_log, 0, f"m{i}", member, current=doing.batches, ended=ended)

    def _check_own_start(self, i: int, resources: tuple[Resource, ...]) -> None:
        """Check that a member starts nothing after its own session (S2)."""
        member = self.vessels[i].data
        if member.now_ms >= member.session_ends_ms:
            self.ownership_log.fail("S2", 0, f"{resources[0]} starts at m{i} after its session")

    def shift(self, i: int, node: int, delta: int, *, alone: bool) -> int:
        """Return a node ``delta`` ms later; ``alone``: no message of its process is in flight."""
        key = (i, node, delta, alone)
        found = self._shifts.get(key)
        if found is None:
            member = self.load(i, node)
            copies.shift_member(member.data, delta)
            if alone:
                renumber(member.data)
            found = self._shifts[key] = self._save(member, self.nodes.values[node])
        return found

    # The coordinator

    def load_group(self, group: int) -> Coordinator:
        """Return the coordinator with a numbered state; valid until the next call."""
        copies.restore_group(self.coordinator.data, self.groups.values[group][0])
        return self.coordinator

    def save_group(self, counters: tuple[tuple[str, int], ...] = ()) -> int:
        """Number the coordinator's state, with each client's count of ids."""
        if self.reduce:
            settle_group(self.coordinator.data)
            self.coordinator.data.next_id = 0
        return self.groups.number((copies.saved_group(self.coordinator.data), counters))

    def group_step(self, group: int, message: int) -> tuple[int, tuple[int, ...]]:
        """Deliver a request: return the coordinator after it, and its answers."""
        key = (group, message)
        found = self._group_steps.get(key)
        if found is None:
            member, _, body, _ = self.messages.values[message]
            client, counters = f"m{member}", dict(self.groups.values[group][1])
            coordinator = self.load_group(group)
            if self.reduce:
                coordinator.data.next_id = counters.get(client, 0)
            outs = coordinator.step(0, Received(client, body))
            if self.reduce and coordinator.data.next_id:
                counters[client] = coordinator.data.next_id
            after = self.save_group(tuple(sorted(counters.items())))
            found = self._group_steps[key] = (after, self._answers(outs))
        return found

    def beat(
        self, group: int, i: int, body: actions.SendHeartbeat
    ) -> tuple[int, events.HeartbeatAnswered]:
        """Play a heartbeat and its answer."""
        key = (group, i, body)
        found = self._beats.get(key)
        if found is None:
            outs = self.load_group(group).step(0, Received(f"m{i}", body))
            answer = outs[-1]
            assert isinstance(answer, SendResponse)
            assert isinstance(answer.response, events.HeartbeatAnswered)
            found = (self.save_group(self.groups.values[group][1]), answer.response)
            self._beats[key] = found
        return found

    def group_shift(self, group: int, delta: int) -> tuple[int, tuple[int, ...]]:
        """Return the coordinator some time later, and its answers."""
        key = (group, delta)
        found = self._group_shifts.get(key)
        if found is None:
            coordinator = self.load_group(group)
            copies.shift_group(coordinator.data, delta)
            outs = coordinator.step(0)
            found = (self.save_group(self.groups.values[group][1]), self._answers(outs))
            self._group_shifts[key] = found
        return found

    def group_facts(self, group: int) -> GroupFacts:
        """Return facts about a state of the coordinator."""
        found = self._group_facts.get(group)
        if found is None:
            coordinator = self.load_group(group).data
            members = coordinator.members.values()
            found = self._group_facts[group] = GroupFacts(
                state=coordinator.state,
                generation=coordinator.generation,
                deadline_ms=coordinator.deadline_ms,
                leader_id=coordinator.leader_id,
                members=dict(coordinator.members),
                sessions=dict(coordinator.sessions),
                pending=bool(coordinator.pending),
                blocked=frozenset(int(m.client[1:]) for m in members if m.waits),
            )
        return found

    def _answers(self, outs: Iterable[Any]) -> tuple[int, ...]:
        return tuple(
            self.messages.number(InFlight(int(out.client[1:]), False, out.response))
            for out in outs
            if isinstance(out, SendResponse)
        )

    # States

    def after(self, state: State, i: int, effect: Effect) -> State:
        """Return a state after a member's step, its heartbeats done."""
        state = self.placed(state, i, effect)
        for body in effect.beats:
            group, answer = self.beat(state.group, i, body)
            state = state._replace(group=group)
            state = self.notify(state, i, answer)
        return state

    def placed(self, state: State, i: int, effect: Effect) -> State:
        """Return a state after a member's step, heartbeats left out."""
        if effect.starts:
            self._check_start(state, i, effect.starts)
        nodes = state.nodes
        nodes = (*nodes[:i], effect.node, *nodes[i + 1 :])
        messages = state.messages
        if messages and self.reduce:
            messages = self._awaited(messages, i, effect.node)
        if effect.sends:
            messages = tuple(sorted(messages + effect.sends))
        return State(nodes, state.group, messages, state.left)

    def _awaited(self, messages: tuple[int, ...], i: int, node: int) -> tuple[int, ...]:
        """Return messages without answers that member ``i`` does not await."""
        values = self.messages.values
        facts = self.facts(i, node) if node > GONE else None
        return tuple(
            [
                m
                for m in messages
                if values[m].member != i
                or values[m].to_group
                or (facts is not None and facts.waits_for(values[m].body))
            ]
        )

    def notify(self, state: State, i: int, event: Hashable) -> State:
        """Return a state after an event at a member; an ended member ignores it."""
        node = state.nodes[i]
        if node <= GONE:
            return state
        return self.after(state, i, self.react(i, node, event))

    def start(self, state: State, i: int) -> State:
        """Start a process."""
        nodes = (*state.nodes[:i], self.newborn_node(i), *state.nodes[i + 1 :])
        return self.notify(state._replace(nodes=nodes), i, events.Started())

    def crash(self, state: State, i: int) -> State:
        """Crash a process: its requests stay in flight, answers to it are dropped."""
        nodes = (*state.nodes[:i], GONE, *state.nodes[i + 1 :])
        values = self.messages.values
        kept = tuple(m for m in state.messages if values[m].to_group or values[m].member != i)
        return State(nodes, state.group, kept, state.left)

    def forget(self, state: State, i: int) -> State:
        """Lose a member's shard of the leader state."""
        node = state.nodes[i]
        member = self.load(i, node)
        member.data.leader_state = None
        forgetful = self._save(member, self.nodes.values[node])
        nodes = (*state.nodes[:i], forgetful, *state.nodes[i + 1 :])
        return state._replace(nodes=nodes)

    def deliver(self, state: State, message: int) -> State:
        """Deliver a message."""
        state = without(state, message)
        member, to_group, _, _ = self.messages.values[message]
        if not to_group:
            return self.notify(state, member, message)
        group, answers = self.group_step(state.group, message)
        return self.with_answers(state._replace(group=group), answers)

    def with_answers(self, state: State, answers: tuple[int, ...]) -> State:
        """Return a state with answers in flight, without those that no member would act on."""
        alive = tuple([m for m in answers if self._heard(state, self.messages.values[m])])
        if not alive:
            return state
        return state._replace(messages=tuple(sorted(state.messages + alive)))

    def _heard(self, state: State, message: InFlight) -> bool:
        """Return whether an answer's receiver exists, and still awaits it."""
        node = state.nodes[message.member]
        if node <= GONE:
            return False
        return not self.reduce or self.facts(message.member, node).waits_for(message.body)

    def lose(self, state: State, message: int) -> State:
        """Lose a message; the member that awaits the answer gets an event of failure."""
        state = without(state, message)
        member, _, body, _ = self.messages.values[message]
        if isinstance(body, SendCommit | events.CommitAnswered):
            return self.notify(state, member, events.CommitAnswered(body.request, -1))
        return self.notify(state, member, events.RequestFailed(body.request))

    def hold(self, state: State, message: int) -> State:
        """Delay a message: it is held until time has moved."""
        late = self.messages.number(self.messages.values[message]._replace(held=True))
        state = without(state, message)
        return state._replace(messages=tuple(sorted((*state.messages, late))))

    def add(self, state: State, message: InFlight) -> State:
        """Add one message."""
        number = self.messages.number(message)
        return state._replace(messages=tuple(sorted((*state.messages, number))))

    def _check_start(self, state: State, i: int, resources: tuple[Resource, ...]) -> None:
        """Check that two members never run one resource (S1); for others S2 is the rule."""
        mine = frozenset(resources)
        for j, node in enumerate(state.nodes):
            if j == i or node <= GONE:
                continue
            rival = self.facts(j, node)
            if mine.isdisjoint(rival.running):
                continue
            members = self.group_facts(state.group).members
            me = self.facts(i, state.nodes[i]).member_id
            if rival.member_id in members and me in members:
                both = min(rival.running & mine)
                self.ownership_log.fail("S1", 0, f"{both} runs at m{j} and starts at m{i}")


def _commit(action: actions.Commit) -> SendCommit:
    return SendCommit(
        request=action.token,
        generation=action.generation,
        member_id=action.member_id,
        instance_id=action.instance_id,
        offsets=tuple((r, 0) for r in action.resources),
    )


def _calls(member: Member) -> bool:
    holdings = member.holdings
    return holdings.calling is not None or bool(holdings.queue)

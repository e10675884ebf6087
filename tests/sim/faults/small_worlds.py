"""The tools of fault scenarios: small worlds, hooks that alter them, and their good end.

**Rules.** Hooks work from outside: a message between real members and the real coordinator is held
back, doubled, lost or answered wrong on its way. Every world runs under the checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.proof.random_runs import QUICK
from tests.proof.rules.attached import CheckedWorld
from tests.proof.rules.seen import SeenRound, see

from holdfast.core.machine.actions import ComputeAssignment
from holdfast.core.machine.coordinator.group import SendCommit, SendResponse
from holdfast.core.machine.events import AssignmentComputed, CommitAnswered
from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.policy import Policy
from holdfast.core.machine.states import MemberState
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.model.constants import Design
from holdfast.core.model.partitions import Resource
from holdfast.sim.broker import Hooks
from holdfast.sim.clock import Costs
from holdfast.sim.process import Process
from holdfast.sim.world import World, WorldOptions

COSTS = replace(QUICK, slow_members=0)
DELAY_MS = 15_000
DEFERRED = Policy(design=Design.DEFERRED, delay_ms=DELAY_MS)
SIMPLE = Policy(design=Design.SIMPLE)
FOUND_MS = COSTS.session_ms + 1_500  # a crash is found and a round is over


Function = Callable[..., Any]


class Interceptor:
    """One part of a world, and the wrappers of a test around it so far."""

    def __init__(self) -> None:
        self.function: Function = lambda: None

    def hook(self, real: Function) -> Function:
        """Replace the real function, for :class:`Hooks`."""
        self.function = real
        return self

    def put(self, around: Callable[[Function], Function]) -> None:
        """Put one function more around it, from now on."""
        self.function = around(self.function)

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        return self.function(*arguments, **more)


class Interceptors:
    """The parts that tests alter or watch."""

    def __init__(self) -> None:
        self.arrive, self.answer, self.respond, self.plan = (
            Interceptor(),
            Interceptor(),
            Interceptor(),
            Interceptor(),
        )

    def hooks(self) -> Hooks:
        """As a world takes them."""
        return Hooks(
            arrive=self.arrive.hook,
            answer=self.answer.hook,
            respond=self.respond.hook,
            plan=self.plan.hook,
        )


class InstrumentedWorld(CheckedWorld):
    """A world under the rules, with hooks on it."""

    def __init__(self, options: WorldOptions, seed: int):
        self.interceptors = Interceptors()
        super().__init__(options, seed, self.interceptors.hooks())


WORLDS: list[InstrumentedWorld] = []
"""The worlds of the running test, in which no rule may be broken in the end (``conftest.py``)."""


def world(
    name: str = "deferred",
    n: int = 3,
    *,
    settle: bool = True,
    **more: Any,
) -> InstrumentedWorld:
    """Return ``n`` settled members under a policy; ``more`` are arguments of :func:`make_world`."""
    w = make_world(name, **more)
    WORLDS.append(w)
    for slot in range(n):
        w.start(slot)
    if settle:
        w.run(6_000)
        assert sum(loads(w)) == len(w.resources()), f"{n} members have everything"
    return w


def ends_well(w: InstrumentedWorld, after_ms: int = 60_000) -> InstrumentedWorld:
    """After a quiet minute everything is run once, evenly, and the group knows its members."""
    w.run(w.now_ms + after_ms)
    group = w.coordinator
    known = [] if group is None or group.data.pending else sorted(group.members)
    assert sum(loads(w)) == len(w.resources()), "in the end everything is processed"
    assert max(loads(w)) - min(loads(w)) <= 1, "by members that have equally much"
    living = sorted(p.member.member_id for p in w.living())
    assert known == living, "in a group of the living members, without others"
    assert w.violations == []
    return w


def make_world(
    name: str,
    *,
    partitions: int | dict[str, int] = 6,
    policy: Policy = DEFERRED,
    supported: Callable[[int], Sequence[Assignor]] | None = None,
    costs: Costs = COSTS,
    **more: Any,
) -> InstrumentedWorld:
    """A world of short costs in which nobody has started."""
    offered = assignors_for(name, policy)
    options = WorldOptions(
        assignors=supported or (lambda slot: offered),
        partitions=partitions if isinstance(partitions, dict) else {"a": partitions},
        costs=costs,
        trace=True,
        **more,
    )
    w = InstrumentedWorld(options, seed=1)
    w.checker.waiting.slack_ms = 8_000
    return w


# Looking at a world


def loads(w: World) -> list[int]:
    """How much each living process runs, the least first."""
    return sorted(len(p.running) for p in w.living())


def running(w: World, slot: int) -> set[Resource]:
    """What a slot's process runs."""
    return set(w.slots[slot].running)


def runs(w: World, resources: Iterable[Resource]) -> bool:
    """Whether a living process works on each of the resources."""
    return all(w.ownership_log.runner(r) for r in resources)


def leader(w: World) -> int:
    """Slot of the member that leads."""
    assert w.coordinator is not None, "the coordinator is away"
    leads = w.coordinator.leader_id
    return next(p.slot for p in w.living() if p.member.member_id == leads)


def group_is(w: World, state: object) -> bool:
    """Whether the coordinator is in a state."""
    return w.coordinator is not None and w.coordinator.state is state


def said(w: World, words: str) -> list[str]:
    """Lines of the trace with these words."""
    return [line for line in w.trace if words in line]


def until(
    w: World, condition: Callable[[], object], limit_ms: int = 40_000, step_ms: int = 1
) -> int:
    """Run until a condition holds; returns the time that took."""
    begin_ms = w.now_ms
    while not condition():
        assert w.now_ms < begin_ms + limit_ms, "it never came to that"
        w.run(w.now_ms + step_ms)
    return w.now_ms - begin_ms


def revoking(w: World) -> tuple[Process, frozenset[Resource]]:
    """Start one member more, run until a member gives something up for it: which one, and what."""
    w.start(len(w.slots))
    handing = MemberState.REVOKING
    until(w, lambda: any(p.member.state is handing for p in w.living()))
    process = next(p for p in w.living() if p.member.state is handing)
    job = process.member.holdings.revocation
    return process, job.resources


# Hooks on messages


@dataclass
class Tape:
    """Recorded messages: (client, request) and (client, response), and leaders' rounds."""

    requests: list[tuple[str, Any]] = field(default_factory=list)
    responses: list[tuple[str, Any]] = field(default_factory=list)
    led_rounds: list[SeenRound] = field(default_factory=list)

    def sent(self, kind: type[Any], client: str = "") -> list[Any]:
        """Requests of a kind, of one client or all."""
        return [m for c, m in self.requests if isinstance(m, kind) and client in ("", c)]

    def errors(self, kind: type[Any], client: str = "") -> set[int]:
        """Error codes of responses of a kind."""
        got = [m for c, m in self.responses if isinstance(m, kind) and client in ("", c)]
        return {int(m.error) for m in got} - {0}


def tape(w: InstrumentedWorld) -> Tape:
    """Record messages as they arrive at the coordinator and leave it, and every leader's round."""
    kept = Tape()

    def arrived(process: Process, message: Any, go: Callable[..., None]) -> None:
        kept.requests.append((process.client, message))
        go()

    def answered(answer: Function) -> Function:
        def answer_and_keep(a: SendResponse) -> None:
            kept.responses.append((a.client, a.response))
            answer(a)

        return answer_and_keep

    def planned(plan: Function) -> Function:
        def plan_and_keep(process: Process, request: ComputeAssignment) -> AssignmentComputed:
            done: AssignmentComputed = plan(process, request)
            if done.failure is None:
                offered: Sequence[Any] = process.member.data.assignors
                chosen = next(a for a in offered if a.name == request.protocol_name)
                kept.led_rounds.append(see(request, done, chosen))
            return done

        return plan_and_keep

    between(w.interceptors.arrive, arrived)
    w.interceptors.answer.put(answered)
    w.interceptors.plan.put(planned)
    return kept


def between(
    interceptor: Interceptor, do: Callable[[Process, Any, Callable[..., None]], None]
) -> None:
    """Do something with every message from now on; the last argument lets it go on its way."""

    def around(way: Function) -> Function:
        def on_its_way(entry: tuple[Process, Any]) -> None:
            do(*entry, lambda *_: way(entry))

        return on_its_way

    interceptor.put(around)


def hold(w: InstrumentedWorld, kind: type[Any], slot: int, by_ms: int) -> None:
    """The next message of a kind from or to a slot's process comes so much later."""
    client = w.slots[slot].client
    held: list[Any] = []

    def later(process: Process, message: Any, go: Callable[..., None]) -> None:
        if isinstance(message, kind) and process.client == client and not held:
            held.append(message)
            w.clock.at(w.now_ms + by_ms, go, None)
        else:
            go()

    between(w.interceptors.arrive, later)
    between(w.interceptors.respond, later)


def lose(w: InstrumentedWorld, kind: type[Any], slot: int) -> list[Any]:
    """The next response of a kind to a slot's process is lost; returns the list it falls into."""
    client = w.slots[slot].client
    lost: list[Any] = []

    def losing(process: Process, message: Any, go: Callable[..., None]) -> None:
        if isinstance(message, kind) and process.client == client and not lost:
            lost.append(message)
            w.clock.at(w.now_ms + 500, process.fail_request, message.request)
        else:
            go()

    between(w.interceptors.respond, losing)
    return lost


def twice(w: InstrumentedWorld, kind: type[Any], slot: int) -> None:
    """Every request of a kind from a slot arrives twice."""

    def doubled(process: Process, message: Any, go: Callable[..., None]) -> None:
        go()
        if isinstance(message, kind) and process.slot == slot:
            w.clock.at(w.now_ms + 3, go, None)

    between(w.interceptors.arrive, doubled)


def refuse_commits(w: InstrumentedWorld, slot: int, error: int, times: int) -> list[Any]:
    """The coordinator answers a slot's next commits with an error; returns what was refused."""
    refused: list[Any] = []

    def refusing(process: Process, message: Any, go: Callable[..., None]) -> None:
        if isinstance(message, SendCommit) and process.slot == slot and len(refused) < times:
            refused.append(message)
            refusal = CommitAnswered(message.request, error)
            w.application.requests.respond((process, refusal))
        else:
            go()

    between(w.interceptors.arrive, refusing)
    return refused


def accepted_commits(w: InstrumentedWorld, client: str) -> list[SendCommit]:
    """A client's commits that became records, from now on."""
    found: list[SendCommit] = []

    def watching(process: Process, message: Any, go: Callable[..., None]) -> None:
        before = len(w.log)
        go()
        ours = isinstance(message, SendCommit) and process.client == client
        if ours and len(w.log) > before:
            found.append(message)

    between(w.interceptors.arrive, watching)
    return found

"""What the fault scenarios are played with: a small world, a tape of it, hands that bend it.

Everything here works from outside: messages are held back, doubled, lost or answered wrong on the
way between real members and the real coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from holdfast.machine.actions import ComputeAssignment
from holdfast.machine.coordinator import Answer, CommitDone, SendCommit
from holdfast.machine.designs import assignors_for
from holdfast.machine.policy import Policy
from holdfast.sim.seen import SeenTurn, see
from holdfast.sim.soak import QUICK
from holdfast.sim.world import World, WorldOptions
from holdfast.wire.incremental import Design

COSTS = replace(QUICK, slow_members=0)
DELAY_MS = 15_000
DEFERRED = Policy(design=Design.DEFERRED, delay_ms=DELAY_MS)
SIMPLE = Policy(design=Design.SIMPLE)
FOUND_MS = COSTS.session_ms + 1_500  # a crash is found and a round is over


def world(name: str = "deferred", n: int = 3, *, partitions=6, settle=True, **more) -> World:
    """``n`` members under a policy, settled; ``offers`` says what a slot offers instead."""
    policy = more.pop("policy", DEFERRED)
    offered = assignors_for(name, policy)
    offers = more.pop("offers", lambda slot: offered)
    w = World(
        WorldOptions(
            assignors=offers,
            partitions=partitions if isinstance(partitions, dict) else {"a": partitions},
            costs=more.pop("costs", COSTS),
            delay_ms=policy.delay_ms if name in ("deferred", "incremental") else 0,
            trace=True,
            **more,
        ),
        seed=1,
    )
    w.checker.waiting.slack_ms = 8_000
    for slot in range(n):
        w.start(slot)
    if settle:
        w.run(6_000)
        assert sum(loads(w)) == len(w.resources())
    return w


def loads(w: World) -> list[int]:
    return sorted(len(p.running) for p in w.living())


def running(w: World, slot: int) -> set:
    return set(w.slots[slot].running)


def runs(w: World, resources) -> bool:
    """Whether each of these is being processed by somebody alive."""
    return all(w.ledger.runner(r) for r in resources)


def until(w: World, condition: Callable[[], object], limit_ms: int = 40_000) -> int:
    """Run until a condition holds; returns the time that took."""
    begin_ms = w.now_ms
    while not condition():
        assert w.now_ms < begin_ms + limit_ms, "it never came to that"
        w.run(w.now_ms + 1)
    return w.now_ms - begin_ms


def ends_well(w: World, after_ms: int = 60_000) -> World:
    w.run(w.now_ms + after_ms)
    assert w.ledger.violations == []
    assert sum(loads(w)) == len(w.resources())
    assert max(loads(w)) - min(loads(w)) <= 1
    group = w.coordinator
    assert sorted(group.members) == sorted(p.member.member_id for p in w.living())
    assert not group.pending
    return w


def leader(w: World) -> int:
    """Slot of the member that leads."""
    return next(p.slot for p in w.living() if p.member.member_id == w.coordinator.leader_id)


def said(w: World, words: str) -> list[str]:
    """Lines of the trace with these words."""
    return [line for line in w.trace if words in line]


@dataclass
class Tape:
    """What went over the wire: (time, client, request) and (time, client, response)."""

    requests: list = field(default_factory=list)
    responses: list = field(default_factory=list)
    turns: list[SeenTurn] = field(default_factory=list)

    def sent(self, kind: type, client: str = "") -> list:
        return [m for _, c, m in self.requests if isinstance(m, kind) and client in ("", c)]

    def got(self, kind: type, client: str = "") -> list:
        return [m for _, c, m in self.responses if isinstance(m, kind) and client in ("", c)]

    def errors(self, kind: type, client: str = "") -> set[int]:
        return {m.error for m in self.got(kind, client)} - {0}


def tape(w: World) -> Tape:
    """Record messages as they arrive at the coordinator and leave it, and every leader's turn."""
    kept = Tape()
    arrive, answer, check = w._arrive, w._answer, w.checker.check

    def arrived(entry):
        kept.requests.append((w.now_ms, entry[0].client, entry[1]))
        arrive(entry)

    def answered(a: Answer):
        kept.responses.append((w.now_ms, a.client, a.response))
        answer(a)

    def checked(request: ComputeAssignment, done, now_ms, assignor, **more):
        kept.turns.append(see(request, done, assignor))
        check(request, done, now_ms, assignor, **more)

    w._arrive, w._answer, w.checker.check = arrived, answered, checked
    return kept


def hold(w: World, kind: type, slot: int, by_ms: int, *, when=lambda message: True) -> None:
    """The next message of a kind from or to a slot's process comes so much later."""
    client, held = w.slots[slot].client, []
    arrive, respond = w._arrive, w._respond

    def later(original):
        def moved(entry):
            process, message = entry
            fits = isinstance(message, kind) and process.client == client and when(message)
            if fits and not held:
                held.append(message)
                w.at(w.now_ms + by_ms, original, entry)
            else:
                original(entry)

        return moved

    w._arrive, w._respond = later(arrive), later(respond)


def lose(w: World, kind: type, slot: int) -> list:
    """The next response of a kind to a slot's process is lost; returns the list it falls into."""
    client, lost = w.slots[slot].client, []
    respond = w._respond

    def losing(entry):
        process, message = entry
        if isinstance(message, kind) and process.client == client and not lost:
            lost.append(message)
            w.at(w.now_ms + 500, w._fail_request, (process, message.request))
        else:
            respond(entry)

    w._respond = losing
    return lost


def twice(w: World, kind: type, slot: int) -> None:
    """Every request of a kind from a slot arrives twice."""
    arrive = w._arrive

    def doubled(entry):
        process, message = entry
        arrive(entry)
        if isinstance(message, kind) and process.slot == slot:
            w.at(w.now_ms + 3, arrive, entry)

    w._arrive = doubled


def refuse_commits(w: World, slot: int, error: int, times: int) -> list:
    """The coordinator answers a slot's next commits with an error; returns what was refused."""
    arrive, refused = w._arrive, []

    def refusing(entry):
        process, message = entry
        if isinstance(message, SendCommit) and process.slot == slot and len(refused) < times:
            refused.append(message)
            w._committed(process, CommitDone(message.request, error))
        else:
            arrive(entry)

    w._arrive = refusing
    return refused


def accepted_commits(w: World, client: str) -> list:
    """(time, request) of a client's commits that became records, from now on."""
    arrive, found = w._arrive, []

    def watching(entry):
        process, message = entry
        before = len(w.log)
        arrive(entry)
        if isinstance(message, SendCommit) and process.client == client and len(w.log) > before:
            found.append((w.now_ms, message))

    w._arrive = watching
    return found

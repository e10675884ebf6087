"""One session of a trace in a world of the machines, under the settings of a policy.

**Rules.** An event occurs at its time in the trace, or later if the group was quiescent before it
in the trace and is not yet so here. Quiet time is cut short. No record has the duration of a
revocation, so here it is 0: members notice a round within :data:`BEAT_MS`, and a stop shorter than
:data:`ABSENCE_MS` is counted, but adds no seconds. So the seconds of a replay are those in which
the group waited for a member: until its session ended, until it was back, or until a delay had
passed.

**Strategy.** A session wires a world (:meth:`ReplayedSession.new_world`) and applies one event
after the other; numbers are taken when the group is quiescent and no member is absent for a while.
KIP-848 groups are replayed by the model of ``simulate``: the session is the broker's, and no
rebalance is delayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, assert_never

from holdfast.core.assignors.registry import for_protocol
from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.policy import DEFAULTS, Policy, find_policy
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.machine.upgrade import Client
from holdfast.core.model.constants import INT32_MAX
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.errors import ConfigError
from holdfast.fleet.pipeline.history.movements import RESTART_WINDOW_SECONDS
from holdfast.fleet.pipeline.replay.trace import (
    SESSION_MS,
    EventType,
    GroupTrace,
    RecordedSession,
    TraceEvent,
)
from holdfast.sim import BASELINES
from holdfast.sim.clock import Costs
from holdfast.sim.kip848 import Group848, SimulatedConsumer
from holdfast.sim.process import all_quiescent
from holdfast.sim.world import World, WorldOptions

SETTLE_MS = 3_600_000
QUIET_MS = 4_000
STEP_MS = 250
BEAT_MS = 250
"""Between two heartbeats: as seldom as revocations that take no time allow."""
ABSENCE_MS = 1_000
"""A stop that is shorter is a revocation."""
QUICK = Costs(
    heartbeat_ms=BEAT_MS,
    poll_ms=20,
    slow_members=0,
    revoke_ms=0,
    rebuild_ms=0,
    initial_delay_ms=0,
    latency_ms=1,
    follow_up_ms=20,
)
"""Costs of members with instant revocations."""
GROUP_KEY = RecordType.GROUP_METADATA.to_bytes(2, "big")
"""Prefix of the key of a classic group's record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """Settings to replay a trace under.

    Numbers are those of :class:`~holdfast.core.machine.policy.Policy`. ``actual``: they are those
    of the group itself, as far as the records show.
    """

    policy: str
    assignor: str
    delay_ms: int = 0
    batch: int = DEFAULTS.batch
    interval_ms: int = DEFAULTS.interval_ms
    actual: bool = False

    @property
    def defers(self) -> bool:
        """Whether lost partitions are delayed."""
        return self.policy not in BASELINES and find_policy(self.policy).defers

    @property
    def paces(self) -> bool:
        """Whether moves come in batches."""
        return self.policy not in BASELINES and "batch" in find_policy(self.policy).options


def supported_assignors(setting: ReplaySettings) -> tuple[Assignor, ...]:
    """Return the assignors of members under the settings of a policy, or raise a ConfigError."""
    row = find_policy(setting.policy)
    name: str | None = setting.assignor
    if row.design is None:
        name = for_protocol(setting.assignor, cooperative=row.cooperative)
    if name is None:
        raise ConfigError(f"{setting.assignor} has no cooperative form; use holdfast-simple")
    options = Policy(
        delay_ms=setting.delay_ms, batch=setting.batch, interval_ms=setting.interval_ms
    )
    return assignors_for(setting.policy, options, (name,))


@dataclass(slots=True, kw_only=True)
class ReplayCost:
    """Cost of a trace under some settings.

    ``revocations`` counts revocations of a partition from its owner. Absences are partition-seconds
    of waiting for a member, in all and of one partition. ``generations`` has identities of the
    members of each completed generation, if requested. ``n_triggers`` counts periods in which the
    group was not quiescent. ``gave_up``: rounds did not end, or the group never became quiescent.
    ``failures`` counts rounds in which the leader could not plan, and every member kept its
    partitions.
    """

    rebalances: int = 0
    moved: int = 0
    moved_to_third: int = 0
    revocations: int = 0
    absence_seconds: float = 0.0
    longest_absence_seconds: float = 0.0
    balancing_seconds: float = 0.0
    n_triggers: int = 0
    generations: list[tuple[int, ...]] = field(default_factory=list)
    gave_up: bool = False
    failures: int = 0


class ReplayedSession:
    """One session in a world."""

    def __init__(
        self,
        trace: GroupTrace,
        session: RecordedSession,
        setting: ReplaySettings,
        seed: int,
    ):
        self.trace, self.session, self.setting = trace, session, setting
        self.costs = self.quick_costs()
        width = len(str(max(9_999, len(trace.identities))))
        self.base = 0 if width == 4 else 10**width
        self.world: Any = self.new_world(seed)
        self.world.ownership_log.least_ms = ABSENCE_MS
        self.identity_by_client: dict[str, int] = {}
        self.patience_ms = setting.delay_ms + setting.interval_ms + 2 * self.costs.session_ms
        self.patience_ms += 60_000
        self.begun_ms: int | None = None  # when a rebalance was last triggered
        self.opened = False  # a rebalance whose numbers are not taken yet
        self.rounds = 0
        self.balancing_ms = 0

    def quick_costs(self) -> Costs:
        """Return costs of members with instant revocations, with the sessions of the trace."""
        session_ms = self.trace.session_ms if self.trace.session_ms > 1 else SESSION_MS
        rebalance_ms = (
            self.trace.rebalance_ms if self.trace.rebalance_ms > 0 else QUICK.rebalance_ms
        )
        # kafka-python stops all that it keeps while it joins a cooperative round; ours do not.
        runs_ours = find_policy(self.setting.policy).design is not None
        stops_all = self.trace.client == Client.KAFKA_PYTHON and not runs_ours
        return replace(
            QUICK,
            session_ms=session_ms,
            rebalance_ms=min(rebalance_ms, INT32_MAX),
            heartbeat_ms=max(1, min(BEAT_MS, session_ms // 3)),
            waiting_stops=100 if stops_all else 0,
        )

    def new_world(self, seed: int) -> Any:
        """Return a world of the machines, or another model."""
        assignors = supported_assignors(self.setting)
        return World(
            WorldOptions(
                assignors=lambda slot: assignors,
                partitions=dict(self.session.partitions),
                costs=self.costs,
                static=self.trace.static,
                lags=self.trace.lags or None,
            ),
            seed,
        )

    def play(self, total: ReplayCost) -> None:
        """Play the session and add what it cost."""
        world = self.world
        for slot in self.session.slots:
            self._start(slot, self.trace.subscribed.get(slot, ()))
            world.run(world.now_ms + 1_000 // len(self.session.slots))
        self._wait(world.now_ms + SETTLE_MS)
        if self.setting.paces:  # the trace waits for no batch of our start
            world.run(world.now_ms + self.setting.interval_ms)
        world.ownership_log.begin(world.now_ms)
        self.rounds, records = world.rounds, len(world.log)
        shift_ms = world.now_ms
        returns = _returns(self.trace, self.session)
        for index, event in enumerate(self.session.events):
            due_ms = event.at_ms + shift_ms
            self._wait(due_ms)
            if self.is_quiescent():
                shift_ms -= due_ms - world.now_ms
                due_ms = world.now_ms
                if not returns[index]:
                    self._take(total)
            world.run(max(world.now_ms, due_ms))
            self._do(event)
            shift_ms += max(0, world.now_ms - due_ms)
        self._wait(world.now_ms + SETTLE_MS)
        total.gave_up |= not self.is_quiescent()
        self._take(total)
        total.gave_up |= any(v.rule == "L4" for v in world.ownership_log.violations)
        refused = ("could not plan", "plans this round instead")
        total.failures += sum(any(r in text for r in refused) for text in world.warnings)
        if self.setting.actual:
            total.generations += self.generations(records)

    def _start(self, slot: int, topics: tuple[str, ...]) -> None:
        self.world.subscriptions[self.base + slot] = topics
        process = self.world.start(self.base + slot)
        process.slot = self.identity_by_client[process.client] = self.trace.identities[slot]
        self.identity_by_client[process.client.partition(".")[0]] = (
            process.slot
        )  # its client id, maybe

    def _do(self, event: TraceEvent) -> None:
        world, slot = self.world, self.base + event.slot
        if self.begun_ms is None:
            self.begun_ms = world.now_ms
        self.opened = True
        match event.event_type:
            case EventType.START:
                if event.expired:
                    world.clock.run_while(lambda: self.known(slot), world.now_ms + SETTLE_MS, 1)
                self._start(event.slot, event.topics)
            case EventType.STOP:
                world.stop(slot, returns=event.returns)
            case EventType.CRASH:
                world.crash(slot)
            case EventType.SUBSCRIBE:
                world.subscribe(slot, event.topics)
            case EventType.RESIZE:
                world.resize(event.topics[0], event.count)
            case _ as never:
                assert_never(never)

    def known(self, slot: int) -> bool:
        """Return whether the coordinator still has the static member of a slot."""
        coordinator, process = self.world.coordinator, self.world.slots[slot]
        return coordinator is not None and process.member.member_id in coordinator.members

    def _wait(self, until_ms: int) -> None:
        """Advance until the group is quiescent, or to a time."""
        world = self.world
        while not self.is_quiescent() and world.now_ms < until_ms:
            world.run(min(world.now_ms + STEP_MS, until_ms))
        if self.is_quiescent() and self.begun_ms is not None:
            self.balancing_ms += max(0, world.counts.last_round_ms - self.begun_ms)
            self.begun_ms = None

    def is_quiescent(self) -> bool:
        """Return whether nothing more happens before the next event."""
        world = self.world
        quiet_ms = world.now_ms - max(world.counts.last_round_ms, self.begun_ms or 0)
        if quiet_ms < QUIET_MS:
            return False
        living, coordinator = world.living(), world.coordinator
        if living and quiet_ms >= self.patience_ms:
            return True
        if not living or coordinator is None or len(coordinator.members) != len(living):
            return False
        wanted = {topic for process in living for topic in process.member.data.topics}
        n_wanted = sum(n for topic, n in world.partitions.items() if topic in wanted)
        return sum(len(p.running) for p in living) >= n_wanted and all_quiescent(living)

    def _take(self, total: ReplayCost) -> None:
        """Take the numbers of a rebalance that has ended."""
        if not self.opened:
            return
        world, ownership_log = self.world, self.world.ownership_log
        ownership_log.finish(world.now_ms)
        total.rebalances += world.rounds - self.rounds
        total.moved += ownership_log.moved
        total.moved_to_third += ownership_log.moved_to_third
        total.revocations += ownership_log.stops
        total.absence_seconds += ownership_log.stopped_seconds
        total.longest_absence_seconds = max(
            total.longest_absence_seconds, ownership_log.longest_seconds
        )
        total.balancing_seconds += self.balancing_ms / 1000
        total.n_triggers += 1
        ownership_log.begin(world.now_ms)
        self.rounds, self.balancing_ms, self.opened = world.rounds, 0, False

    def generations(self, first: int) -> list[tuple[int, ...]]:
        """Return identities of the members of each generation in the log, from a record on."""
        found = []
        number = -1
        for at, (_, key, value) in enumerate(self.world.log):
            if not key.startswith(GROUP_KEY) or value is None:
                continue
            content: Any = decode_record(key, value).value
            if at >= first and content["generation"] != number and content["members"]:
                identities = (self.identity_by_client[m["clientId"]] for m in content["members"])
                found.append(tuple(sorted(identities)))
            number = content["generation"]
        return found


class World848(Group848):
    """The model of a KIP-848 group, with the additional interface of a replay."""

    def __init__(self, partitions: Mapping[str, int], costs: Costs, seed: int):
        super().__init__(partitions, costs, seed)
        self.subscriptions: dict[int, tuple[str, ...]] = {}
        self.log, self.warnings = self.epochs, list[str]()
        self.run = self.clock.run

    @property
    def now_ms(self) -> int:
        """Current time."""
        return self.clock.now_ms

    @property
    def rounds(self) -> int:
        """Number of targets that the broker has computed."""
        return self.epoch

    @property
    def counts(self) -> SimpleNamespace:
        """When an owner or the target last changed."""
        return SimpleNamespace(last_round_ms=self.changed_ms)

    def start(self, slot: int, topics: Sequence[str] | None = None) -> SimulatedConsumer:
        """Start the process of a slot, with the topics that it subscribes to."""
        return super().start(slot, topics or self.subscriptions.get(slot))

    def stop(self, slot: int, *, returns: bool = True) -> None:
        """Stop a process cleanly; a KIP-848 broker reassigns its partitions, returning or not."""
        member = self.members.get(slot)
        if member is not None:  # between two batches
            wait_ms = (member.phase_ms - self.now_ms) % member.poll_ms
            self.clock.at(self.now_ms + wait_ms, self._stop, slot)

    def _stop(self, slot: int) -> None:
        if slot in self.members:
            super().stop(slot)

    def crash(self, slot: int) -> None:
        """End a process at once, without leaving the group."""
        if slot in self.members:
            super().crash(slot)

    def subscribe(self, slot: int, topics: Sequence[str]) -> None:
        """Subscribe a member to other topics."""
        if slot in self.members:
            super().subscribe(slot, topics)


class ReplayedSession848(ReplayedSession):
    """One session of a KIP-848 group, by the model of :mod:`holdfast.sim.kip848`."""

    def quick_costs(self) -> Costs:
        """Return costs of members with instant revocations, with the broker's session."""
        return replace(QUICK, session_ms=SESSION_MS)

    def new_world(self, seed: int) -> Any:
        """Return the model of a KIP-848 group."""
        self.patience_ms = 2 * self.costs.session_ms + 60_000
        return World848(dict(self.session.partitions), self.costs, seed)

    def known(self, slot: int) -> bool:
        """Return whether the broker still has the member of a slot."""
        return slot in self.world.members

    def is_quiescent(self) -> bool:
        """Return whether nothing more happens before the next event."""
        quiet_ms = self.world.now_ms - max(self.world.changed_ms, self.begun_ms or 0)
        return quiet_ms >= QUIET_MS and bool(self.world.settled())

    def generations(self, first: int) -> list[tuple[int, ...]]:
        """Return identities of the members of each target but the first ``first``."""
        found = self.world.epochs[first:]
        return [
            tuple(sorted(self.trace.identities[s - self.base] for s in slots)) for slots in found
        ]


def played(trace: GroupTrace, setting: ReplaySettings, *, seed: int = 0) -> ReplayCost:
    """Play a trace under some settings; return generations if they are the actual ones.

    The machines are those of production and of ``simulate``. Nothing is measured while a group
    starts, nor in the quiet times between rebalance triggers.
    """
    total = ReplayCost()
    for number, session in enumerate(trace.sessions):
        if session.events:
            kind = ReplayedSession848 if setting.policy == "kip848" else ReplayedSession
            kind(trace, session, setting, seed + number).play(total)
    return total


def _returns(trace: GroupTrace, session: RecordedSession) -> list[bool]:
    """Return whether, before each event, a member is absent that comes back soon."""
    back: dict[int, int] = {}
    away_until: list[int] = []
    for h in reversed(session.events):
        identity = trace.identities[h.slot] if h.slot >= 0 else -1
        until = -1
        if h.event_type is EventType.START:
            back[identity] = h.at_ms
        elif h.event_type in (EventType.STOP, EventType.CRASH):
            again_ms = back.pop(identity, None)
            if again_ms is not None and again_ms - h.at_ms <= RESTART_WINDOW_SECONDS * 1_000:
                until = again_ms
        away_until.append(until)
    found, until = [], -1
    for h, mine in zip(session.events, reversed(away_until), strict=True):
        found.append(h.at_ms <= until)
        until = max(until, mine)
    return found

"""Replay every group's real history under other settings, and compute costs and fidelity.

**Rules.** Every group is replayed under its actual settings too. That row compares the replay with
the records (:mod:`holdfast.core.model.measure`), and all rows of the group have its fidelity. A
group that cannot be replayed becomes a row with a note; the other groups are replayed
nevertheless.

**Strategy.** One row per group and setting is one step (:mod:`holdfast.fleet.pipeline.steps`),
without a shuffle. KIP-848 groups are replayed by the model
of ``simulate``: the session is the broker's, and no rebalance is delayed.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa

from holdfast.core.machine.policy import DEFAULTS
from holdfast.core.model.measure import (
    agreement_of_counts,
    agreement_of_sequences,
    fidelity,
)
from holdfast.errors import HoldfastError
from holdfast.fleet.columnar import BatchTask
from holdfast.fleet.pipeline.replay.session import QUICK, QUIET_MS, ReplayCost, ReplayedSession
from holdfast.fleet.pipeline.replay.trace import (
    SESSION_MS,
    GroupTrace,
    ReplaySettings,
    actual_setting,
)
from holdfast.fleet.pipeline.steps import InMemoryRows, Input, Session, Step, by_table, run
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.sim.clock import Costs
from holdfast.sim.kip848 import Group848, SimulatedConsumer


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


Pair = tuple[GroupTrace, ReplaySettings]
"""A trace, and the settings to replay it under."""

REPLAY: Final = arrow_schema("replay")
"""Columns: ``REPLAY`` of :mod:`holdfast.fleet.tables.columns.steps`; see docs/metrics.md."""

NUMBERED: Final = REPLAY.append(pa.field("number", pa.int32()))
"""The columns with the index of the pair in the request: Spark returns rows in any order."""
FIDELITY: Final = ("fidelity", "fidelity_rebalances", "fidelity_moves")

NO_848: Final = "KIP-848 is for consumers of topics: a group of workers cannot migrate to it"

EVENT_COST: Final = 50
"""Rows of records that cost as much as one event under one setting."""

ROWS_PER_TASK: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options of a replay; ``settings`` come beside the actual ones of each group.

    ``default_delay_ms`` is for a group that defers, where its records do not show its delay.
    """

    settings: tuple[ReplaySettings, ...] = ()
    default_delay_ms: int = DEFAULTS.delay_ms
    seed: int = 0


def replay_rows(trace: GroupTrace, setting: ReplaySettings, request: Request) -> dict[str, Any]:
    """Replay one trace under one setting; return a row of :data:`REPLAY`."""
    row: dict[str, Any] = dict.fromkeys(REPLAY.names)
    notes = [trace.note]
    if setting.actual:
        notes.append(actual_setting(trace, request.default_delay_ms)[1])
    row |= {
        "group": trace.group,
        "policy": setting.policy,
        "assignor": setting.assignor,
        "delay_ms": setting.delay_ms if setting.defers else None,
        "actual": setting.actual,
        "n_places": len(set(trace.identities)),
        "n_partitions": trace.n_partitions,
        "n_events": trace.n_events,
        "recorded_rebalances": trace.n_rebalances,
        "recorded_moved": trace.moved,
        "recorded_gap_lower_seconds": trace.gap_lower_seconds,
        "recorded_gap_upper_seconds": trace.gap_upper_seconds,
    }
    refused = trace.refused or (NO_848 if trace.workers and setting.policy == "kip848" else "")
    if refused:
        return row | {"note": refused, "reason": refused}
    seed = request.seed + zlib.crc32(trace.group.encode())
    try:
        done = played(trace, setting, seed=seed)
    except HoldfastError as error:
        return row | {"note": "; ".join(filter(None, (*notes, str(error))))}
    if done.failures:
        notes.append(f"the assignor refused the group in {done.failures} rounds")
    if done.gave_up:
        notes.append("the group did not become quiescent")
    agreed = _fidelity(trace, setting, done)
    return row | _numbers(done) | agreed | {"note": "; ".join(filter(None, notes)) or None}


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


def _numbers(done: ReplayCost) -> dict[str, Any]:
    """Return what was counted, and the seconds in which members were awaited."""
    triggered = max(1, done.n_triggers)
    return {
        "rebalances": done.rebalances,
        "moved": done.moved,
        "moved_to_third": done.moved_to_third,
        "revocations": done.revocations,
        "partition_seconds_awaited": round(done.absence_seconds, 3),
        "longest_wait_seconds": round(done.longest_absence_seconds, 3),
        "time_to_balance_seconds": round(done.balancing_seconds / triggered, 3),
    }


def _fidelity(
    trace: GroupTrace, setting: ReplaySettings, done: ReplayCost
) -> dict[str, float | None]:
    """Return agreements of the actual replay; None without a record to agree with."""
    if not setting.actual or not trace.n_events:
        return {}
    recorded = [identities for session in trace.sessions for identities in session.generations]
    found = (
        agreement_of_sequences(recorded, done.generations),
        agreement_of_counts(trace.moved, done.moved),
    )
    return dict(zip(FIDELITY[1:], found, strict=True))


def settings_of(trace: GroupTrace, request: Request) -> list[ReplaySettings]:
    """Return a trace's actual setting first, then the requested settings that differ from it."""
    actual, _ = actual_setting(trace, request.default_delay_ms)
    same = replace(actual, actual=False)
    return [actual, *(s for s in request.settings if _key(s) != _key(same))]


def _key(setting: ReplaySettings) -> tuple[str | int | bool, ...]:
    if setting.policy == "kip848":  # the model has one assignor, whatever the broker's is called
        return (setting.policy,)
    extra = (setting.delay_ms,) if setting.defers else ()
    return (setting.policy, setting.assignor, *extra)


def replay_task(request: Request) -> BatchTask:
    """Turn rows of (pair, number) into rows of :data:`NUMBERED`."""
    plain = replace(request, settings=())

    def made(pairs: pa.Table) -> pa.Table:
        rows = []
        for row in pairs.to_pylist():
            trace, setting = pickle.loads(row["pair"])  # noqa: S301 (of :func:`_dealt`)
            rows.append(replay_rows(trace, setting, plain) | {"number": row["number"]})
        return pa.Table.from_pylist(rows, schema=NUMBERED)

    return by_table(made)


def replay(
    session: Session,
    traces: Sequence[GroupTrace],
    request: Request,
    *,
    track: Callable[[Sequence[pa.RecordBatch]], Iterable[pa.RecordBatch]] = iter,
) -> pa.Table:
    """Replay every trace under every setting, and under its own.

    Parameters
    ----------
    session : callable or None
        Returns the session, if there is enough work for one.
    track : callable
        Passes on the rows that this process works on one by one, for a progress bar.

    Returns
    -------
    Table of REPLAY
        Sorted by group; the actual setting first, the others in the order of the request.
    """
    pairs = [(trace, setting) for trace in traces for setting in settings_of(trace, request)]
    inputs = [Input(rows=_dealt(pairs, track), into=replay_task(request))]
    step = Step(what="what is to be replayed", inputs=inputs, schema=NUMBERED)
    return _with_fidelity(run(session, step).sort_by("number").to_pylist())


def _dealt(
    pairs: Sequence[Pair], track: Callable[[Sequence[pa.RecordBatch]], Iterable[pa.RecordBatch]]
) -> InMemoryRows:
    """Return the pairs, pickled; each task on Spark has its part of the long traces."""
    n_tasks = max(1, -(-len(pairs) // ROWS_PER_TASK))
    longest = sorted(range(len(pairs)), key=lambda number: -pairs[number][0].n_events)
    dealt = [number for task in range(n_tasks) for number in longest[task::n_tasks]]
    pickled = [pickle.dumps(pairs[number]) for number in dealt]
    columns = {"pair": pa.array(pickled, pa.binary()), "number": pa.array(dealt, pa.int32())}
    return InMemoryRows(
        rows=pa.table(columns),
        cost_rows=EVENT_COST * sum(trace.n_events + 1 for trace, _ in pairs),
        task_rows=max(1, -(-len(pairs) // n_tasks)),
        here_rows=1,
        track=track,
    )


def _with_fidelity(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return rows with the fidelity of their group: the worst agreement of its actual setting."""
    faith = {}
    for row in rows:
        if row["actual"]:
            agreements = [row[name] for name in FIDELITY[1:]]
            measured = (fidelity(agreements), *agreements)
            faith[row["group"]] = dict(zip(FIDELITY, measured, strict=True))
    return pa.Table.from_pylist([row | faith[row["group"]] for row in rows], schema=REPLAY)

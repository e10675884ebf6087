"""Replay every group's real history under other settings, and compute costs and fidelity.

**Rules.** Every group is replayed under its actual settings too. That row compares the replay with
the records (:mod:`holdfast.core.model.measure`), and all rows of the group have its fidelity. A
group that cannot be replayed becomes a row with a note; the other groups are replayed
nevertheless.

**Strategy.** One row per group and setting is one step (:mod:`holdfast.fleet.pipeline.steps`),
without a shuffle.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.core.machine.policy import DEFAULTS, POLICIES, find_policy, policy_of_protocol
from holdfast.core.model.constants import INT32_MAX
from holdfast.core.model.measure import (
    agreement_of_counts,
    agreement_of_sequences,
    fidelity,
)
from holdfast.errors import HoldfastError
from holdfast.fleet.columnar import BatchTask
from holdfast.fleet.pipeline.replay.session import (
    ReplayCost,
    ReplaySettings,
    played,
)
from holdfast.fleet.pipeline.replay.trace import GroupTrace
from holdfast.fleet.pipeline.steps import InMemoryRows, Input, Session, Step, by_table, run
from holdfast.fleet.tables.columns.schemas import arrow_schema

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


def actual_setting(trace: GroupTrace, default_delay_ms: int) -> tuple[ReplaySettings, str]:
    """Return the settings of the group itself, and a note if they are a guess."""
    protocol, note = trace.protocol or "", ""
    if trace.kip848:
        return ReplaySettings(policy="kip848", assignor=protocol or "uniform", actual=True), ""
    if trace.refused:
        name = "simple" if trace.cooperative else "eager"
        return ReplaySettings(policy=name, assignor=protocol, actual=True), ""
    if trace.imitated_by:
        policy = trace.imitated_by
        assignor = find_policy(policy).assignors[0]
        note = f"its leader is replayed as the nearest policy, {policy}"
    else:
        row = policy_of_protocol(protocol)
        if row is None:
            row = POLICIES["simple" if trace.cooperative else "eager"]
            note = f"the assignor {protocol!r} is not known here: replayed as the nearest one"
        policy, assignor = row.name, protocol if protocol in ASSIGNORS else row.assignors[0]
    made = ReplaySettings(policy=policy, assignor=assignor, actual=True)
    if made.defers and trace.delay_ms < 0:
        return replace(made, delay_ms=default_delay_ms), "the delay is a guess"
    return replace(made, delay_ms=min(trace.delay_ms, INT32_MAX) if made.defers else 0), note


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

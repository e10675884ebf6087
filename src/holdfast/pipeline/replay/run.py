"""What every group's real history would have cost under other settings, with a fidelity.

**Rules.** Every group is replayed under its actual settings too. That row compares the replay with
the records (:mod:`holdfast.model.fidelity`), and its fidelity stands in all rows of the group. A
group that cannot be replayed becomes a row with a note; the other groups are replayed all the same.

**Strategy.** One row per group and setting, spread over the cluster as one ``mapInArrow`` job that
shuffles only the stories. A small amount of work is done in the driver.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.errors import HoldfastError
from holdfast.machine.policies import DEFAULTS
from holdfast.model.fidelity import (
    SURE_FIDELITY,
    agreement_of_counts,
    agreement_of_sequences,
    agreement_with_bounds,
    fidelity,
)
from holdfast.pipeline.arrow_types import Batches, BatchTask
from holdfast.pipeline.batches.schemas import spark_ddl
from holdfast.pipeline.replay.draws import (
    BUSY_SPREAD,
    ReplayInterval,
    drawn,
    interval,
    model_spread,
    n_draws,
)
from holdfast.pipeline.replay.happenings import Story
from holdfast.pipeline.replay.play import replay as replay_story
from holdfast.pipeline.replay.session import ReplayCost
from holdfast.pipeline.replay.settings import ReplaySettings, actual_setting
from holdfast.pipeline.replay.trust import caution
from holdfast.sim.world.costs import Costs
from holdfast.tables.schemas import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Pair = tuple[Story, ReplaySettings]
"""A story, and the settings to replay it under."""

REPLAY: Final = arrow_schema("replay")
"""Columns: :data:`holdfast.tables.answers.REPLAY`; see ``docs/metrics.md``, "Replay"."""

REPLAY_DDL: Final = spark_ddl("replay")

FIDELITY: Final = (
    "fidelity",
    "fidelity_rebalances",
    "fidelity_moves",
    "fidelity_pause",
    "fidelity_interval",
)

COUNTS: Final = ("rebalances", "moved")
SECONDS: Final = (
    "partition_seconds_unowned",
    "partition_seconds_stopped",
    "longest_stop_seconds",
    "time_to_balance_seconds",
)
"""Columns with an interval, ``NAME_low`` and ``NAME_high``."""

WIDE: Final = 0.5
"""A number may be off by a factor of 1.5: where a bound is further away, there is no number."""

ANYWHERE: Final = " lies anywhere from "
LEAST_AGREEMENT: Final = 0.01
"""Bounds are wider by a factor of 100 at most."""

NO_CLASSIC: Final = (
    "the records of a KIP-848 group have neither heartbeat nor session of classic members: "
    "give them with --cost heartbeat=DURATION and --cost session=DURATION"
)
"""Why such a group has no seconds under a policy of classic groups."""

NO_848: Final = "KIP-848 is for consumers of topics: a group of workers cannot migrate to it"

_WHEN: Final = "when it happened"

DRIVER_EVENTS: Final = 4_000
"""Below so many happenings x settings x draws the driver does it: Spark takes time to start."""

ROWS_PER_TASK: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to replay.

    Parameters
    ----------
    settings : tuple of ReplaySettings
        Beside the actual ones of each group.
    default_delay_ms : int
        For a group that defers, where its records do not show its delay.
    costs : Costs
        What members do around a rebalance.
    given : frozenset of str, optional
        Fields of ``costs`` that hold, whatever the history says; None: all of them.
    seed : int
        Of all chance.
    """

    settings: tuple[ReplaySettings, ...] = ()
    default_delay_ms: int = DEFAULTS.delay_ms
    costs: Costs = field(default_factory=Costs)
    given: frozenset[str] | None = None
    seed: int = 0


def replay_rows(story: Story, setting: ReplaySettings, request: Request) -> dict[str, Any]:
    """One story under one setting, as a row of :data:`REPLAY`."""
    row: dict[str, Any] = dict.fromkeys(REPLAY.names)
    notes = [story.note]
    if setting.actual:
        notes.append(actual_setting(story, request.default_delay_ms)[1])
    row |= {
        "group": story.group,
        "policy": setting.policy,
        "assignor": setting.assignor,
        "delay_ms": setting.delay_ms if setting.defers else None,
        "actual": setting.actual,
        "n_places": len(set(story.places)),
        "n_partitions": story.n_partitions,
        "n_events": story.n_events,
        "recorded_rebalances": story.n_rebalances,
        "recorded_moved": story.moved,
        "recorded_pause_lower_seconds": story.pause_lower_seconds,
        "recorded_pause_upper_seconds": story.pause_upper_seconds,
    }
    refused = story.refused or (NO_848 if story.workers and setting.policy == "kip848" else "")
    if refused:
        return row | {"note": refused, "reason": refused}
    row["costs"] = _costs(story, request)
    seed = request.seed + zlib.crc32(story.group.encode())
    try:
        cases = drawn(story, request.costs, request.given, setting.policy, seed)
        done = [
            replay_story(told, setting, costs, seed=seed + number, vary=number > 0)
            for number, (told, costs) in enumerate(cases)
        ]
    except HoldfastError as error:
        return row | {"note": "; ".join(filter(None, (*notes, str(error))))}
    if done[0].failures:
        notes.append(f"the assignor refused the group in {done[0].failures} rounds")
    if done[0].gave_up:
        notes.append("the group did not become still")
    notes.append(_assumed(story, setting, request))
    note = "; ".join(filter(None, notes)) or None
    agreed = _fidelity(story, setting, done)
    mend = _open_costs(story, request)
    numbers = _numbers(done, story, request)
    if story.kip848 and setting.policy != "kip848" and not _classic_known(request):
        untold = [f"{name}{bound}" for name in SECONDS for bound in ("", "_low", "_high")]
        numbers |= dict.fromkeys(untold) | {"reason": NO_CLASSIC}
    return row | numbers | agreed | {"note": note, "caution": mend}


def _classic_known(request: Request) -> bool:
    """Whether the user says what members of a KIP-848 group would do as classic ones."""
    return request.given is None or request.given >= {"heartbeat_ms", "session_ms"}


def rounds_and_moves(story: Story, request: Request) -> float:
    """How well the actual setting agrees with the records in who was there, and what moved.

    One replay, with the middle of everything that the request does not give.
    """
    setting, _ = actual_setting(story, request.default_delay_ms)
    seed = request.seed + zlib.crc32(story.group.encode())
    told, costs = drawn(story, request.costs, request.given, setting.policy, seed)[0]
    found = _fidelity(story, setting, [replay_story(told, setting, costs, seed=seed)])
    return min(found[name] or 0.0 for name in ("fidelity_rebalances", "fidelity_moves"))


def _costs(story: Story, request: Request) -> str:
    """The costs that were replayed with, as JSON: at least, middle, at most, observations."""
    found: dict[str, Any] = {}
    for name, value, _ in request.costs.lines():
        known = story.costs.get(name)
        if request.given is None or name in request.given:
            found[name] = {"given_ms": value}
        elif known is not None:
            low, mid, high, n = known
            found[name] = {"low_ms": round(low), "ms": round(mid), "high_ms": round(high), "n": n}
    return json.dumps(found)


def _assumed(story: Story, setting: ReplaySettings, request: Request) -> str:
    """What a setting rests on that no history of the group can tell."""
    given = request.given
    if given is None or setting.policy != "kip848" or story.costs.get("broker_heartbeat_ms"):
        return ""
    names = ("broker_heartbeat_ms", "broker_session_ms")
    open_names = [name.removesuffix("_ms").replace("_", "-") for name in names if name not in given]
    if not open_names:
        return ""
    return f"with the broker's defaults for {' and '.join(open_names)}: give them with --cost"


def _numbers(done: Sequence[ReplayCost], story: Story, request: Request) -> dict[str, Any]:
    """Numbers with their intervals; a number whose interval tells nothing is None."""
    row: dict[str, Any] = {"moved_to_third": done[0].moved_to_third}
    spread = 0.0 if request.given is None else model_spread(story)
    wide = []
    for name in (*COUNTS, *SECONDS):
        values = [_measured(one, name) for one in done]
        found = interval(values, spread if name in SECONDS else 0.0)
        if name in COUNTS:
            row |= {
                name: int(values[0]),
                f"{name}_low": min(int(found.low), int(values[0])),
                f"{name}_high": max(int(-(-found.high // 1)), int(values[0])),
            }
            continue
        told = found.width <= WIDE
        row |= {
            name: round(found.mid, 3) if told else None,
            f"{name}_low": round(found.low, 3),
            f"{name}_high": round(found.high, 3),
        }
        if not told:
            wide.append(f"{name}{ANYWHERE}{found.low:.3g} to {found.high:.3g}")
    if wide:
        untold = _untold(story, request.given or frozenset())
        if spread == BUSY_SPREAD:
            untold = "in which turn members rebuild their state or end their slow batches"
        row["reason"] = f"the history does not tell {untold}: " + "; ".join(wide)
    return row


def _open_costs(story: Story, request: Request) -> str:
    """As :func:`_untold`, for somebody who can give them."""
    names = _WHEN if request.given is None else _untold(story, request.given)
    if names == _WHEN:
        return ""
    return f"give what members really have with --cost NAME=DURATION: {names}"


def _untold(story: Story, given: frozenset[str]) -> str:
    """The costs that a history leaves open, widest first."""
    widths = {
        name: known[2] - known[0]
        for name, known in story.costs.items()
        if name not in given and known[2] - known[0] > known[1] / 2
    }
    widest = sorted(widths, key=lambda name: -widths[name])[:3]
    return ", ".join(n.removesuffix("_ms").replace("_", "-") for n in widest) or _WHEN


def _measured(done: ReplayCost, name: str) -> float:
    match name:
        case "rebalances" | "moved":
            return float(getattr(done, name))
        case "partition_seconds_unowned":
            return done.unowned_seconds
        case "partition_seconds_stopped":
            return done.stopped_seconds
        case "longest_stop_seconds":
            return done.longest_stop_seconds
        case _:
            return done.balancing_seconds / max(1, done.n_disturbances)


def _fidelity(
    story: Story, setting: ReplaySettings, done: Sequence[ReplayCost]
) -> dict[str, float | None]:
    """Agreements of the actual replay; None where nothing was recorded to agree with."""
    if not setting.actual or not story.n_events:
        return {}
    recorded = [places for session in story.sessions for places in session.generations]
    bounds = (story.pause_lower_seconds, story.pause_upper_seconds)
    bounds = (max(bounds[0], min(story.pause_least_seconds, bounds[1])), bounds[1])
    unowned = interval([one.unowned_seconds for one in done], 0.0).mid
    found = (
        agreement_of_sequences(recorded, done[0].generations),
        agreement_of_counts(story.moved, done[0].moved),
        None if story.blind else agreement_with_bounds(unowned, *bounds),
    )
    return dict(zip(FIDELITY[1:4], found, strict=True))


def _chance(row: dict[str, Any]) -> float | None:
    """How likely the stopped seconds lie within a quarter of the truth, by their interval."""
    low, high = (row[f"partition_seconds_stopped_{end}"] for end in ("low", "high"))
    if low is None or high is None:
        return None
    return ReplayInterval(low=low, mid=low, high=high).chance


def _share_within(rows: Sequence[dict[str, Any]]) -> float | None:
    """The share of a group's predictions that lie within a quarter of the truth.

    Of other policies, where there are any; of numbers that are not told only where none is.
    """
    for wanted in (
        [row for row in rows if not row["actual"] and row["partition_seconds_stopped"] is not None],
        [row for row in rows if not row["actual"]],
        rows,
    ):
        found = [chance for chance in map(_chance, wanted) if chance is not None]
        if found:
            return sum(found) / len(found)
    return None


def settings_of(story: Story, request: Request) -> list[ReplaySettings]:
    """The actual setting of a story first, then the requested settings that differ from it."""
    actual, _ = actual_setting(story, request.default_delay_ms)
    same = replace(actual, actual=False)
    return [actual, *(s for s in request.settings if _key(s) != _key(same))]


def _key(setting: ReplaySettings) -> tuple[str | int | bool, ...]:
    if setting.policy == "kip848":  # the model has one assignor, whatever the broker's is called
        return (setting.policy,)
    extra = (setting.delay_ms,) if setting.defers else ()
    return (setting.policy, setting.assignor, *extra)


def replay_task(request: Request) -> BatchTask:
    """Rows of (story, setting), both JSON, to rows of :data:`REPLAY`."""
    plain = replace(request, settings=())

    def run(batches: Batches) -> Batches:
        for batch in batches:
            pairs = zip(batch["story"].to_pylist(), batch["setting"].to_pylist(), strict=True)
            rows = [
                replay_rows(Story.from_json(story), ReplaySettings(**json.loads(setting)), plain)
                for story, setting in pairs
            ]
            yield from pa.Table.from_pylist(rows, schema=REPLAY).to_batches()

    return run


def replay(
    spark: Callable[[], SparkSession] | None,
    stories: Sequence[Story],
    request: Request,
    *,
    track: Callable[[Sequence[Pair]], Iterable[Pair]] = iter,
) -> pa.Table:
    """Replay every story under every setting, and under its own.

    Parameters
    ----------
    spark : callable or None
        Gives the session, if there is enough to do to use one.
    stories : sequence of Story
        From :func:`holdfast.pipeline.replay.story.stories`.
    track : callable
        Passes on what the driver works off one by one, for a progress bar.

    Returns
    -------
    Table of REPLAY
        Sorted by group; the actual setting first, the others in the order of the request.
    """
    pairs = [(story, setting) for story in stories for setting in settings_of(story, request)]
    drawn_often = request.given is not None
    work = sum((story.n_events + 1) * (n_draws(story) if drawn_often else 1) for story, _ in pairs)
    if spark is None or work <= DRIVER_EVENTS:
        rows = [replay_rows(story, setting, request) for story, setting in track(pairs)]
        done = pa.Table.from_pylist(rows, schema=REPLAY)
    else:
        done = _spread(spark(), pairs, request)
    return _ordered(done, pairs)


def _spread(spark: SparkSession, pairs: Sequence[Pair], request: Request) -> pa.Table:
    """All rows as one job; long stories first, so that no task ends with one."""
    ordered = sorted(pairs, key=lambda pair: -pair[0].n_events)
    texts = {story.group: story.to_json() for story, _ in ordered}
    rows = pa.table(
        {
            "story": pa.array([texts[story.group] for story, _ in ordered], pa.string()),
            "setting": pa.array([json.dumps(asdict(s)) for _, s in ordered], pa.string()),
        }
    )
    n_tasks = max(1, len(pairs) // ROWS_PER_TASK)
    frame = spark.createDataFrame(rows).repartition(n_tasks)
    done: pa.Table = frame.mapInArrow(replay_task(request), REPLAY_DDL).toArrow()
    return done.cast(REPLAY)


def _ordered(done: pa.Table, pairs: Sequence[Pair]) -> pa.Table:
    """Rows in the order of the pairs, each with the fidelity of its group."""
    rows = {_row_key(row): row for row in done.to_pylist()}
    of_group: dict[str, list[dict[str, Any]]] = {}
    for row in rows.values():
        of_group.setdefault(row["group"], []).append(row)
    faith = {group: _faith(found) for group, found in of_group.items()}
    found = []
    for story, setting in pairs:
        row = rows[story.group, *_key(setting), setting.actual]
        found.append(_believed(row | faith[story.group]))
    return pa.Table.from_pylist(found, schema=REPLAY)


def _faith(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The fidelity of a group: the agreements of its actual setting, and what intervals say.

    With what is not to be trusted then.
    """
    (actual,) = [row for row in rows if row["actual"]]
    agreements = [actual[name] for name in FIDELITY[1:4]]
    if all(value is None for value in agreements):
        return dict.fromkeys((*FIDELITY, "caution"))
    agreements.append(_share_within(rows))
    faith = dict(zip(FIDELITY, (fidelity(agreements), *agreements), strict=True))
    return {**faith, "caution": caution(faith, actual["caution"] or "")}


def _believed(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a group whose fidelity is too low for seconds has their bounds alone.

    Whatever the replay of the group's own setting is off by, another one may be off by too: the
    bounds are wider by the worst of the agreements.
    """
    fidelity = row["fidelity"]
    if fidelity is None or fidelity >= SURE_FIDELITY:
        return row
    agreements = (row[name] for name in FIDELITY[1:4] if row[name] is not None)
    worst = max(LEAST_AGREEMENT, min(agreements))
    wider = {
        f"{name}_{end}": round(row[f"{name}_{end}"] * by, 3)
        for name in SECONDS
        for end, by in (("low", worst), ("high", 1 / worst))
        if row[f"{name}_{end}"] is not None
    }
    told = f"its fidelity of {fidelity:.2f} is below {SURE_FIDELITY}, so seconds are bounds alone"
    open_costs, found, _ = (row["reason"] or "").partition(ANYWHERE)
    if found:  # its bounds are those of before
        told = f"{open_costs.rpartition(': ')[0]}; {told}"
    elif row["reason"]:
        told = row["reason"]
    return row | wider | dict.fromkeys(SECONDS) | {"reason": told}


def _row_key(row: dict[str, Any]) -> tuple[str | int | bool, ...]:
    if row["policy"] == "kip848":
        return (row["group"], row["policy"], row["actual"])
    extra = (row["delay_ms"],) if row["delay_ms"] is not None else ()
    return (row["group"], row["policy"], row["assignor"], *extra, row["actual"])

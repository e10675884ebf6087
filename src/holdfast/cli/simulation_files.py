"""Files of ``holdfast simulate``: a scenario in JSON is read, and a dump of the run is written.

**Rules.** A wrong step is refused with its index in the file, before anything runs. A dump has the
simulated coordinator's own bytes, in the order and at the times of their writing. The world has no
producers, so a model gives the end offsets: from the beginning of the run on, every partition
receives one record per 10 ms, as many as a member processes. A lag is therefore the downtime of the
partition, in units of 10 ms.

**Strategy.** Each entry of ``steps`` becomes a :class:`holdfast.sim.scenarios.ScenarioStep`. The
columns of a dump are written by the same code as a live cluster's.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.option_values import parse_duration_ms
from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.core.model.constants import INT32_MAX
from holdfast.core.wire.one.topic_ids import topic_id_text
from holdfast.errors import ConfigError, SourceError, suggest
from holdfast.sim.broker import WALL_MS
from holdfast.sim.process import RECORD_MS
from holdfast.sim.scenarios import SCENARIOS, ScenarioStep
from holdfast.sim.world import World

if TYPE_CHECKING:
    from holdfast.fleet.pipeline.ingest.source import Dump


def read_scenario(name: str, members: int) -> tuple[ScenarioStep, ...]:
    """Read the steps of a scenario file for a group of ``members`` members.

    Raise SourceError if the file is not a scenario, ConfigError if there is none or a step is
    wrong.
    """
    path = Path(name)
    if not path.exists():
        hint = suggest(name, SCENARIOS)
        raise ConfigError(f"--scenario {name}: neither a scenario nor a file; {hint}")
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["steps"]
        script = tuple(_step(entry, i) for i, entry in enumerate(entries))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise SourceError(f"{name}: not a scenario file: {why}") from error
    if not script:
        raise ConfigError(f"{name}: steps: found none, expected at least one")
    started = {-1, *range(members)}
    for step in sorted(script, key=lambda s: s.at_ms):
        if step.do == "start":
            started.add(step.slot)
        if step.slot not in started:
            raise ConfigError(
                f"{name}: slot: found {step.slot}, expected 0 to {members - 1}, one that was "
                "started before, or -1 for the leader"
            )
    return script


def _step(entry: dict[str, Any], index: int) -> ScenarioStep:
    allowed = {f.name for f in fields(ScenarioStep)} - {"at_ms", "for_ms"} | {"at", "for"}
    unknown = sorted(set(entry) - allowed)
    if unknown:
        raise ConfigError(f"steps[{index}]: unknown key {unknown[0]!r}; known: {sorted(allowed)}")
    if type(entry.get("returns", True)) is not bool:
        raise ConfigError(f"steps[{index}].returns: found {entry['returns']!r}, expected a bool")
    for key, lowest in (("slot", -1), ("count", 0)):
        value = entry.get(key, 0)
        if type(value) is not int or not lowest <= value <= INT32_MAX:
            raise ConfigError(f"steps[{index}].{key}: found {value!r}, expected {lowest} or more")
    at_ms = parse_duration_ms(str(entry["at"]), f"steps[{index}].at")
    text = str(entry.get("for", 0)).strip()
    back = text.startswith("-") and entry["do"] == "jump-clock"  # only a clock goes backwards
    for_ms = parse_duration_ms(text.removeprefix("-") if back else text, f"steps[{index}].for")
    if max(at_ms, for_ms) > INT32_MAX:
        raise ConfigError(f"steps[{index}]: {max(at_ms, for_ms)} ms, expected at most {INT32_MAX}")
    values = {k: v for k, v in entry.items() if k not in ("at", "for")}
    return ScenarioStep(at_ms=at_ms, for_ms=-for_ms if back else for_ms, **values)


PARTITION = 0
"""Partition of the offsets topic that holds the group."""

CLUSTER_ID = "simulated"


def snapshot_of(world: World) -> ClusterSnapshot:
    """Return topics with ids made from their names, and the offsets of the model above."""
    end = world.now_ms // RECORD_MS
    names = sorted(world.partitions)
    taken = datetime.fromtimestamp((WALL_MS + world.now_ms) / 1000, UTC)
    return ClusterSnapshot(
        cluster_id=CLUSTER_ID,
        topics=tuple(
            (topic_id_text(uuid.uuid5(uuid.NAMESPACE_URL, name)), name, world.partitions[name])
            for name in names
        ),
        offsets=tuple(
            (name, partition, 0, end)
            for name in names
            for partition in range(world.partitions[name])
        ),
        taken_at=taken.isoformat(),
    )


def write_simulation(world: World, folder: Path) -> Dump:
    """Write the log of a world, at the end of its run, as a dump.

    The folder is new or empty, or a dump, which is replaced; SourceError if it holds something
    else.
    """
    from holdfast.fleet.pipeline.ingest.dump import write_log

    columns = {
        "partition": [PARTITION] * len(world.log),
        "offset": list(range(len(world.log))),
        "timestamp": [(WALL_MS + time_ms) * 1000 for time_ms, _, _ in world.log],
        "key": [key for _, key, _ in world.log],
        "value": [value for _, _, value in world.log],
    }
    return write_log(folder, columns, snapshot_of(world))

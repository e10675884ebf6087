"""Simulated groups as records of the offsets topic, with the simulation's own ledger as truth."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.pipeline import fleet

from holdfast.core.machine.policy import Policy
from holdfast.core.wire.layouts.offsets_records import decode_record, encode_record
from holdfast.sim.broker import WALL_MS
from holdfast.sim.clock import Costs
from holdfast.sim.scenarios import Setup, simulate

COSTS = Costs(slow_members=0)


@dataclass(frozen=True)
class Played:
    """A run: what it measured, its records as (group, second, (key, value))."""

    report: object
    records: list


def play(group="g", **setup):
    """Simulate a scenario; a process keeps its client id over restarts, as real ones do."""
    worlds = []
    setup.setdefault("costs", COSTS)
    setup.setdefault("settings", Policy(delay_ms=30_000))
    report = simulate(Setup(**setup), ended=worlds.append)
    (world,) = worlds
    records = [
        (group, (WALL_MS + time_ms) / 1000, renamed(group, key, value))
        for time_ms, key, value in world.log
    ]
    return Played(report=report, records=records)


def renamed(group, key, value):
    """A record of the simulation for another group, clients without their incarnation."""
    record = decode_record(key, value)
    content = record.value
    if record.name == "GroupMetadata" and content is not None:
        members = tuple(
            {**m, **{name: m[name].partition(".")[0] for name in ("clientId", "clientHost")}}
            for m in content["members"]
        )
        content = {**content, "members": members}
    key_of = {**record.key, "group": group}
    return encode_record(replace(record, key=key_of, value=content))


def write(folder, runs, topics=()):
    """A dump of several runs."""
    records = [record for run in runs for record in run.records]
    records.sort(key=lambda record: record[1])
    return fleet.write_dump(folder, records, topics=topics)

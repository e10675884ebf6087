"""A fleet whose problems are known: simulated groups, as records, through the pipeline to findings.

**Rules.** Every group lived: on a broker or in the simulation. ``planted`` are the codes that must
be found in it, none in a sound one; ``beside`` are those that come with the problem by its nature.

**Strategy.** What lived on a broker is there as it was left, with the broker's own times of unread
records (``tests/report/captured``). The simulation gives the group's records; how members commit is
written beside them, from the owners of the last generation, and where logs end. Ages of its records
are those that a cluster would tell.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from tests.pipeline import fleet, local, worlds
from tests.pipeline.kinds import tables_of
from tests.report.captured import scenarios
from tests.report.fleet import examine_all

from holdfast.cluster.first_unread import NOT_KNOWN, FirstUnread, RecordTime
from holdfast.core.wire.layouts.consumer_protocol import decode_assignment
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.fleet.analysis.findings.examination import Examination
from holdfast.fleet.pipeline.history.lag import with_record_ages
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import Tables, read_tables
from holdfast.sim.scenarios import ScenarioStep

CAPTURED = Path(local.__file__).parent / "captured"
TOPIC, DROPPED = "topic", "dropped"
LIVED_S = 1_300
"""All groups have ended their scenario by then, and the fleet is looked at."""
END = 10_000
EVERY_S = 10
HUNG_S = 650
"""A member leaves then that has not committed for five minutes."""


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A group: how it is played, how it commits, and what is wrong with it."""

    name: str
    setup: dict[str, Any] = field(default_factory=dict)
    reads: str = "well"
    planted: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()


def restarts(slot: int, times: int, every_s: int, away_s: int) -> tuple[ScenarioStep, ...]:
    """One member crashes and starts again and again."""
    return tuple(
        step
        for i in range(times)
        for step in (
            ScenarioStep(at_ms=i * every_s * 1000, do="stop", slot=slot),
            ScenarioStep(at_ms=(i * every_s + away_s) * 1000, do="start", slot=slot),
        )
    )


def late_polls(slot: int, times: int) -> tuple[ScenarioStep, ...]:
    """One member leaves each time after a minute, its poll interval, and comes back soon."""
    return tuple(
        step
        for i in range(times)
        for step in (
            ScenarioStep(at_ms=(i * 80 + 62) * 1000, do="stop", slot=slot),
            ScenarioStep(at_ms=(i * 80 + 74) * 1000, do="start", slot=slot),
        )
    )


def flaps(members: int, times: int) -> tuple[ScenarioStep, ...]:
    """Two new members come, and go half a minute later, again and again."""
    return tuple(
        step
        for i in range(times)
        for slot in (members + 2 * i, members + 2 * i + 1)
        for step in (
            ScenarioStep(at_ms=(30 + i * 60) * 1000, do="start", slot=slot),
            ScenarioStep(at_ms=(60 + i * 60) * 1000, do="stop", slot=slot, returns=False),
        )
    )


def sound() -> list[Labelled]:
    """Groups with nothing wrong: starts, bounces under a delay, growth, all read."""
    found = []
    sizes = ((2, 8), (3, 12), (5, 20), (4, 16), (6, 18), (7, 28))
    for n, (members, partitions) in enumerate(sizes):
        size = {"members": members, "partitions": partitions, "seed": n}
        for policy in ("deferred", "incremental", "simple", "cooperative-sticky"):
            setup = {"scenario": "first-start", "policy": policy, **size}
            found.append(Labelled(name=f"starts-{policy}-{n}", setup=setup))
        for policy in ("deferred", "incremental"):
            setup = {"scenario": "rolling-bounce", "policy": policy, **size}
            found.append(Labelled(name=f"bounced-{policy}-{n}", setup=setup))
    for policy in ("deferred", "incremental", "simple"):  # each member where no other one lives
        setup = {"scenario": "first-start", "policy": policy, "location": str, "seed": 30}
        found.append(
            Labelled(name=f"apart-{policy}", setup=setup | {"members": 3, "partitions": 12})
        )
    for members in (3, 5):
        size = {"members": members, "partitions": 12, "policy": "cooperative-sticky"}
        setup = {"scenario": "visit", "script": flaps(members, 1), **size}
        found.append(Labelled(name=f"visited-{members}", setup=setup))
    for policy in ("deferred", "cooperative-sticky", "incremental", "simple"):
        setup = {"scenario": "scale-up", "policy": policy, "members": 3, "partitions": 12}
        found.append(Labelled(name=f"grows-{policy}", setup=setup))
    return found


def _ill(name: str, setup: Any, reads: str, codes: str, beside: str = "") -> Labelled:
    named = {"planted": frozenset(codes.split()), "beside": frozenset(beside.split())}
    return Labelled(name=name, setup=setup, reads=reads, **named)


def ill() -> list[Labelled]:
    """Groups with one problem each."""
    found = []
    for n, (members, partitions) in enumerate(((3, 12), (4, 16), (5, 20))):
        size = {"members": members, "partitions": partitions, "seed": 10 + n}
        calm = {"scenario": "first-start", "policy": "cooperative-sticky", **size}
        hung = (ScenarioStep(at_ms=HUNG_S * 1000, do="stop", slot=1, returns=False),)
        gone = tuple(
            ScenarioStep(at_ms=1000 * slot, do="stop", slot=slot, returns=False)
            for slot in range(members)
        )
        loop = {"scenario": "loop", "policy": "deferred", "script": restarts(1, 8, 40, 10)}
        together = {"policy": "deferred", "location": lambda slot: "host"}
        slow = calm | {"scenario": "slow", "script": late_polls(1, 6)}
        flap = calm | {"scenario": "flaps", "script": flaps(members, 4)}
        deploy = {"scenario": "rolling-bounce", "policy": "simple"}
        found += [
            _ill(f"stuck-{n}", calm, "stuck", "HF105", "HF104"),
            _ill(f"poison-{n}", calm, "poison", "HF125"),
            _ill(f"behind-{n}", calm, "behind", "HF126"),
            _ill(f"skewed-{n}", calm, "skewed", "HF104"),
            _ill(f"hot-{n}", calm, "hot", "HF104"),
            _ill(f"never-{n}", calm, "never", "HF107"),
            _ill(f"loops-{n}", size | loop, "well", "HF124"),
            _ill(f"slow-{n}", slow, "well", "HF127", "HF101 HF103"),
            _ill(f"flaps-{n}", flap, "well", "HF132", "HF101 HF103"),
            _ill(f"evicted-{n}", calm | {"scenario": "hung", "script": hung}, "evicted", "HF105"),
            _ill(f"static-{n}", calm | {"static": True}, "stuck", "HF109", "HF104"),
            _ill(f"empty-{n}", calm | {"scenario": "gone", "script": gone}, "left", "HF115"),
            _ill(f"dropped-{n}", calm, "dropped", "HF129"),
            _ill(f"together-{n}", calm | together, "well", "HF130"),
            _ill(f"deployed-{n}", size | deploy, "well", "HF102 HF111", "HF101 HF103"),
        ]
    return found


LIVE = {
    "group-share": frozenset(),
    "group-streams": frozenset(),
    "next": frozenset(),
    "group-streams-classic": frozenset({"HF101"}),
    "group-connect": frozenset({"HF101"}),
    "group-migrated": frozenset({"HF101"}),
    "group-worker": frozenset({"HF101"}),
    "group-failing": frozenset({"HF131"}),
    "etl": frozenset({"HF111", "HF119"}),
    "design": frozenset({"HF111"}),
    "static": frozenset({"HF111"}),
}
"""Groups that lived on a broker (``tests/pipeline/captured``, ``tests/pipeline/kinds``), in which
members were stopped and started at once, or came back later than the others waited."""


def live(folder: Path) -> dict[str, Examination]:
    """Findings of the groups of :data:`LIVE`."""
    names = ("share", "streams", "streams_classic", "connect", "migrated", "worker", "failing")
    made = [*tables_of(names, folder).values(), local.run(CAPTURED / "dump", folder / "captured")]
    found = {e.history.name: e for one in made for e in examine_all(one.load())}
    return {name: found[name] for name in LIVE}


def captured(folder: Path) -> dict[str, Examination]:
    """Findings of the groups of ``tests/report/captured``, at the moment of their dump."""
    dump = scenarios.HERE / "dump"
    made = local.run(dump, folder / "tables", batch_rows=5_000)
    taken_at = json.loads((dump / "dump.json").read_text())["taken_at"]
    taken_us = round(datetime.fromisoformat(taken_at).timestamp() * 1e6)
    ages = json.loads((scenarios.HERE / "ages.json").read_text())
    found = at_moment(made, taken_us, lambda topic, p, offset: ages[f"{topic}-{p}@{offset}"])
    return {scenario.name: found[scenario.name] for scenario in scenarios.SCENARIOS}


def at_moment(made: Tables, taken_us: int, time_ms: Callable[..., int]) -> dict[str, Examination]:
    """Findings of the groups of these tables, where a cluster tells times of records."""
    held = {name: made.table(name, flat=False) for name in TABLES}
    held["lag"] = with_record_ages(
        held["lag"], lambda wanted: [_unread(time_ms(*one[:3])) for one in wanted], taken_us
    )
    return {e.history.name: e for e in examine_all(read_tables(held), last_ms=taken_us // 1000)}


def _unread(time_ms: int | None) -> FirstUnread:
    """A record of this time; None where a cluster did not tell it."""
    return NOT_KNOWN if time_ms is None else FirstUnread(RecordTime(time_ms, True), True)


def commits_of(one: Labelled, owned: dict[str, list[int]], end_s: float) -> list[Any]:
    """(group, second, record) of the commits of a group in its last five minutes."""
    if one.reads == "never":
        return []
    if one.reads == "left":
        at = end_s - 1_200
        return [(one.name, at, fleet.commit(one.name, TOPIC, p, END - 900, at=at)) for p in (0, 1)]
    found = []
    if one.reads == "dropped":  # nobody asks for that topic any more
        at = end_s - 1_200
        found.append((one.name, at, fleet.commit(one.name, DROPPED, 0, END - 900, at=at)))
    first = min(owned)
    for member, partitions in sorted(owned.items()):
        for partition in partitions:
            lag = lag_of(one, member == first, partition == min(partitions))
            for at in range(-400, 0, EVERY_S):
                stands = one.reads == "poison" and lag > 0
                if one.reads == "stuck" and member == first and at > -200:
                    continue  # its last commit; Kafka waits for five minutes
                offset = END - lag + (0 if stands or lag == 0 else at)
                second = end_s + at
                value = fleet.commit(one.name, TOPIC, partition, offset, at=second)
                found.append((one.name, second, value))
    return found


def commits_before_the_last(one: Labelled, own: list[Any]) -> list[Any]:
    """Commits in the six minutes before a group's last generation; those of who went end early."""
    last = own[-1][1]
    before, after = owned_at_the_end(own[:-1]), owned_at_the_end(own)
    assert len(before.keys() - after.keys()) == 1
    return [
        (one.name, last + at, fleet.commit(one.name, TOPIC, partition, END // 2 + at, at=last + at))
        for member, partitions in sorted(before.items())
        for partition in partitions
        for at in range(-400, 0, EVERY_S)
        if member in after or at < -300
    ]


def lag_of(one: Labelled, is_first_member: bool, is_its_first: bool) -> int:
    """Records of a partition that are unread at the end, about."""
    match one.reads:
        case "stuck":
            return 500 if is_first_member else 0
        case "poison":
            return 400 if is_first_member and is_its_first else 0
        case "behind":
            return 800
        case "skewed":
            return 2_000 if is_first_member else 0
        case "hot":
            return 6_000 if is_first_member and is_its_first else 0
    return 0


def owned_at_the_end(records: list[Any]) -> dict[str, list[int]]:
    """Partitions of each member in the last generation."""
    for _, _, (key, value) in reversed(records):
        record = decode_record(key, value)
        if record.name == "GroupMetadata" and record.value is not None:
            return {
                m["memberId"]: sorted(
                    p for _, ps in decode_assignment(m["assignment"]).partitions for p in ps
                )
                for m in record.value["members"]
            }
    return {}


def write(folder: Path, groups: list[Labelled]) -> Path:
    """A dump of the fleet."""
    plays = [worlds.play(group=one.name, **one.setup) for one in groups]
    begin = min(played.records[0][1] for played in plays)
    end = begin + LIVED_S
    records = []
    for one, played in zip(groups, plays, strict=True):
        own = [r for r in played.records if decode_record(*r[2]).name == "GroupMetadata"]
        assert own[-1][1] < end - 400, one.name
        records += own + commits_of(one, owned_at_the_end(own), end)
        if one.reads == "evicted":
            records += commits_before_the_last(one, own)
    records.sort(key=lambda record: record[1])
    offsets = [(DROPPED, 0, 0, END), *((TOPIC, p, 0, END) for p in range(20))]
    taken = datetime.fromtimestamp(end, UTC).isoformat()
    return fleet.write_dump(folder, records, offsets=offsets, taken_at=taken)


def examined(folder: Path, groups: list[Labelled]) -> dict[str, Examination]:
    """Findings of every group, by its name."""
    made = local.run(write(folder / "dump", groups), folder / "tables", batch_rows=5_000)
    committed = made.table("lag")["commit_timestamp"].cast("int64")
    taken_us = int(pc.max(committed).as_py()) + 10**7
    # One record a second was written: what is unread is as old as it is much.
    return at_moment(made, taken_us, lambda _, __, at: taken_us // 1000 - 1000 * (END - at))

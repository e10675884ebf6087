"""Fault scenarios 65 and 69 to 72: a lag source that fails, and logs that are not in order.

The pipeline reads the records of a log, and the coordinator replays them.

References: KIP-848, "Online migration".
"""

from __future__ import annotations

import threading

from tests.machine.subscribed import joining_members, round_of
from tests.pipeline import fleet
from tests.pipeline.histories import generation
from tests.pipeline.local import made, rows
from tests.sim.faults.small_worlds import ends_well, world

from holdfast.core.machine.coordinator.group import Durable
from holdfast.core.machine.leader.assignor_protocol import MemberView
from holdfast.core.machine.leader.designs import EagerAssignor
from holdfast.members.config.settings import Settings
from holdfast.members.runtime.leader_planner import LeaderPlanner, timed_lag_source

RANGES = EagerAssignor("lag")


def led(source) -> dict[str, int]:
    """How many partitions each of three members gets from a leader with this lag source."""
    view = MemberView(topics=("t",), owned=(), previous=(), generation=-1)
    members = joining_members(RANGES, **dict.fromkeys("abc", view))
    settings = Settings.parse(
        {
            "bootstrap.servers": "nowhere:1",
            "group.id": "g",
            "holdfast.policy": "eager",
            "partition.assignment.strategy": "lag",
            "holdfast.lag.timeout.ms": 50,
        }
    )
    leadership = LeaderPlanner(settings, [RANGES], lambda topics: {"t": 6}, lag_source=source)
    done = leadership.compute(round_of("lag", members, {"t": 6}, 1))
    assert done.failure is None
    return {m: len(RANGES.read(data).assigned) for m, data in done.assignments}


def test_65_lags_cannot_be_read(caplog):
    def unreachable(partitions):
        raise ConnectionError("no broker at nowhere:1")

    hangs = threading.Event()

    def slow(partitions):
        hangs.wait(5)
        return {}

    assert led(unreachable) == {"a": 2, "b": 2, "c": 2}
    assert "no broker at nowhere:1" in caplog.text
    try:
        assert led(slow) == {"a": 2, "b": 2, "c": 2}
    finally:
        hangs.set()
    assert "no answer within 50 ms" in caplog.text
    for odd in ({"t": [1, 2]}, {"t": [-1] * 6}, {"t": ["x"] * 6}, None):
        assert led(lambda partitions, odd=odd: odd) == {"a": 2, "b": 2, "c": 2}
    assert timed_lag_source(None)({"t": 3}) == {"t": [0, 0, 0]}


def replayed(records) -> Durable:
    """What a coordinator knows after the records."""
    durable = Durable()
    for key, value in records:
        durable.replay(key, value)
    return durable


def test_69_a_tombstone_of_an_unknown_group(tmp_path):
    tombstone = fleet.classic(generation("nobody", -1, {}, state="Dead"))
    alive = fleet.classic(generation("g", 1, {"a": {"t": [0]}}, at=5))
    gone = fleet.classic(generation("g", -1, {}, state="Dead"))
    assert replayed([tombstone]).group is None
    assert replayed([alive, gone]).group is None
    tables = made(tmp_path, [("nobody", 4, tombstone), ("g", 5, alive)])
    assert ("nobody", "Dead") in rows(tables, "generations", "group", "state")
    assert rows(tables, "rebalances", "group", "cause") == [("g", "first_seen")]
    assert rows(tables, "bad_records", "reason") == []


def test_70_records_out_of_order_after_compaction(tmp_path):
    members = {"a": {"t": [0, 1]}, "b": {"t": [2]}}
    numbers = (9, 3, 12)  # what compaction and another log's tail may leave
    steps = [fleet.classic(generation("g", n, members, at=n)) for n in numbers]
    records = [("g", 10 + i, step) for i, step in enumerate(steps)]
    tables = made(tmp_path, records)
    assert rows(tables, "movements", "kind") == []
    assert {left for (left,) in rows(tables, "rebalances", "n_left")} == {0}
    stored = replayed(steps).group
    assert stored["generation"] == 12  # the last record is the state, whatever its number
    assert len(stored["members"]) == 2  # a gap in numbers is no member's departure
    assert replayed(reversed(steps)).group["generation"] == 9


def test_71_an_unknown_record_type_or_version(tmp_path):
    w = ends_well(world(n=1))  # real records around them
    records = [("group", time_ms, (key, value)) for time_ms, key, value in w.log]
    unknown = (b"\x7f\xff\x00\x05group", b"\x00\x00")
    key, value = fleet.classic(generation("group", 9, {"a": {"t": [0]}}))
    newer = (key, b"\x00\x63" + value[2:])
    tables = made(tmp_path, [("group", 1, unknown), ("group", 2, newer), *records])
    assert len(rows(tables, "bad_records", "reason")) == 1
    assert tables.batches()[0].notes["n_unknown"] == 1
    assert rows(tables, "generations", "group", "state") == [("group", "Stable")]


def test_72_a_group_migrates_to_kip_848_and_back(tmp_path):
    owned = {"a-1": {"t": [0]}}
    steps = [
        fleet.classic(generation("g", 4, owned, at=10)),
        fleet.classic(generation("g", -1, {}, state="Dead")),
        fleet.consumer_member("g", "a-1", ["t"]),
        fleet.consumer_epoch("g", 5),
        fleet.consumer_target("g", "a-1", {"t": [0]}),
        fleet.assignment_epoch("g", 5),
        *[fleet.tombstone(n, "g", "a-1") for n in (8, 7, 5)],
        *[fleet.tombstone(n, "g") for n in (6, 3)],
        fleet.classic(generation("g", 6, owned, at=20)),
        fleet.commit("g", "t", 0, 7, at=30),
    ]
    records = [("g", 10 + i, step) for i, step in enumerate(steps)]
    tables = made(tmp_path, records, topics=[("t", 1)])
    assert rows(tables, "generations", "generation", "group_type", "state") == [
        (4, "classic", "Stable"),
        (5, "consumer", "Stable"),
        (6, "classic", "Stable"),
    ]
    assert rows(tables, "movements", "kind") == []
    assert replayed(steps[:6]).group is None  # while it is migrated
    durable = replayed(steps)  # a classic coordinator that reads the stream afterwards
    assert durable.group["generation"] == 6
    assert durable.offsets == {("t", 0): 7}

"""Groups of every kind that a real broker kept, against what Kafka's own tools said of them.

The captures stand in ``tests/wire/captured``. The expected answers are those of Kafka's tools
(``ConsumerGroupCommand``, ``ShareGroupCommand``, ``StreamsGroupCommand``) and of Connect's REST
interface at moments in between.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline import fleet, local
from tests.pipeline.kinds import kind, printed, tables_of
from tests.suites import further

from holdfast.cli.histories import report_unread
from holdfast.cli.updater import BatchReporter
from holdfast.core.wire.layouts.container import (
    MOST_FAILED,
    FailedPartitions,
    Leaving,
    MemberAssignment,
    MemberSubscription,
    encode_member_assignment,
    encode_member_subscription,
)
from holdfast.core.wire.layouts.offsets_records import decode_record, encode_record
from holdfast.fleet.pipeline.batches.history import History
from holdfast.fleet.pipeline.batches.watch import Stream
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.dump import part_of
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables

pytestmark = pytest.mark.xdist_group("kinds")

MODERN = ("streams", "share")
EVERY = (*MODERN, "streams_classic", "connect", "migrated", "worker")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Tables of every capture, by its name."""
    return tables_of(EVERY, tmp_path_factory.mktemp("kinds"))


def assigned(tables, generation, role):
    """{member: {(topic, partition)}} of a generation."""
    found = {}
    for row in tables.table("assignments").to_pylist():
        if (row["generation"], row["role"]) == (generation, role):
            found.setdefault(row["member_id"], set()).add((row["topic"], row["partition"]))
    return found


def by_generation(tables, name):
    """Rows of a table by generation."""
    return {row["generation"]: row for row in tables.table(name).to_pylist()}


def said_tasks(text):
    """{role: {(subtopology, partition)}} as StreamsGroupCommand prints the target of a member."""
    found = {}
    for role, tasks in re.findall(r"TARGET-(\w+): ((?:\w+:\[[\d,]+\]; )+)", text):
        for place, numbers in re.findall(r"(\w+):\[([\d,]+)\]", tasks):
            for number in numbers.split(","):
                found.setdefault(role.lower(), set()).add((place, int(number)))
    return found


def said_partitions(text):
    """{(topic, partition)} as the tools print the assignment of a member."""
    return {
        (topic, int(number))
        for topic, numbers in re.findall(r"([\w.-]+):([\d,]+)", text)
        for number in numbers.split(",")
    }


@pytest.mark.parametrize("name", MODERN)
def test_generations_are_the_epochs_that_the_broker_named(tables, name):
    rows = tables[name].table("generations").to_pylist()
    assert {row["group_type"] for row in rows} == {name}
    assert {row["group"] for row in rows} == {kind(name).group}
    for moment in kind(name).moments:
        state = printed(moment["state"])[0]
        epoch = state.get("TARGET-ASSIGNMENT-EPOCH") or state["ASSIGNMENT-EPOCH"]
        last = [r for r in rows if r["timestamp"].timestamp() * 1000 <= moment["at_ms"]][-1]
        # A heading of two words, COORDINATOR (ID), shifts the columns behind it by none at the end.
        assert str(last["generation"]) in (epoch, *state.values()), moment["what"]
        assert last["n_members"] == len(printed(moment["members"]))


def test_tasks_of_a_streams_group(tables):
    seen = set()
    for moment in kind("streams").moments:
        said = printed(moment["members"])
        epoch = int(said[0]["TARGET-ASSIGNMENT-EPOCH"])
        for role in ("active", "standby", "warmup"):
            wanted = {row["MEMBER"]: said_tasks(row["ASSIGNMENTS"]).get(role) for row in said}
            wanted = {member: tasks for member, tasks in wanted.items() if tasks}
            assert assigned(tables["streams"], epoch, role) == wanted, moment["what"]
            seen |= {role} if wanted else set()
    assert seen == {"active", "standby"}


def test_members_of_a_share_group_read_the_same_partitions(tables):
    for moment in kind("share").moments:
        said = printed(moment["members"])
        wanted = {row["CONSUMER-ID"]: said_partitions(row["ASSIGNMENT"]) for row in said}
        epoch = int(said[0]["MEMBER-EPOCH"])
        assert assigned(tables["share"], epoch, "shared") == wanted, moment["what"]
    assert not tables["share"].rows("anomalies")
    assert not tables["share"].rows("ownership_gaps")
    assert not tables["share"].rows("movements")


def test_rebalances_of_a_share_group_count_readers(tables):
    rows = tables["share"].table("rebalances").to_pylist()
    pairs = {
        epoch: {
            (member, *tp)
            for member, tps in assigned(tables["share"], epoch, "shared").items()
            for tp in tps
        }
        for epoch in by_generation(tables["share"], "rebalances")
    }
    for before, row in pairwise(rows):
        old, new = pairs[before["generation"]], pairs[row["generation"]]
        counted = (row["n_kept"], row["n_gained"], row["n_lost"], row["n_moved"])
        assert counted == (len(old & new), len(new - old), len(old - new), 0)
        assert row["n_partitions"] == len({tp[1:] for tp in new})
        assert (row["stickiness"], row["n_avoidable_moves"]) == (None, 0)
    causes = [row["cause"] for row in rows]
    assert causes[:2] == ["first_seen", "partition_count_change"]
    assert causes[2:] == ["join", "join", "leave_or_timeout", "leave_or_timeout"]


def test_a_task_that_moves_between_streams_members_has_a_recorded_gap(tables):
    moved = tables["streams"].table("movements").to_pylist()
    assert {row["topic"] for row in moved} == {"0", "1"}
    assert {row["kind"] for row in moved} == {"moved"}
    gaps = tables["streams"].table("ownership_gaps").to_pylist()
    assert {row["basis"] for row in gaps} == {"reconciled"}
    assert all(0 <= row["gap_lower_seconds"] <= row["gap_upper_seconds"] for row in gaps)
    rows = tables["streams"].table("rebalances").to_pylist()
    assert [row["cause"] for row in rows] == [
        "first_seen",
        *["join", "leave_or_timeout"] * 2,
    ]
    assert [row["n_moved"] for row in rows] == [0, 4, 4, 4, 4]
    assert {row["cooperative"] for row in rows} == {True}
    assert {row["n_needed_moves"] for row in rows} == {None}  # tasks are not alike


def test_the_lag_of_a_streams_group_names_the_member_that_reads(tables):
    moment = kind("streams").moments[-1]
    said = {
        (row["TOPIC"], int(row["PARTITION"])): (int(row["CURRENT-OFFSET"]), int(row["OFFSET-LAG"]))
        for row in printed(moment["offsets"])
    }
    rows = tables["streams"].table("lag").to_pylist()
    found = {(r["topic"], r["partition"]): (r["current_offset"], r["lag"]) for r in rows}
    assert found == said
    assert {row["member_id"] for row in rows} == {printed(moment["members"])[0]["MEMBER"]}


@pytest.mark.parametrize("name", further(EVERY, ["streams", "worker"]))
def test_a_stream_says_the_same(tables, tmp_path, name):
    captured = kind(name)
    cuts = [moment["at_ms"] * 1000 for moment in captured.moments]
    streamed = local.stream(captured.write_dump(tmp_path / "dump"), tmp_path / "out", cuts)
    for table in ("generations", "members", "assignments", "movements", "rebalances", "lag"):
        whole = tables[name].table(table).to_pylist()
        assert streamed.table(table).to_pylist() == whole, table


def by_client(tables, generation, role):
    """The same by the beginning of the member id, which is the client's name."""
    return {m.split("-")[0]: tps for m, tps in assigned(tables, generation, role).items()}


SUBTOPOLOGY = {"orders": "0", "group-streams-classic-counts-repartition": "1"}


def test_tasks_of_a_classic_streams_group(tables):
    rows = tables["streams_classic"].table("generations").to_pylist()
    for moment in kind("streams_classic").moments:
        last = [r for r in rows if r["timestamp"].timestamp() * 1000 <= moment["at_ms"]][-1]
        wanted = {
            row["CONSUMER-ID"]: {
                (SUBTOPOLOGY[topic], p)
                for topic, p in said_partitions(row.get("CURRENT-ASSIGNMENT", ""))
            }
            for row in printed(moment["members"])
        }
        found = assigned(tables["streams_classic"], last["generation"], "active")
        assert found == wanted, moment["what"]


def test_warm_up_tasks_stand_by_until_the_probing_rebalance(tables):
    found = tables["streams_classic"]
    warm = {g: by_client(found, g, "warmup") for g in range(1, 12)}
    assert {g for g, members in warm.items() if members} == {3, 4, 5}
    assert warm[4] == {"b": {("1", 0), ("1", 2)}}
    assert {("1", 0), ("1", 2)} <= by_client(found, 6, "active")["b"]
    assert by_client(found, 11, "standby") == {"d": {("1", p) for p in range(4)}}
    counts = {
        (row["generation"], row["member_id"][0]): (row["n_standby"], row["n_warmup"])
        for row in found.table("members").to_pylist()
    }
    assert counts[4, "b"] == (0, 2)
    assert counts[11, "d"] == (4, 0)
    delays = {r["generation"]: r["delay_ms"] for r in found.table("generations").to_pylist()}
    assert 59_000 < delays[4] <= 60_000  # probing.rebalance.interval.ms
    assert delays[6] is None


def test_a_classic_streams_group_is_cooperative(tables):
    rows = tables["streams_classic"].table("rebalances").to_pylist()
    living = [row for row in rows if row["n_members"]]
    assert {row["cooperative"] for row in living} == {True}
    causes = {row["generation"]: row["cause"] for row in living}
    assert causes[3] == "join"
    assert causes[4] == "cooperative_follow_up"
    assert causes[5] == "scheduled_rebalance"  # the probing rebalance
    assert causes[6] == "cooperative_follow_up"
    assert causes[7] == "leave_or_timeout"
    assert {row["n_needed_moves"] for row in living} == {None}
    bases = {row["basis"] for row in tables["streams_classic"].table("ownership_gaps").to_pylist()}
    assert bases == {"unowned", "handover"}  # none is eager


def test_the_lag_of_a_classic_streams_group_is_that_of_its_topics(tables):
    moment = kind("streams_classic").moments[-1]
    said = {
        (row["TOPIC"], int(row["PARTITION"])): (int(row["LAG"]), row["CONSUMER-ID"])
        for row in printed(moment["offsets"])
    }
    rows = tables["streams_classic"].table("lag").to_pylist()
    assert {(r["topic"], r["partition"]): (r["lag"], r["member_id"]) for r in rows} == said


def connectors(moment):
    """{worker: {(connector, task)}} as Connect's REST interface says; -1 is the connector."""
    worker_of = {url.removeprefix("http://"): name for name, url in moment["urls"].items()}
    found = {}
    for name, status in moment["status"].items():
        found.setdefault(worker_of[status["connector"]["worker_id"]], set()).add((name, -1))
        for task in status["tasks"]:
            found.setdefault(worker_of[task["worker_id"]], set()).add((name, task["id"]))
    return found


def test_connectors_and_tasks_of_a_connect_group(tables):
    rows = tables["connect"].table("generations").to_pylist()
    for moment in kind("connect").moments:
        last = [r for r in rows if r["timestamp"].timestamp() * 1000 <= moment["at_ms"]][-1]
        wanted = connectors(moment)
        if last["delay_ms"]:  # Connect still names the worker that is gone
            assert moment["what"] == "work of w3 waits"
            assert wanted.pop("w3") == {("source", 0)}
        assert by_client(tables["connect"], last["generation"], "active") == wanted
    assert rows[-1]["config_offset"] == 10
    assert [row["delay_ms"] for row in rows if row["delay_ms"]] == [12_000]


def test_rebalances_of_a_connect_group(tables):
    found = tables["connect"]
    rows = by_generation(found, "rebalances")
    causes = [rows[g]["cause"] for g in range(1, 12)]
    assert causes == [
        "join",
        *["configuration_change"] * 4,
        *["join", "cooperative_follow_up"] * 2,
        "leave_or_timeout",
        "scheduled_rebalance",
    ]
    revoked = {
        (row["generation"], row["member_id"][:2]): row["n_revoked"]
        for row in found.table("members").to_pylist()
    }
    assert {key: n for key, n in revoked.items() if n} == {(6, "w1"): 3, (8, "w1"): 1}
    assert [rows[g]["n_moved_through_gap"] for g in (7, 9, 11)] == [3, 1, 1]
    assert rows[11]["gap_lower_seconds"] == pytest.approx(12, abs=0.1)  # the delay
    gone = [r for r in found.table("movements").to_pylist() if r["generation"] == 11]
    assert [(r["topic"], r["partition"], r["kind"]) for r in gone] == [
        ("source", 0, "moved_through_gap")
    ]
    assert not found.rows("anomalies")
    assert not found.rows("lag")


def test_a_group_that_migrates_and_comes_back_keeps_identities_and_causes(tables):
    rows = tables["migrated"].table("rebalances").to_pylist()
    said = [
        (row["generation"], row["group_type"], row["cause"], row["n_joined"], row["n_left"])
        for row in rows[2:]
    ]
    assert said == [
        (2, "classic", "join", 1, 0),
        (3, "classic", "join", 1, 0),
        (4, "consumer", "join", 1, 0),  # n1, under KIP-848; epoch 3 is generation 3 again
        (5, "consumer", "leave_or_timeout", 0, 1),
        (5, "classic", "leave_or_timeout", 0, 1),  # n1: in the record of the converted group
        (6, "classic", "protocol_change", 0, 0),
        (7, "consumer", "join", 1, 0),
        (7, "classic", "leave_or_timeout", 0, 1),
        (8, "classic", "protocol_change", 0, 0),
        (9, "classic", "leave_or_timeout", 0, 1),
    ]
    told = kind("migrated").moments[-1]["told"]
    assert [step["what"] for step in told] == [
        *["join"] * 4,
        *["leave"] * 2,
        "join",
        "crash",
        "leave",
    ]
    left = [row for row in rows if row["group_type"] == "classic" and row["generation"] in (5, 7)]
    assert [(row["n_lost"], row["n_moved"], row["cooperative"]) for row in left] == [
        (2, 0, True),
        (2, 0, True),
    ]


def test_nobody_stops_when_the_broker_converts_a_group(tables):
    gaps = tables["migrated"].table("ownership_gaps").to_pylist()
    times = {row["generation"]: set() for row in gaps}
    for row in gaps:
        times[row["generation"]].add(row["basis"])
    assert times[3] == {"eager"}
    eager = [row["timestamp"] for row in gaps if row["basis"] == "eager"]
    rounds = [
        row["timestamp"]
        for row in tables["migrated"].table("generations").to_pylist()
        if (row["group_type"], row["generation"]) in {("classic", n) for n in (2, 3, 6, 8, 9)}
    ]
    assert set(eager) == set(rounds)


def test_members_of_a_migrated_group_are_those_that_the_broker_named(tables):
    rows = tables["migrated"].table("generations").to_pylist()
    rows.sort(key=lambda row: row["log_offset"])
    members = tables["migrated"].table("members").to_pylist()
    for moment in kind("migrated").moments:
        last = [r for r in rows if r["timestamp"].timestamp() * 1000 <= moment["at_ms"]][-1]
        found = {r["member_id"] for r in members if r["timestamp"] == last["timestamp"]}
        said = {row["CONSUMER-ID"] for row in printed(moment["members"])}
        assert found == said, moment["what"]


def test_the_lag_of_a_share_group_is_what_its_coordinator_says(tables):
    moment = kind("share").moments[-1]
    said = {
        (row["TOPIC"], int(row["PARTITION"])): (int(row["START-OFFSET"]), int(row["LAG"]))
        for row in printed(moment["offsets"])
    }
    rows = tables["share"].table("lag").to_pylist()
    assert {(r["topic"], r["partition"]): (r["current_offset"], r["lag"]) for r in rows} == said
    assert all(row["lag"] > 0 for row in rows)
    assert {row["status"] for row in rows} == {"shared"}
    behind = {row["partition"]: row["log_end_offset"] - row["current_offset"] for row in rows}
    done = {row["partition"]: row["delivered"] for row in rows}
    assert {p: behind[p] - done[p] for p in behind} == {tp[1]: lag for tp, (_, lag) in said.items()}
    assert any(done.values())
    # Many may read a partition; the one that is named is a reader.
    readers = assigned(tables["share"], 7, "shared")
    assert {row["member_id"] for row in rows} <= set(readers)


def test_without_its_state_the_lag_of_a_share_group_is_not_known(tmp_path):
    captured = kind("share")
    dump = captured.write_dump(tmp_path / "dump")
    for file in (dump / "share_state").glob("*.parquet"):
        file.unlink()
    rows = local.run(dump, tmp_path / "out").table("lag").to_pylist()
    assert [(r["partition"], r["lag"], r["delivered"], r["status"]) for r in rows] == [
        (0, None, None, "none"),
        (1, None, None, "none"),
    ]


def strange(number, group="g"):
    """A record of a type that nobody knows."""
    return number.to_bytes(2, "big") + len(group).to_bytes(2, "big") + group.encode(), b"\x00\x00"


def test_records_that_nobody_knows_are_counted_by_their_type(tmp_path):
    records = [("g", at, strange(number)) for at, number in enumerate([24, 99, 99, 9])]
    tables = local.run(fleet.write_dump(tmp_path / "dump", records), tmp_path / "out", batch_rows=2)
    notes = tables.batches()[0].notes
    assert notes["unknown_types"] == {"9": 1, "24": 1, "99": 2}
    assert notes["n_unknown"] == 4


BAD_SHARE = (
    "2 of the records of __share_group_state do not parse: the lag of their share groups may be "
    "old or unknown"
)


def test_records_of_the_share_state_that_do_not_parse_are_counted(tmp_path):
    captured = kind("share")
    bad = [(0, 900, 0, b"\0\0\0", b"\0\0"), (1, 901, 0, b"\0\7\0\0", None)]
    state = [*captured.share_state(), *bad]
    path = captured.write_dump(tmp_path / "dump")
    table = part_of("share_state", state)
    (file,) = (path / "share_state").glob("*.parquet")
    pq.write_table(table, file)
    tables = local.run(path, tmp_path / "out")
    assert tables.batches()[0].notes["n_bad_share"] == 2
    cluster = SimpleNamespace(
        topics=captured.about["topics"],
        offsets=captured.about["offsets"],
        taken_at=captured.about["taken_at"],
        share_state=state,
    )
    stream = Stream(tables=tables, snapshot=lambda: cluster, selection=Selection())
    ends = stream._ends(cluster)
    assert ends.n_bad_share == 2
    assert ends.share.num_rows == 2


def test_watch_names_what_a_batch_did_not_read(tmp_path):
    tables, said = Tables(tmp_path / "out"), []
    reporter = BatchReporter(said.append)
    seen = [({"99": 2, "24": 1}, 2), ({}, 2), ({"24": 1}, 0), ({}, 2)]
    for batch, (unknown, n_bad) in enumerate(seen):
        counts = {"unknown_types": unknown, "n_bad_share": n_bad}
        tables.commit(Batch(id=batch, files={}, notes=counts))
        reporter.after_batch(tables, batch)
    assert said == [
        "3 of the batch's records have an unknown type: 1 of type 24, 2 of type 99",
        BAD_SHARE,
        "1 of the batch's records have an unknown type: 1 of type 24",
        BAD_SHARE,
    ]


def test_what_is_not_read_is_named():
    said = []
    generations = pa.table({"group": ["a", "b", "c"], "protocol_type": ["sr", "sr", "consumer"]})
    notes = {"unknown_types": {"99": 2, "24": 1}, "n_bad_share": 2}
    batch = Batch(id=0, rows={"bad_records": 3}, notes=notes)
    made = SimpleNamespace(
        dump=SimpleNamespace(n_records=lambda: 9, open_transactions=(), taken_at=""),
        table=lambda _: generations,
        tables=SimpleNamespace(batches=lambda: [batch]),
    )
    report_unread(made, said.append)
    assert said == [
        "3 of 9 records do not parse: `history --table bad_records` lists them",
        "3 of 9 records have an unknown type: 1 of type 24, 2 of type 99",
        BAD_SHARE,
        "assignments of protocol type sr are not read (2 groups, such as a)",
    ]


def test_resources_of_captured_workers_are_those_that_they_held(tables):
    rows = by_generation(tables["worker"], "generations")
    for moment in kind("worker").moments:
        said, row = moment["admin"], rows[moment["generation"]]
        assert (row["protocol_type"], row["protocol"], row["state"]) == (
            said["protocol_type"],
            said["protocol_data"],
            said["group_state"],
        )
        assert row["n_members"] == len(said["members"])
        found = assigned(tables["worker"], moment["generation"], "active")
        held = {
            name: {(what, number) for what, number in of} for name, of in moment["held"].items()
        }
        ids = said["members"]
        assert found == {ids[name]: resources for name, resources in held.items()}, moment["what"]


def test_what_captured_workers_could_not_do_is_what_they_said(tmp_path):
    """Shard 3 starts nowhere and shard 4 not on w1, which runs it by another worker."""
    made = tables_of(["failing"], tmp_path)["failing"]
    moment = kind("failing").moments[-1]
    found = {
        (row["topic"], row["partition"]): (set(row["member_ids"]), row["detail"])
        for row in made.table("anomalies").to_pylist()
        if (row["generation"], row["kind"]) == (moment["generation"], "failed_resource")
    }
    ids = moment["members"]
    assert found == {
        ("shard", 3): (set(ids.values()), "OSError"),
        ("shard", 4): ({ids["w1"]}, "MemoryError"),
    }
    owned = assigned(made, moment["generation"], "active")
    for name, states in moment["states"].items():
        assert owned[ids[name]] == {("shard", int(each[6:])) for each in states}
    statuses = {each: own for states in moment["states"].values() for each, own in states.items()}
    assert [each for each, own in statuses.items() if own != "RUNNING"] == ["shard-3"]
    assert len(statuses) == 12


def test_rebalances_of_captured_workers(tables):
    rows = by_generation(tables["worker"], "rebalances")
    causes = [rows[number]["cause"] for number in range(1, 8)]
    assert causes == [
        "join",
        *["join", "cooperative_follow_up"] * 2,
        "leave_or_timeout",
        "scheduled_rebalance",  # the end of the delay
    ]
    assert [rows[number]["n_moved_through_gap"] for number in (3, 5, 7)] == [4, 2, 2]
    assert all(rows[number]["cooperative"] for number in range(1, 11))
    rounds = by_generation(tables["worker"], "generations")
    assert rounds[6]["delay_ms"] == 5_000 and rounds[7]["delay_ms"] is None
    gaps = tables["worker"].table("ownership_gaps").to_pylist()
    assert {row["basis"] for row in gaps} == {"unowned"}
    waited = [row["gap_lower_seconds"] for row in gaps if row["generation"] == 7]
    assert len(waited) == 2 and all(5 <= seconds < 5.5 for seconds in waited)
    assert not tables["worker"].rows("anomalies") and not tables["worker"].rows("lag")


STRANGE_VERSION = 99


@pytest.mark.parametrize("name", EVERY)
def test_a_version_that_nobody_knows_is_counted_in_every_type_of_every_kind(tmp_path, name):
    captured = kind(name)
    strangers = {}  # type of the key -> a record of it, its value in another version
    for row in captured.records:
        if row["value"] and "topic" not in row:
            strangers[row["key"][:4]] = row | {"value": f"{STRANGE_VERSION:04x}{row['value'][4:]}"}
    ends = {row["partition"]: row["offset"] for row in captured.records}
    for number, row in enumerate(strangers.values(), start=1):
        captured.records.append(row | {"offset": ends[row["partition"]] + number})
    tables = local.run(captured.write_dump(tmp_path / "dump"), tmp_path / "out")
    bad = tables.table("bad_records").to_pylist()
    assert sorted(row["record_type"] for row in bad) == sorted(int(t, 16) for t in strangers)
    assert {row["reason"] for row in bad} == {"bad-version"}
    before = kind(name).write_dump(tmp_path / "before")
    known = local.run(before, tmp_path / "known")
    for table in ("generations", "assignments", "offset_commits"):
        assert tables.rows(table) == known.rows(table)  # and nothing else is made of it
    said = []
    dump = Dump.open(tmp_path / "dump")
    report_unread(History(tables=tables, dump=dump), said.append)
    n, total = len(strangers), dump.n_records()
    assert f"{n} of {total} records do not parse" in said[0]
    batch, told = tables.batches()[0].id, []
    BatchReporter(told.append).after_batch(tables, batch)
    assert told[0].startswith(f"{n} of the batch's records do not parse")


@pytest.mark.parametrize("name", ["streams_classic", "connect", "worker"])
def test_messages_of_members_in_a_version_that_never_was_are_an_anomaly(tmp_path, name):
    captured = kind(name)
    (row,) = [r for r in captured.records if r["key"].startswith("0002")][-2:-1]
    spoiled = spoil(bytes.fromhex(row["value"]), name)
    assert spoiled.hex() != row["value"]
    row["value"] = spoiled.hex()
    tables = local.run(captured.write_dump(tmp_path / "dump"), tmp_path / "out")
    found = tables.table("anomalies").to_pylist()
    assert {one["kind"] for one in found} == {"unreadable_assignment"}
    assert found[0]["member_ids"]


def spoil(value, name):
    """The record of a group, whose members' messages are of a version that never was."""
    key = f"group-{name.replace('_', '-')}".encode()
    record = decode_record(b"\0\2" + len(key).to_bytes(2, "big") + key, value)
    known, strange = OTHER_VERSIONS[name]
    members = [dict(member) for member in record.value["members"]]
    for member in members:
        message = member["assignment"]
        at = 0 if name == "connect" else message.index(known)
        member["assignment"] = message[:at] + strange + message[at + len(known) :]
    return encode_record(replace(record, value={**record.value, "members": members}))[1]


OTHER_VERSIONS = {
    "connect": (b"\0\2", b"\xff\xff"),
    "streams_classic": (b"\0\0\0\x0b\0\0\0\x0b", b"\0\0\0\0\0\0\0\x0b"),
    "worker": (b"\xf4\xd1", b"\xf4\xd2"),
}
"""Of each kind, the version in a member's assignment, and one that was never. In Kafka's own
messages a newer version is read as the newest known one."""


def test_warm_up_tasks_of_a_streams_group_are_read(tmp_path):
    """Kafka 4.3.1 assigns none yet: a target assignment has its standby tasks as warm-up tasks."""
    captured = kind("streams")
    warm = {}
    for row in captured.records:
        record = decode_record(
            bytes.fromhex(row["key"]), row["value"] and bytes.fromhex(row["value"])
        )
        if (
            record.name
            in ("StreamsGroupTargetAssignmentMember", "StreamsGroupCurrentMemberAssignment")
            and record.value
        ):
            value = record.value | {"warmupTasks": record.value["standbyTasks"], "standbyTasks": []}
            row["value"] = encode_record(replace(record, value=value))[1].hex()
            warm[record.key["memberId"]] = value["warmupTasks"]
    assert any(warm.values())
    tables = local.run(captured.write_dump(tmp_path / "dump"), tmp_path / "out")
    before = local.run(kind("streams").write_dump(tmp_path / "old"), tmp_path / "known")
    for epoch in range(1, 8):
        assert assigned(tables, epoch, "warmup") == assigned(before, epoch, "standby")
        assert assigned(tables, epoch, "active") == assigned(before, epoch, "active")
        assert not assigned(tables, epoch, "standby")
    counts = [(row["n_warmup"], row["n_standby"]) for row in tables.table("members").to_pylist()]
    old = [(row["n_standby"], row["n_warmup"]) for row in before.table("members").to_pylist()]
    assert counts == old and max(counts) > (0, 0)


def worker_round(number, members, protocol_type="holdfast", failed=None):
    """A record of a Worker's group: {worker: (owned, assigned, revoked)}, by kind.

    A worker may add what it announces; ``failed`` is what each reports as failed.
    """
    rows = []
    for name, (owned, assigned, revoked, *rest) in sorted(members.items()):
        leaving = rest[0] if rest else Leaving.STAYS
        asked = MemberSubscription(
            topics=("shard",),
            owned=owned,
            generation=number - 1,
            leaving=leaving,
            failed=(failed or {}).get(name, ()),
        )
        given = MemberAssignment(assigned=assigned, revoked=revoked, delay_ms=5_000)
        messages = encode_member_subscription(asked), encode_member_assignment(given)
        rows.append(fleet.member(name, *messages, rebalanceTimeout=1, sessionTimeout=1))
    kind = {"protocolType": protocol_type, "protocol": "holdfast-deferred"}
    return fleet.record(2, 3, {"group": "w"}, fleet.generation_value(number, rows, **kind))


def test_resources_of_our_own_workers_by_kind(tmp_path):
    shards, disks = ("shard", (0, 1, 2)), ("disk", (0,))
    rounds = [
        worker_round(1, {"a": ((), (disks, shards), ())}),
        worker_round(2, {"a": ((disks, shards), (), (("shard", (2,)),)), "b": ((), (), ())}),
        worker_round(
            3,
            {"a": ((disks, ("shard", (0, 1))), (), None), "b": ((), (("shard", (2,)),), None)},
        ),
    ]
    records = [("w", at, made) for at, made in enumerate(rounds)]
    tables = local.run(fleet.write_dump(tmp_path / "dump", records), tmp_path / "out")
    assert by_client(tables, 2, "active") == {"a": {("disk", 0), ("shard", 0), ("shard", 1)}}
    assert by_client(tables, 3, "active") == {
        "a": {("disk", 0), ("shard", 0), ("shard", 1)},
        "b": {("shard", 2)},
    }
    rows = tables.table("generations").to_pylist()
    assert [(row["n_partitions"], row["delay_ms"]) for row in rows] == [
        (4, 5000),
        (3, 5000),
        (4, 5000),
    ]
    revoked = [row["n_revoked"] for row in tables.table("members").to_pylist()]
    assert revoked == [0, 1, 0, 0, 0]
    assert not tables.rows("anomalies") and not tables.rows("lag")


def test_what_has_failed_at_a_worker_is_an_anomaly_and_no_assignment(tmp_path):
    """By Spark's path and by that of a stream alike."""
    shards = ("shard", (0, 1, 2))
    many = FailedPartitions("disk", "KeyError", tuple(range(500)))
    first = {"a": (FailedPartitions("shard", "OSError", (1,)),), "b": (many,)}
    errors = {"a": "OSError", "b": "KeyError"}
    both = {name: (FailedPartitions("shard", error, (1,)),) for name, error in errors.items()}
    rounds = [
        worker_round(1, {"a": ((), (shards,), None), "b": ((), (), None)}, failed=first),
        worker_round(2, {"a": ((shards,), (), None), "b": ((), (), None)}, failed=both),
        worker_round(3, {"a": ((shards,), (), None), "b": ((), (), None)}),
    ]
    records = [("w", 60 * at, made) for at, made in enumerate(rounds)]
    dump = fleet.write_dump(tmp_path / "dump", records)
    cut = 90 * 1_000_000
    for tables in (
        local.run(dump, tmp_path / "out"),
        local.stream(dump, tmp_path / "watched", [cut]),
    ):
        rows = tables.table("anomalies").to_pylist()
        assert {row["kind"] for row in rows} == {"failed_resource"}
        named = [
            (row["generation"], row["partition"], row["member_ids"], row["detail"])
            for row in rows
            if row["topic"] == "shard"
        ]
        assert sorted(named) == [(1, 1, ["a"], "OSError"), (2, 1, ["a", "b"], "KeyError, OSError")]
        assert sum(row["topic"] == "disk" for row in rows) == MOST_FAILED
        for number in (1, 2, 3):
            assert by_client(tables, number, "active") == {"a": {("shard", n) for n in range(3)}}
        assert {row["role"] for row in tables.table("assignments").to_pylist()} == {"active"}
        assert {row["n_partitions"] for row in tables.table("generations").to_pylist()} == {3}
        assert not tables.rows("lag") and not tables.rows("movements")


def with_commit(name, topic, partition, before):
    """A capture in which a task has committed a second before a generation was written."""
    whole = kind(name)
    rows = [{**row, "offset": 2 * row["offset"]} for row in whole.records]
    (at,) = [row for row in rows if "topic" not in row and before(row)]
    (key, value) = fleet.commit(whole.group, topic, partition, 9, at=at["timestamp_ms"] / 1000 - 1)
    commit = {
        **at,
        "offset": at["offset"] - 1,
        "timestamp_ms": at["timestamp_ms"] - 1_000,
        "key": key.hex(),
        "value": value.hex(),
    }
    return replace(whole, records=sorted([*rows, commit], key=lambda row: row["offset"]))


def decoded(row):
    return decode_record(bytes.fromhex(row["key"]), row["value"] and bytes.fromhex(row["value"]))


def is_generation(number):
    def found(row):
        record = decoded(row)
        return record.name == "GroupMetadata" and record.value["generation"] == number

    return found


def gaps_of(tables, generation):
    """{(place, number): seconds at most} of the pauses that ended with a generation."""
    return {
        (row["topic"], number): row["gap_upper_seconds"]
        for row in tables.table("ownership_gaps", flat=False).to_pylist()
        if row["generation"] == generation
        for number in row["partitions"]
    }


def test_a_commit_of_what_a_task_reads_narrows_the_gap_of_that_task(tmp_path, tables):
    """Subtopology 0 reads orders: a second before the round, the old owner still ran 0_2."""
    captured = with_commit("streams_classic", "orders", 2, is_generation(7))
    dump = captured.write_dump(tmp_path / "dump")
    found = local.run(dump, tmp_path / "out")
    before, after = gaps_of(tables["streams_classic"], 7), gaps_of(found, 7)
    assert set(after) == {("0", 0), ("0", 2), ("1", 0), ("1", 2)}
    assert after["0", 2] == pytest.approx(1.0) and before["0", 2] > 17
    assert {task: s for task, s in after.items() if s != before[task]} == {("0", 2): after["0", 2]}
    cut = max(row["timestamp_ms"] for row in captured.records if is_generation(7)(row)) * 1000
    watched = local.stream(dump, tmp_path / "watched", [cut, cut - 500_000])
    assert gaps_of(watched, 7) == after


def test_a_commit_narrows_the_gap_of_a_task_of_a_streams_group(tmp_path, tables):
    """The same by the records of current assignments (KIP-1071), which name the release."""
    rows = tables["streams"].table("ownership_gaps", flat=False).to_pylist()
    since = {row["unowned_since"] for row in rows if row["generation"] == 5}
    (released,) = {int(time.timestamp() * 1000) for time in since}

    def gives_up(row):
        current = decoded(row).name == "StreamsGroupCurrentMemberAssignment"
        return current and row["timestamp_ms"] == released

    captured = with_commit("streams", "orders", 3, gives_up)
    found = local.run(captured.write_dump(tmp_path / "dump"), tmp_path / "out")
    before, after = gaps_of(tables["streams"], 5), gaps_of(found, 5)
    changed = {task for task, seconds in after.items() if seconds != before[task]}
    assert changed == {("0", 3)}
    assert after["0", 3] == pytest.approx(1.466) and before["0", 3] > 20


def test_a_worker_that_goes_for_good_announces_it_and_leaves(tmp_path):
    """Neither other partitions nor an untold way to go; older frames say it too."""
    shards = ("shard", (0, 1))
    for frame in (3, 2, 1):
        rounds = [
            worker_round(1, {"a": ((), (shards,), None), "b": ((), (("shard", (2,)),), None)}),
            worker_round(
                2,
                {
                    "a": ((shards,), (), None),
                    "b": ((("shard", (2,)),), (), (("shard", (2,)),), Leaving.FOR_GOOD, frame),
                },
            ),
            worker_round(3, {"a": ((shards,), (("shard", (2,)),), None)}),
        ]
        records = [("w", 60 * at, made) for at, made in enumerate(rounds)]
        folder = tmp_path / str(frame)
        dump = fleet.write_dump(folder / "dump", records)
        tables = local.run(dump, folder / "out")
        causes = [row["cause"] for row in tables.table("rebalances").to_pylist()]
        assert causes == ["first_seen", "announced_leave", "leave"], frame
        cut = 90 * 1_000_000
        streamed = local.stream(dump, folder / "watched", [cut])
        assert [row["cause"] for row in streamed.table("rebalances").to_pylist()] == causes


def test_a_member_of_a_design_that_is_to_return_announces_it(tmp_path):
    rounds = [
        worker_round(1, {"a": ((), (("shard", (0,)),), None)}, "consumer"),
        worker_round(
            2,
            {"a": ((("shard", (0,)),), (), (("shard", (0,)),), Leaving.RETURNS, 3)},
            "consumer",
        ),
    ]
    records = [("w", 60 * at, made) for at, made in enumerate(rounds)]
    tables = local.run(fleet.write_dump(tmp_path / "dump", records), tmp_path / "out")
    causes = [row["cause"] for row in tables.table("rebalances").to_pylist()]
    assert causes == ["first_seen", "announced_leave"]

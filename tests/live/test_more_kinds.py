"""Classic Streams, Connect, migration and Workers: the tables compared with Kafka's answers.

Members are Kafka's own clients, and holdfast's ``Worker``. Expected values come from Kafka's tools,
from the REST interface of Connect, and from the admin protocol, at the same time.
"""

from __future__ import annotations

import pytest
from kafka import KafkaAdminClient
from tests.live.kinds import (
    Members,
    ask,
    assigned,
    await_spread,
    compare_polled,
    rows_of,
    tables_of,
)
from tests.live.processes import create_topic
from tests.live.test_kinds import last, produce
from tests.live.test_worker import Desk, close_all, shared
from tests.live.waiting import until
from tests.pipeline.kinds import printed

from holdfast.fleet.analysis.findings.examination import examine
from holdfast.fleet.analysis.group.group_history import read_group
from holdfast.fleet.report.drawing.writing import render

pytestmark = pytest.mark.broker


def next_tables(bootstrap, folder, group):
    """Tables of a group as it is now, in a folder of their own."""
    return tables_of(bootstrap, folder / str(len(list(folder.glob("[0-9]*")))), group)


def lags(bootstrap, group):
    """{(topic, partition): (lag, reader)} as ConsumerGroupCommand says, where there is a commit."""
    own = ("--describe", "--group", group, "--offsets")
    return {
        (row["TOPIC"], int(row["PARTITION"])): (int(row["LAG"]), row["CONSUMER-ID"])
        for row in printed(ask("consumer", bootstrap, *own))
        if row["LAG"] != "-"
    }


def our_lags(tables, group):
    """The same by our table."""
    return {
        (row["topic"], row["partition"]): (row["lag"], row["member_id"] or "-")
        for row in rows_of(tables, "lag", group)
        if row["current_offset"] is not None
    }


@pytest.mark.every
def test_a_classic_streams_group(broker, tmp_path):
    bootstrap = broker.bootstrap
    topic = create_topic(bootstrap, 2)
    group = f"streams-classic-{topic}"
    produce(bootstrap, topic, 100)
    given = {"num_standby_replicas": "1", "session_timeout_ms": "6000"}
    given |= {"heartbeat_interval_ms": "500", "acceptable_recovery_lag": "100000"}
    place = {topic: "0", f"{group}-counts-repartition": "1"}

    def compare(said):
        """The last generation, which says what ConsumerGroupCommand said."""
        tables = next_tables(bootstrap, tmp_path, group)
        generation = last(tables, group)
        assert (generation["protocol"], generation["n_members"]) == ("stream", len(said))
        assert assigned(tables, generation) == {
            member: {(place[name], number) for name, number in tps} for member, tps in said.items()
        }
        compare_polled(bootstrap, tmp_path, group, tables)
        return tables, generation

    with Members(bootstrap, tmp_path) as crew:
        for name in ("a", "b"):
            crew.streams(name, group, topic, group_protocol="classic", **given)
        said = await_spread(bootstrap, group, 2, 2, said=lambda: crew.said("a", 500))
        until(
            lambda: [lag for lag, _ in lags(bootstrap, group).values()] == [0] * 4,
            lambda: f"all is read and committed: {lags(bootstrap, group)}",
        )
        tables, generation = compare(said)
        assert our_lags(tables, group) == lags(bootstrap, group)
        active, standby = (assigned(tables, generation, role) for role in ("active", "standby"))
        for member, tasks in standby.items():  # a store's state is kept by the other member
            assert tasks <= {("1", 0), ("1", 1)} and not tasks & active[member]
        assert set().union(*standby.values()) == {("1", 0), ("1", 1)}
        crew.kill("b")
        tables, _ = compare(await_spread(bootstrap, group, 4))
    rows = rows_of(tables, "rebalances", group)
    assert {row["cooperative"] for row in rows if row["n_members"]} == {True}
    assert rows[-1]["n_left"] == 1


@pytest.mark.every
def test_a_connect_group(broker, tmp_path):
    bootstrap = broker.bootstrap
    topic = create_topic(bootstrap, 2)
    group = f"connect-{topic}"
    sink = {"connector.class": "FileStreamSink", "tasks.max": "4", "topics": topic}
    delay = {"scheduled_rebalance_max_delay_ms": "8000"}
    with Members(bootstrap, tmp_path) as crew:

        def running(worker):
            """{worker: {(connector, task)}} as Connect says; -1 is the connector itself."""
            name_of = {url.removeprefix("http://"): name for name, url in crew.urls.items()}
            status = crew.request(worker, "/connectors/sink/status")
            parts = [(-1, status["connector"]), *((t["id"], t) for t in status["tasks"])]
            found = {}
            for number, part in parts:
                found.setdefault(name_of[part["worker_id"]], set()).add(("sink", number))
            return found if all(p["state"] == "RUNNING" for _, p in parts) else {}

        def read():
            """Tables, rows of the generations, and {worker: {(connector, task)}} of one."""
            tables = next_tables(bootstrap, tmp_path, group)
            rows = rows_of(tables, "generations", group)

            def given(generation):
                found = assigned(tables, generation)
                return {member.split("-")[0]: tasks for member, tasks in found.items()}

            return tables, rows, given

        crew.connect("w1", group, **delay)
        file = str(tmp_path / "sink")
        crew.request("w1", "/connectors/sink/config", {**sink, "file": file})
        crew.connect("w2", group, **delay)
        until(
            lambda: sorted(map(len, running("w1").values())) == [2, 3],
            lambda: f"two tasks each: {crew.request('w1', '/connectors/sink/status')}",
        )
        both = running("w1")
        tables, rows, given = read()
        compare_polled(bootstrap, tmp_path, group, tables)
        assert given(rows[-1]) == both
        assert (rows[-1]["protocol_type"], rows[-1]["n_members"]) == ("connect", 2)
        assert rows[-1]["protocol"] in ("compatible", "sessioned")
        revoked = rows_of(tables, "members", group)
        assert sum(row["n_revoked"] or 0 for row in revoked) == 2  # w1 gave two to w2
        crew.kill("w2")
        until(lambda: running("w1").keys() == {"w1"}, "w1 takes over")
        tables, rows, given = read()
        assert given(rows[-1]) == running("w1") == {"w1": both["w1"] | both["w2"]}
        (waiting,) = [row for row in rows if row["delay_ms"]]  # for w2
        assert (waiting["delay_ms"], waiting["n_members"]) == (8_000, 1)
        assert given(waiting) == {"w1": both["w1"]}
    causes = [row["cause"] for row in rows_of(tables, "rebalances", group)]
    assert causes[-2:] == ["leave_or_timeout", "scheduled_rebalance"]  # workers commit nothing


@pytest.mark.every
def test_a_group_that_migrates_to_kip_848_and_back(broker, tmp_path):
    bootstrap = broker.bootstrap
    topic = create_topic(bootstrap, 4)
    group = f"migrates-{topic}"
    produce(bootstrap, topic, 100)

    def compare(kind, said):
        tables = next_tables(bootstrap, tmp_path, group)
        rows = rows_of(tables, "generations", group)
        generation = max(rows, key=lambda row: row["log_offset"])
        assert (generation["group_type"], generation["n_members"]) == (kind, len(said))
        assert assigned(tables, generation) == said
        compare_polled(bootstrap, tmp_path, group, tables)
        rows = rows_of(tables, "rebalances", group)
        return [(r["group_type"], r["cause"], r["n_joined"], r["n_left"]) for r in rows]

    with Members(bootstrap, tmp_path) as crew:
        for name in ("c1", "c2"):
            crew.consumer(name, group, topic, group_protocol="classic")
        before = compare("classic", await_spread(bootstrap, group, 2, 2))
        crew.consumer("n1", group, topic, group_protocol="consumer")
        three = await_spread(bootstrap, group, 1, 1, 2, said=lambda: crew.said("n1"))
        there = compare("consumer", three)
        crew.stop("n1")
        back = compare("classic", await_spread(bootstrap, group, 2, 2))
        left = lags(bootstrap, group)
    assert back[: len(there)] == there and there[: len(before)] == before
    assert ("consumer", "join", 1, 0) in there[len(before) :]
    assert ("classic", "leave", 0, 1) in back[len(there) :]
    assert sum(left for *_, left in back) == 1  # n1 alone has left, and once
    assert {lag for lag, _ in left.values()} == {0}


def admin_view(bootstrap, group):
    """What a broker says of a group: protocol type, state and member ids."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        (found,) = admin.describe_groups([group]).values()
    finally:
        admin.close()
    ids = {member["member_id"] for member in found["members"]}
    return found["protocol_type"], found["protocol_data"], found["group_state"], ids


@pytest.mark.every
def test_a_group_of_our_own_workers(broker, tmp_path):
    bootstrap = broker.bootstrap
    group = f"workers-{tmp_path.name}"
    kinds = {"connector": 3, "task": 5}
    desks = [Desk(broker, group, kinds, client_id=name).start() for name in ("w1", "w2")]
    seen = {}

    def view():
        """What the broker says, and what the workers know and hold."""
        held = sorted(sorted((r.kind, r.number) for r in desk.held) for desk in desks)
        return admin_view(bootstrap, group), {desk.worker.generation for desk in desks}, held

    def settled():
        """Whether tables were read while no round was under way; a leave is announced in one."""
        if not shared(desks, kinds):
            return False
        seen["view"] = before = view()
        (_, _, state, ids), generations, _ = before
        if (state, len(ids), len(generations)) != ("Stable", len(desks), 1):
            return False
        seen["tables"] = next_tables(bootstrap, tmp_path, group)
        return view() == before

    def compare():
        until(
            settled,
            lambda: f"all shared, and no round: {seen.get('view')}, {[d.held for d in desks]}",
        )
        (protocol_type, protocol, state, ids), generations, held = seen["view"]
        tables = seen["tables"]
        generation = last(tables, group)
        assert (generation["protocol_type"], generation["protocol"]) == (protocol_type, protocol)
        assert (generation["state"], generation["n_members"]) == (state, len(ids))
        found = assigned(tables, generation)
        assert found.keys() == ids
        assert sorted(map(sorted, found.values())) == held
        assert {generation["generation"]} == generations
        compare_polled(bootstrap, tmp_path, group, tables)
        return tables

    try:
        compare()
        desks.append(Desk(broker, group, kinds, client_id="w3").start())
        compare()
        close_all([desks.pop(0)])
        tables = compare()
    finally:
        close_all(desks)
    rows = rows_of(tables, "rebalances", group)
    assert {row["cooperative"] for row in rows if row["n_members"]} == {True}
    assert sum(row["n_left"] for row in rows) == 1
    history = read_group(tables, group)
    assert (history.kind.name, history.kind.takes_assignors) == ("worker", False)
    assert {finding.code for finding in examine(history).findings} <= {
        "HF101"
    }  # many rounds at once
    rows = {history.partition_name(row) for row in range(len(history.timeline.row_partition))}
    assert rows == {f"{kind}-{n}" for kind, count in kinds.items() for n in range(count)}
    assert group in render(tables, "a title")

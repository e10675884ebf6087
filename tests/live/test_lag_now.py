"""``holdfast lag`` of live groups of every kind, compared with the offsets topic and Kafka's tools.

One cluster, one group of each kind that Kafka's clients and holdfast's can make; all start at once.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.cli.running import run
from tests.live.crew import Topic, commit_alone, fresh
from tests.live.kinds import Members, ask, tables_of
from tests.live.processes import create_topic
from tests.live.test_kinds import produce
from tests.live.test_worker import Desk, close_all
from tests.live.waiting import until
from tests.pipeline.kinds import printed
from tests.suites import further

from holdfast.cli import live_groups
from holdfast.fleet.analysis.findings.examination import examine
from holdfast.fleet.analysis.group.group_history import read_group

pytestmark = pytest.mark.broker

OF_THE_LOG = {
    *("commit_timestamp", "position_timestamp"),
    *("lag_seconds", "lag_seconds_basis", "has_unread", "catch_up_seconds"),
}
"""What only one of the two knows: the log of commits, or the leaders of partitions."""


def lag_now(bootstrap, *groups):
    """Rows that the command prints, by group, topic and partition."""
    chosen = [word for group in groups for word in ("--group", group)]
    done = run("lag", "-b", bootstrap, *chosen, "--format", "json")
    assert (done.code, done.err) == (0, "")
    rows = done.rows()
    assert [row["lag"] or -1 for row in rows] == sorted(
        (row["lag"] or -1 for row in rows), reverse=True
    )
    return {(row["group"], row["topic"], row["partition"]): row for row in rows}


def known(rows):
    """The same without what only the log of commits knows."""
    return {
        key: {name: value for name, value in row.items() if name not in OF_THE_LOG}
        for key, row in rows.items()
    }


def tool_says(tool, bootstrap, group):
    """{(topic, partition): (offset, lag)} as one of Kafka's tools prints it."""
    more = ("--verbose",) if tool == "streams" else ()
    said = printed(ask(tool, bootstrap, "--describe", "--group", group, "--offsets", *more))
    return {
        (row["TOPIC"], int(row["PARTITION"])): (
            row.get("CURRENT-OFFSET") or row.get("START-OFFSET"),
            (row.get("LAG") or row["OFFSET-LAG"]).strip(),
        )
        for row in said
    }


def ours(rows, group):
    """The same by our rows; the tools print a dash for what is not known."""
    dashed = {None: "-"}
    return {
        (topic, partition): tuple(
            dashed.get(row[name], str(row[name])) for name in ("current_offset", "lag")
        )
        for (own, topic, partition), row in rows.items()
        if own == group
    }


@pytest.mark.every
def test_every_kind_has_the_rows_of_the_pipeline_and_of_kafkas_tools(broker, tmp_path):
    bootstrap = broker.bootstrap
    topic = create_topic(bootstrap, 2)
    produce(bootstrap, topic, 100)
    names = ("classic", "consumer", "share", "streams", "streams-classic", "worker", "left")
    groups = {name: f"{name}-{topic}" for name in names}
    settings = ["--entity-type", "groups", "--entity-name", groups["share"], "--alter"]
    ask("configs", bootstrap, *settings, "--add-config", "share.auto.offset.reset=earliest")
    commit_alone(bootstrap, groups["left"], {(topic, 0): 3})
    desk = Desk(broker, groups["worker"], {"job": 2}).start()
    with Members(bootstrap, tmp_path) as crew:
        for kind in ("classic", "consumer"):
            crew.consumer(kind, groups[kind], topic, group_protocol=kind)
        crew.share("s1", groups["share"], topic)
        for name, kind in (("streams", "streams"), ("streams-classic", "classic")):
            crew.streams(name, groups[name], topic, group_protocol=kind)
        crew.connect("connect", f"connect-{topic}")
        sink = {"connector.class": "FileStreamSink", "topics": topic, "file": str(tmp_path / "f")}
        sink["consumer.override.auto.offset.reset"] = "earliest"
        crew.request("connect", f"/connectors/sink-{topic}/config", sink)
        groups |= {"sink": f"connect-sink-{topic}", "workers": f"connect-{topic}"}
        readers = set(groups) - {"worker", "workers", "left"}
        seen = {}

        def settled():
            """Everything is read, and everybody has said so."""
            seen["rows"] = rows = lag_now(bootstrap, f"*{topic}*")
            for name in readers:
                own = [r for (group, *_), r in rows.items() if group == groups[name]]
                reads = [r for r in own if r["topic"] == topic]
                if len(reads) != 2 or not all(r["member_id"] for r in reads):
                    return False
                # A partition without records may have no commit, and then no lag.
                if any(r["lag"] or (r["lag"] is None and r["log_end_offset"]) for r in own):
                    return False
            return True

        until(settled, lambda: f"all kinds read: {known(seen['rows'])}")

        def same():
            """Whether tables were read while nothing was going on."""
            before = lag_now(bootstrap, *groups.values())
            folder = tmp_path / f"tables-{len(list(tmp_path.glob('tables-*')))}"
            folder.mkdir()
            table = tables_of(bootstrap, folder, *groups.values()).table("lag").to_pylist()
            seen["ours"] = known(before)
            seen["table"] = known(
                {
                    (row["group"], row["topic"], row["partition"]): row
                    for row in table
                    if row["group"] in groups.values()
                }
            )
            return seen["ours"] == seen["table"]

        until(same, lambda: f"the same rows: {differing(seen['ours'], seen['table'])}", 60)
        for name, group in groups.items():
            if name in ("worker", "workers", "left"):
                continue  # they read no topic, or have no member
            tool = {"share": "share", "streams": "streams"}.get(name, "consumer")
            said = tool_says(tool, bootstrap, group)
            assert said == ours(lag_now(bootstrap, group), group), name
    close_all([desk])
    rows = lag_now(bootstrap, groups["left"])
    (row,) = rows.values()
    assert row["lag"] == row["log_end_offset"] - 3 > 0
    assert row["lag_seconds_basis"] == "record"
    assert not {group for group, *_ in seen["ours"]} & {groups["worker"], groups["workers"]}


@pytest.mark.parametrize("protocol", further(["classic", "consumer"]))
def test_commits_of_a_topic_that_the_members_left_are_marked(broker, tmp_path, protocol):
    bootstrap = broker.bootstrap
    left, kept = (create_topic(bootstrap, 1) for _ in range(2))
    group = f"leaves-{left}"
    own = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
    consumer = Consumer({**own, "enable.auto.commit": False})

    def asked(*topics):
        consumer.subscribe([*topics])
        until(
            lambda: consumer.poll(0.1) or {one.topic for one in consumer.assignment()} == {*topics},
            "the assignment",
        )

    try:
        asked(left, kept)
        consumer.commit(offsets=[TopicPartition(t, 0, 0) for t in (left, kept)], asynchronous=False)
        assert {row["not_subscribed"] for row in lag_now(bootstrap, group).values()} == {False}
        asked(kept)
        produce(bootstrap, left, 50)
        expected = {(group, left, 0): True, (group, kept, 0): False}
        until(
            lambda: (
                {key: row["not_subscribed"] for key, row in lag_now(bootstrap, group).items()}
                == expected
            ),
            lambda: f"marks: {lag_now(bootstrap, group)}",
        )
        assert lag_now(bootstrap, group)[group, left, 0]["lag"] == 50
        folders = iter(range(1_000))

        def of_the_topic():
            """The same from the offsets topic, whose next epoch comes a moment later."""
            consumer.poll(0.1)
            folder = tmp_path / str(next(folders))
            folder.mkdir()
            seen["tables"] = tables_of(bootstrap, folder, group)
            rows = seen["tables"].table("lag").to_pylist()
            seen["marks"] = {
                (group, row["topic"], 0): row["not_subscribed"]
                for row in rows
                if row["group"] == group  # the offsets of share groups are in no record
            }
            return seen["marks"] == expected

        seen = {}
        until(of_the_topic, lambda: f"the same marks: {seen['marks']}")
        found = seen["tables"]
        codes = [f.code for f in examine(read_group(found, group)).findings]
        assert codes == ["HF129"]
        said = tool_says("consumer", bootstrap, group)
        assert said[left, 0] == ("0", "50"), "Kafka's tool counts it"
    finally:
        consumer.close()


def test_a_group_that_nobody_has_is_an_error_with_those_that_are_there(broker):
    bootstrap, topic = broker.bootstrap, create_topic(broker.bootstrap, 1)
    group = f"there-{topic}"
    commit_alone(bootstrap, group, {(topic, 0): 0})
    done = run("lag", "-b", bootstrap, "--group", f"thare-{topic}")
    assert (done.code, done.out) == (3, "")
    assert done.err == f"error: no group 'thare-{topic}' here; did you mean {group}?\n"
    done = run("lag", "-b", bootstrap, "--group", "!", "--group", group, "--columns", "all")
    assert (done.code, done.err) == (0, "no group '!'\n")
    assert "; known: " in run("lag", "-b", bootstrap, "--group", "!").err


def differing(a, b):
    """Rows of two answers that are not the same."""
    return [
        (key, a.get(key), b.get(key)) for key in a.keys() | b.keys() if a.get(key) != b.get(key)
    ]


def commit(bootstrap, group, topic, *offsets, metadata=""):
    """Commit an offset of each partition."""
    commit_alone(bootstrap, group, {(topic, p): at for p, at in enumerate(offsets)}, metadata)


@pytest.fixture
def during(monkeypatch):
    """Take what happens between the two readings, in place of the pause."""

    def set_to(work):
        slept = []
        sleep = lambda seconds: (slept.append(seconds), work())  # noqa: E731
        monkeypatch.setattr(live_groups, "time", SimpleNamespace(sleep=sleep))
        return slept

    return set_to


def test_what_was_read_meanwhile_tells_the_time_until_caught_up(broker, during):
    group, topic = fresh("over"), Topic(broker.bootstrap, 4, 100).name
    commit(broker.bootstrap, group, topic, 20, 60, 100, 10)
    slept = during(
        lambda: commit(broker.bootstrap, group, topic, 60, 60, 100, 5, metadata="by hand")
    )
    words = ("lag", "-b", broker.bootstrap, "--group", group, "--over", "1m")
    done = run(*words, "--format", "json").passed()
    assert slept == [60.0]
    rows = sorted(done.rows(), key=lambda row: row["partition"])
    assert [row["lag"] for row in rows] == [40, 40, 0, 95]
    # confluent-kafka sends the end of its C string, too
    assert {row["metadata"].rstrip("\0") for row in rows} == {"by hand"}
    fell, stood, done_with, rose = rows
    assert fell["lag_per_second"] < 0
    assert fell["catch_up_seconds"] == pytest.approx(40 / -fell["lag_per_second"])
    assert (stood["lag_per_second"], stood["catch_up_seconds"]) == (0, None)
    assert (done_with["lag_per_second"], done_with["catch_up_seconds"]) == (0, 0)
    assert rose["lag_per_second"] > 0 and rose["catch_up_seconds"] is None


def test_a_group_has_caught_up_when_its_last_partition_has(broker, during):
    group, topic = fresh("over"), Topic(broker.bootstrap, 2, 100).name
    commit(broker.bootstrap, group, topic, 0, 0)
    during(lambda: commit(broker.bootstrap, group, topic, 50, 80))
    words = ("lag", "-b", broker.bootstrap, "--group", group, "--over", "1m", "--format", "json")
    (total,) = run(*words, "--total").rows()
    assert total["lag"] == 70 and total["catch_up_seconds"] > 0
    during(lambda: commit(broker.bootstrap, group, topic, 60, 80))
    (total,) = run(*words, "--total").rows()
    assert total["catch_up_seconds"] is None  # one of them stands


def test_in_a_file_the_time_is_among_the_ten_columns(broker, during):
    group, topic = fresh("over"), Topic(broker.bootstrap, 1, 100).name
    commit(broker.bootstrap, group, topic, 20)
    during(lambda: commit(broker.bootstrap, group, topic, 60))
    done = run("lag", "-b", broker.bootstrap, "--group", group, "--over", "1m")
    assert done.code == 0 and "catch_up_seconds" in done.out

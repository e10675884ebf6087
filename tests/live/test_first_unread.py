"""Unread records and their age, on a real broker: markers, clocks that differ, gaps.

Each topic has one partition and one group, whose commit the test makes. The truth is what a plain
consumer gets from the commit on, and the lag is that of Kafka's own tool.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.cli.running import run
from tests.live.crew import Topic, commit_alone, fresh, transaction
from tests.live.kinds import ask, tables_of
from tests.live.waiting import until
from tests.pipeline.kinds import printed

from holdfast.cluster.cluster import LiveCluster
from holdfast.cluster.first_unread import Wanted
from holdfast.cluster.lookup import Lookup
from holdfast.fleet.analysis.findings.examination import examine
from holdfast.fleet.analysis.findings.finding import Finding, Limits, Severity
from holdfast.fleet.analysis.group.group_history import read_group
from holdfast.fleet.pipeline.history.lag import with_record_ages
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import read_tables

pytestmark = pytest.mark.broker

DAY = 86_400
ANY_CLOCK = {"message.timestamp.after.max.ms": str(10 * DAY * 1000)}


class Log:
    """A topic of one partition, and a group that has committed an offset of it."""

    def __init__(self, bootstrap: str, what: str, **config: str):
        self.bootstrap = bootstrap
        self.topic = fresh(what)
        self.group = f"g-{self.topic}"
        self.client = {"bootstrap.servers": bootstrap, "log_level": 0}
        settings = {key.replace("_", "."): value for key, value in config.items()}
        Topic(bootstrap, 1, name=self.topic, config={**ANY_CLOCK, **settings})

    def write(self, *ages_s: float, value: bytes = b"x", key: bytes | None = None) -> None:
        """Write records of these ages, each in a batch of its own."""
        producer = Producer(self.client)
        now = time.time()
        for age in ages_s:
            producer.produce(self.topic, value, key, timestamp=round((now - age) * 1000))
            assert producer.flush(60) == 0

    def transaction(self, n: int, *, end: str = "commit") -> Producer:
        """Write records in a transaction, and commit, abort or leave it."""
        producer = transaction(self.bootstrap)
        for _ in range(n):
            producer.produce(self.topic, b"x")
        assert producer.flush(60) == 0
        if end == "commit":
            producer.commit_transaction(60)
        elif end == "abort":
            producer.abort_transaction(60)
        return producer

    def commit(self, offset: int) -> Log:
        commit_alone(self.bootstrap, self.group, {(self.topic, 0): offset})
        self.committed = offset
        return self

    def read_from(self, offset: int, seconds: float = 20, isolation: str = "read_committed"):
        """The first record that a consumer gets from an offset on; None if it gets none."""
        own = {"group.id": fresh("reader"), "isolation.level": isolation}
        consumer = Consumer({**self.client, **own, "enable.partition.eof": True})
        try:
            consumer.assign([TopicPartition(self.topic, 0, offset)])
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                message = consumer.poll(1)
                if message is not None:
                    return None if message.error() else message
        finally:
            consumer.close()
        raise AssertionError(f"nothing of {self.topic} and no end of it")

    def row(self) -> dict[str, object]:
        """What the command prints of the group."""
        (row,) = rows([self])
        return row


def rows(logs: Sequence[Log]) -> list[dict[str, object]]:
    words = [word for log in logs for word in ("--group", log.group)]
    done = run("lag", "-b", logs[0].bootstrap, *words, "--format", "json").passed()
    found = {row["group"]: row for row in done.rows()}
    return [found[log.group] for log in logs]


def as_kafka_says(log: Log) -> None:
    """The lag is that of Kafka's tool."""
    (said,) = printed(ask("consumer", log.bootstrap, "--describe", "--group", log.group))
    row = log.row()
    assert (int(said["CURRENT-OFFSET"]), int(said["LAG"])) == (row["current_offset"], row["lag"])


def check_age(log: Log, row: dict[str, object]) -> None:
    """The age is that of the record that a consumer gets next."""
    record = log.read_from(log.committed)
    age = time.time() - record.timestamp()[1] / 1000
    assert row["lag_seconds_basis"] == "record", row
    assert row["has_unread"] is True
    assert row["lag_seconds"] > 0
    assert -1 < age - row["lag_seconds"] < 120, "the test asked a moment later"


@pytest.mark.every
def test_control_records_are_lag_as_kafka_counts_it_and_no_work(broker):
    one, three = (Log(broker.bootstrap, what) for what in ("one", "three"))
    one.transaction(3)
    one.commit(3)
    for producer in [three.transaction(2, end="open") for _ in range(3)]:
        producer.commit_transaction(60)
    three.commit(6)
    for log, lag in ((one, 1), (three, 3)):
        row = log.row()
        assert log.read_from(log.committed) is None
        assert (row["lag"], row["lag_seconds"], row["has_unread"]) == (lag, 0.0, False)
        as_kafka_says(log)
    three.write(7, 3)
    row = three.row()
    assert row["lag"] == 5
    check_age(three, row)


def test_a_member_that_has_read_a_transaction_is_not_stuck(broker, tmp_path, monkeypatch):
    """As the doctor sees it that asks the cluster; a dump alone cannot tell, and says so."""
    log = Log(broker.bootstrap, "held")
    log.transaction(3)
    own = {"group.id": log.group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**log.client, **own})
    consumer.subscribe([log.topic])
    folders = iter(range(1_000))
    for limit in ("stuck_s", "hesitant_s"):
        monkeypatch.setattr(Limits, limit, 0.5)

    def found(*, asks: bool) -> dict[str, Finding]:
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        made = tables_of(broker.bootstrap, folder, log.group)
        held = {name: made.table(name, groups=[log.group], flat=False) for name in TABLES}
        now_us = time.time_ns() // 1_000
        if asks:
            cluster = LiveCluster(bootstrap=broker.bootstrap)
            held["lag"] = with_record_ages(held["lag"], cluster.first_unread, now_us)
        history = read_group(read_tables(held), log.group, now_us // 1_000)
        return {one.code: one for one in examine(history).findings}

    try:
        read = []
        until(lambda: read.append(consumer.poll(1)) or len([*filter(None, read)]) == 3, "3 records")
        consumer.commit(message=read[-1], asynchronous=False)
        time.sleep(1)
        assert log.row()["lag"] == 1
        assert "HF105" not in found(asks=True)
        told = found(asks=False)["HF105"]
        assert told.severity is Severity.WARN
        assert told.text.endswith("; the unread record may be a transaction marker")
        log.write(30)  # a record that nobody reads
        told = found(asks=True)["HF105"]
        assert told.severity is Severity.ERROR and "marker" not in told.text
    finally:
        consumer.close()


def test_what_only_some_consumers_get_is_not_known_to_be_unread(broker):
    aborted, opened = (Log(broker.bootstrap, what) for what in ("aborted", "opened"))
    aborted.write(20)
    aborted.transaction(2, end="abort")
    aborted.commit(1)
    opened.write(20)
    held = opened.transaction(2, end="open")
    opened.commit(1)
    for log, lag in ((aborted, 3), (opened, 2)):
        assert log.read_from(1) is None
        assert log.read_from(1, isolation="read_uncommitted") is not None
        row = log.row()
        assert (row["lag"], row["has_unread"]) == (lag, None)
        assert row["lag_seconds"] > 0
        as_kafka_says(log)
    held.commit_transaction(60)
    check_age(opened, opened.row())


def clocks(bootstrap: str) -> Iterator[Log]:
    """Logs in which times do not rise with the offset."""
    for ahead in (5, 3_000, DAY):
        log = Log(bootstrap, f"ahead-{ahead}")
        log.write(-ahead, 1_800, 1_790, 1_780)
        yield log.commit(1)
    log = Log(bootstrap, "disorder")
    log.write(10, 3_000, 20, 2_000)
    yield log.commit(1)
    log = Log(bootstrap, "old-event")
    log.write(90, DAY, 80)
    yield log.commit(1)
    log = Log(bootstrap, "append", message_timestamp_type="LogAppendTime")
    log.write(DAY, DAY)
    yield log.commit(1)
    log = Log(bootstrap, "large")
    log.write(500, 400, 300, value=b"-" * 5_000)
    yield log.commit(1)


def test_the_age_is_that_of_the_next_record_whatever_clocks_say(broker):
    logs = [*clocks(broker.bootstrap)]
    for log, row in zip(logs, rows(logs), strict=True):
        check_age(log, row)
    by_name = {log.topic.rsplit("-", 1)[0]: row for log, row in zip(logs, rows(logs), strict=True)}
    assert 1_800 <= by_name[f"ahead-{DAY}"]["lag_seconds"] < 2_000
    assert by_name["old-event"]["lag_seconds"] >= DAY
    assert by_name["append"]["lag_seconds"] < 120


def test_without_the_right_to_read_the_age_is_a_true_bound_or_null(broker, monkeypatch):
    logs = [*clocks(broker.bootstrap)]
    cluster = LiveCluster(bootstrap=broker.bootstrap)
    monkeypatch.setattr(Lookup, "first_batches", lambda self, *_: self.connections.future(nothing))

    async def nothing():
        return {}

    for log in logs:
        (found,) = cluster.first_unread([Wanted(log.topic, 0, 1, 4, round(time.time() * 1000))])
        said = found.of_lag(time.time_ns() // 1000)
        record = log.read_from(1)
        age = time.time() - record.timestamp()[1] / 1000
        assert found.has_unread is None
        assert said.get("lag_seconds") is None or 0 < said["lag_seconds"] <= age


def test_a_record_that_is_dated_later_than_now_has_no_age_and_nothing_unread_has_age_0(broker):
    future, empty, done = (Log(broker.bootstrap, what) for what in ("future", "empty", "done"))
    future.write(30, -3_000)
    future.commit(1)
    empty.commit(0)
    done.write(500)
    done.commit(1)
    assert [(row["lag"], row["lag_seconds"], row["has_unread"]) for row in rows([future])] == [
        (1, None, True)
    ]
    for row in rows([empty, done]):
        assert (row["lag"], row["lag_seconds"], row["has_unread"]) == (0, 0.0, False)
    words = ("--group", future.group, "--total", "--format", "json")
    (total,) = run("lag", "-b", broker.bootstrap, *words).rows()
    assert (total["lag"], total["lag_seconds"]) == (1, None)


def test_behind_a_gap_that_compaction_left_the_record_that_is_there_counts(broker):
    log = Log(
        broker.bootstrap,
        "gap",
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="0",
    )
    log.write(DAY, key=b"a")
    log.write(5_000, 4_000, 3_000, key=b"b")  # the last one of them stays
    until(lambda: _rolled(log).offset() == 3, lambda: f"a gap: {_rolled(log).offset()}", 90)
    log.commit(1)
    row = log.row()
    check_age(log, row)
    assert 3_000 <= row["lag_seconds"] < 3_300


def _rolled(log: Log):
    """The next record behind the first one; a new one has the broker roll a segment."""
    log.write(1, key=b"c")
    time.sleep(0.3)
    return log.read_from(1)

"""The pipeline on a real broker: what it reads, and that it leaves no trace."""

from __future__ import annotations

import json
import re
import sys
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cli.running import run as cli
from tests.live.run_broker import started
from tests.live.small_group import small_group
from tests.pipeline.test_deployment import run as submitted

from holdfast.cluster.cluster import LiveCluster
from holdfast.cluster.first_unread import FirstUnread, RecordTime, Wanted
from holdfast.cluster.lookup import Lookup
from holdfast.core.wire.one.topic_ids import offsets_partition, read_topic_id
from holdfast.errors import SourceError
from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.dump import write_dump
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC, KafkaFeed
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import Tables
from holdfast.local.jars import connector_jars

pytestmark = pytest.mark.broker
READERS = ["python", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.fixture(scope="module")
def lived(broker):
    """(cluster, topic, group): one member consumed three records of two partitions and left."""
    group = f"../g 😀 {uuid.uuid4().hex}"
    with small_group(broker.bootstrap, group) as (topic, _):
        yield LiveCluster(bootstrap=broker.bootstrap), topic, group


@pytest.fixture(params=READERS)
def feed(request, lived):
    """The cluster, to be read by this process, or by Spark however few records there are."""
    if request.param == "python":
        return KafkaFeed(cluster=lived[0])
    spark = request.getfixturevalue("spark")
    return KafkaFeed(cluster=lived[0], session=lambda: spark, most_here=0)


def held(cluster):
    return sum(one.end for one in cluster.partition_ends(OFFSETS_TOPIC).values())


def test_history_of_a_live_cluster(feed, lived, tmp_path):
    cluster, topic, group = lived
    before = held(cluster)
    out = run(feed.session, feed, tmp_path / "out", selection=Selection(groups=[group]))
    assert held(cluster) == before, "looking at the topic wrote into it"
    generations = out.table("generations").to_pylist()
    assert [g["state"] for g in generations][-2:] == ["Stable", "Empty"]
    assert generations[-2]["n_partitions"] == 2
    commits = out.table("offset_commits").to_pylist()
    assert {(c["topic"], c["partition"], c["offset"]) for c in commits} == {
        (topic, 0, 2),
        (topic, 1, 1),
    }
    lost = [m for m in out.table("movements").to_pylist() if m["kind"] == "lost"]
    assert len(lost) == 2
    assert out.table("bad_records").num_rows == 0


def test_a_dump_of_a_live_cluster_holds_topics_and_ends(feed, lived, tmp_path):
    _, topic, _ = lived
    dump = write_dump(feed, tmp_path / "dump")
    assert Dump.open(tmp_path / "dump").cluster_id == dump.cluster_id != ""
    (described,) = [t for t in dump.topics().to_pylist() if t["topic"] == topic]
    assert described["partitions"] == 2 and read_topic_id(described["topic_id"]).int
    ends = {
        o["partition"]: o["end_offset"] for o in dump.offsets().to_pylist() if o["topic"] == topic
    }
    assert ends == {0: 2, 1: 1}
    assert dump.n_records() > 0


def test_a_command_reports_the_engine_that_reads_a_cluster(lived, tmp_path, monkeypatch):
    cluster, _, group = lived
    monkeypatch.setattr("holdfast.fleet.pipeline.session.open_session", None)
    for command in (
        ("history",),
        ("doctor",),
        ("report", "-o", tmp_path / "r.html"),
        ("dump", "-o", tmp_path / "one"),
        ("watch", "-o", tmp_path / "kept"),
    ):
        done = cli(*command, "-b", cluster.bootstrap, "--group", group)
        assert done.code == 0, done.err
        assert len(re.findall(r"reading .* up to [\d,]+ records, by this process", done.err)) == 1


@pytest.mark.every
def test_named_groups_are_read_from_their_own_partitions(feed, lived, tmp_path):
    cluster, _, group = lived
    whole = write_dump(feed, tmp_path / "all")
    one = write_dump(feed, tmp_path / "one", groups=[group])
    assert Dump.open(tmp_path / "one").groups == (group,)
    assert one.group_names() == {group} <= whole.group_names()
    assert write_dump(feed, tmp_path / "no", groups=["nobody-*"]).n_records() == 0
    (partition,) = set(pq.read_table(one.record_files()[0])["partition"].to_pylist())
    ends = cluster.partition_ends(OFFSETS_TOPIC)
    assert partition == offsets_partition(group, len(ends))
    chosen = Selection(groups=[group])
    assert list(cluster.partition_ends(OFFSETS_TOPIC, chosen.log_partitions)) == [partition]
    pattern = write_dump(feed, tmp_path / "some", groups=[f"*{group[-32:]}"])
    rows = [
        pa.concat_tables(map(pq.read_table, d.record_files())).sort_by("offset")
        for d in (one, pattern)
    ]
    assert rows[0].equals(rows[1])


@pytest.mark.every
@pytest.mark.spark
def test_what_is_read_here_is_what_tasks_read(spark, lived, tmp_path, monkeypatch):
    cluster, _, group = lived
    chosen = Selection(groups=[group])
    feed = KafkaFeed(cluster=cluster, session=lambda: spark, most_here=0)
    here = run(None, KafkaFeed(cluster=cluster), tmp_path / "here", selection=chosen)
    monkeypatch.setattr("holdfast.fleet.pipeline.steps.HERE_ROWS", -1)
    there = run(feed.session, feed, tmp_path / "there", selection=chosen)
    assert here.table("generations").num_rows > 0
    for name in TABLES:
        if name not in ("lag", "lag_history"):  # their times are those of the two moments
            assert here.table(name).equals(there.table(name)), name


@pytest.mark.spark
def test_reading_nothing_is_an_error_on_a_live_cluster_too(spark, lived, tmp_path):
    cluster, _, _ = lived
    key = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(key, "false")
    try:
        with pytest.raises(SourceError, match="Spark would read nothing from __consumer_offsets"):
            write_dump(
                KafkaFeed(cluster=cluster, session=lambda: spark, most_here=0), tmp_path / "dump"
            )
    finally:
        spark.conf.set(key, "true")
    assert not (tmp_path / "dump" / "dump.json").exists()


def test_a_stream_of_a_live_cluster_ends_and_resumes(feed, lived, tmp_path):
    from holdfast.fleet.pipeline.batches.watch import watch

    _, _, group = lived
    selection = Selection(groups=[group])
    seen = []
    for _ in range(2):
        tables = watch(
            feed,
            tmp_path / "out",
            selection=selection,
            after_batch=lambda _, batch: seen.append(batch),
        )
    once = run(None, KafkaFeed(cluster=feed.cluster), tmp_path / "once", selection=selection)
    assert seen and seen == sorted(set(seen))
    for name in ("generations", "movements", "rebalances", "ownership_gaps", "offset_commits"):
        assert tables.table(name).to_pylist() == once.table(name).to_pylist()


def test_the_time_of_a_record_is_its_own_and_by_time_alone_nearly_so(lived, monkeypatch):
    cluster, _, _ = lived
    topic, producer = uuid.uuid4().hex, Producer({"bootstrap.servers": cluster.bootstrap})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    began = time.time_ns() // 1_000_000 - 3_600_000
    for n in range(1_000):
        producer.produce(topic, b"-", timestamp=began + 3_000 * n, partition=0)
        if not n % 50:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0
    asked = [Wanted(topic, 0, offset, 1_000, began + 3_550_000) for offset in (0, 1, 500, 999)]
    truth = [began + 3_000 * one.offset for one in asked]
    found = cluster.first_unread(asked)
    assert found == [FirstUnread(RecordTime(at, True), True) for at in truth]
    assert cluster.first_unread([]) == []

    async def nothing():
        return {}

    monkeypatch.setattr(Lookup, "first_batches", lambda self, *_: self.connections.future(nothing))
    for at, one in zip(truth, cluster.first_unread(asked), strict=True):
        assert one.has_unread is None
        assert at <= one.time.ms <= at + 40_000  # a hundredth of its age


class SeenError(Exception):
    """Raised by a test to end a stream."""


def test_a_stream_reads_log_ends_though_nobody_commits(lived, tmp_path):
    from holdfast.fleet.pipeline.batches.watch import watch

    cluster, topic, group = lived
    lags = []

    def lag_of(tables):
        return sum(row["lag"] for row in tables.table("lag", groups=[group]).to_pylist())

    def produce(tables, _):
        lags.append(lag_of(tables))
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for n in range(7):
            producer.produce(topic, b"-", partition=n % 2)
        assert producer.flush(30) == 0

    def compare(tables, error):
        assert error is None
        lags.append(lag_of(tables))
        rows = tables.table("lag", groups=[group]).to_pylist()
        assert {row["lag_seconds_basis"] for row in rows if row["lag"]} <= {"record"}
        if lags[-1] >= lags[0] + 7 or len(lags) > 60:
            raise SeenError

    with pytest.raises(SeenError):
        watch(
            KafkaFeed(cluster=cluster),
            tmp_path / "out",
            selection=Selection(groups=[group]),
            every_seconds=1,
            after_batch=produce,
            after_look=compare,
        )
    assert lags[-1] >= lags[0] + 7


@pytest.fixture
def alone(certificates):
    """A cluster in which nobody else writes while the test runs; one group has been there."""
    with started(certificates) as broker, small_group(broker.bootstrap, "one"):
        yield LiveCluster(bootstrap=broker.bootstrap)


@pytest.mark.every
@pytest.mark.spark
def test_the_watch_job_under_spark_submit(alone, tmp_path):
    """The connector and its conf by the command line, as on a cluster; tables as those of a run."""
    key = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching=true"
    jars = ",".join(str(jar) for jar in connector_jars(pyspark.__version__))
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    job = Path(__file__).parents[2] / "jobs" / "watch.py"
    options = ["--master", "local[1]", "--conf", key, "--conf", "spark.ui.enabled=false"]
    out = tmp_path / "out"
    command = [str(submit), *options, "--jars", jars, str(job), alone.bootstrap, str(out)]
    said = [submitted(command, PYSPARK_DRIVER_PYTHON=sys.executable)[-1] for _ in range(2)]
    assert re.match(r"[1-9]\d* batches, ", said[0])
    assert said[0] == said[1]  # the second run finds nothing new, and adds nothing
    once = run(None, KafkaFeed(cluster=alone), tmp_path / "once")
    for name in ("generations", "movements", "rebalances", "ownership_gaps", "offset_commits"):
        assert Tables(out).table(name).equals(once.table(name))


@pytest.mark.every
def test_replay_of_a_live_cluster(lived):
    cluster, _, group = lived
    done = cli("replay", "-b", cluster.bootstrap, "--group", group, "--format", "json", "-q")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    assert {row["group"] for row in rows} == {group}
    assert next(row["actual"] for row in rows) and len(rows) >= 4


@pytest.mark.slow
@pytest.mark.spark
def test_watch_over_spark_connect(lived, tmp_path):
    """A Connect server with the connector follows the topic; the client says what it found."""
    cluster, topic, group = lived
    out = tmp_path / "out"
    holdfast = [sys.executable, "-m", "holdfast"]
    where = ["-b", cluster.bootstrap, "--group", group, "--engine", "spark", "-q"]
    remote = {"SPARK_REMOTE": "local[1]", "SPARK_TESTING": "1"}
    metrics = tmp_path / "h.prom"
    submitted([*holdfast, "watch", *where, "-o", str(out), "--metrics", str(metrics)], **remote)
    once = run(
        None, KafkaFeed(cluster=cluster), tmp_path / "once", selection=Selection(groups=[group])
    )
    for name in ("generations", "movements", "rebalances", "ownership_gaps", "offset_commits"):
        assert Tables(out).table(name).equals(once.table(name))
    assert topic in metrics.read_text()
    known = [(row["topic"], row["partition"], row["lag"]) for row in once.table("lag").to_pylist()]
    rows = Tables(out).table("lag").to_pylist()
    assert [(row["topic"], row["partition"], row["lag"]) for row in rows] == known != []

"""The two readers of a cluster, this process and Spark, on a broker: the same commits.

Records are written into the offsets topic as a coordinator would write them: packed by every codec,
in transactions that commit, abort or stay open, by two producers at once, 200,000 of few keys, of
which the cleaner leaves long gaps, and some while they are read.
"""

from __future__ import annotations

import threading
from itertools import count

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.live.small_group import small_group
from tests.live.waiting import until
from tests.pipeline import fleet
from tests.pipeline.test_live import READERS

from holdfast.cluster.cluster import LiveCluster
from holdfast.core.wire.one.topic_ids import offsets_partition
from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.pipeline.batches.watch import watch
from holdfast.fleet.pipeline.ingest.dump import write_dump
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC, KafkaFeed
from holdfast.fleet.pipeline.ingest.transactions import WAITING
from holdfast.local.broker import Broker, BrokerSettings

pytestmark = [pytest.mark.broker, pytest.mark.every]

ADMIN = "__admin_client"
"""The client id to which a broker opens its internal topics."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
N_MANY, N_KEYS = 200_000, 40
N_PARTITIONS, OPEN, CLEANED = 4, 1, 2
"""Partitions of the topic: of the open transaction, and with long gaps."""
ENDS = ("commit", "abort", "open")
PROPERTIES = {
    "offsets.topic.num.partitions": str(N_PARTITIONS),
    "offsets.topic.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.001",
}


class Writer:
    """Writes commits into the offsets topic."""

    def __init__(self, bootstrap, topic):
        self.cluster, self.topic = LiveCluster(bootstrap=bootstrap), topic

    def producer(self, **settings):
        told = {"bootstrap.servers": self.cluster.bootstrap, **settings}
        return Producer({**told, "queue.buffering.max.messages": 1_000_000})

    def write_codecs(self):
        for codec in CODECS:
            packing = {"compression.type": codec, "linger.ms": 20}
            producer = self.producer(**packing, **{"client.id": ADMIN})
            for n in range(300):
                commit(producer, 0, f"packed-{codec}", n % 50, n)
            assert producer.flush(60) == 0

    def write_transactions(self):
        """Return the producer of the open one, which must live on."""
        for end in ENDS:
            own = {"transactional.id": f"ends-with-{end}", "transaction.timeout.ms": 600_000}
            producer = self.producer(**own)
            producer.init_transactions(60)
            producer.begin_transaction()
            reader = Consumer(
                {"bootstrap.servers": self.cluster.bootstrap, "group.id": waiting(end)}
            )
            at = [TopicPartition(self.topic, p, 5 + p) for p in (0, 1)]
            producer.send_offsets_to_transaction(at, reader.consumer_group_metadata(), 60)
            reader.close()
            if end != "open":
                getattr(producer, f"{end}_transaction")(60)
        behind = self.producer(**{"client.id": ADMIN})
        commit(behind, OPEN, "behind-an-open-transaction", 0, 7)
        assert behind.flush(60) == 0
        return producer

    def write_many(self, n_records=N_MANY):
        packing = {"compression.type": "lz4", "client.id": ADMIN}
        writers = [self.producer(**packing) for _ in range(2)]
        for n in range(n_records):
            commit(writers[n % 2], CLEANED, f"writer-{n % 2}", n % N_KEYS, n)
        assert all(writer.flush(120) == 0 for writer in writers)

    def n_left(self):
        """Records that the cleaner has left in the partition with gaps."""
        feed = KafkaFeed(cluster=self.cluster)
        ends = feed.ends()[CLEANED]
        return feed.here({CLEANED: (ends.begin, ends.end)}, WAITING.empty_table()).rows.cost_rows


def commit(producer, partition, group, topic_partition, offset):
    key, value = fleet.commit(group, "t", topic_partition, offset, at=1_000)
    producer.produce(OFFSETS_TOPIC, key=key, value=value, partition=partition)


def waiting(end):
    """A group whose commits are in the partition of the open transaction."""
    names = (f"in-{end}-{n}" for n in count())
    return next(name for name in names if offsets_partition(name, N_PARTITIONS) == OPEN)


@pytest.fixture(scope="module")
def written():
    with (
        Broker.start(settings=BrokerSettings(properties=PROPERTIES)) as broker,
        small_group(broker.bootstrap, "first") as (topic, _),
    ):
        writer = Writer(broker.bootstrap, topic)
        writer.write_codecs()
        is_open = writer.write_transactions()
        writer.write_many()
        until(lambda: writer.n_left() < N_MANY / 2, "the topic is cleaned")
        yield writer
        del is_open


@pytest.fixture(params=READERS)
def feed(request, written):
    if request.param == "python":
        return KafkaFeed(cluster=written.cluster)
    spark = request.getfixturevalue("spark")
    return KafkaFeed(cluster=written.cluster, session=lambda: spark, most_here=0)


def positions(tables):
    rows = tables.table("lag").to_pylist()
    return {(row["group"], row["partition"]): row["current_offset"] for row in rows}


def check(found):
    """Positions are those of the last commits that count."""
    for codec in CODECS:
        assert [found[f"packed-{codec}", p] for p in range(50)] == list(range(250, 300))
    assert [found[waiting("commit"), p] for p in (0, 1)] == [5, 6]
    assert not {group for group, _ in found} & {waiting("abort"), waiting("open")}
    assert found["behind-an-open-transaction", 0] == 7
    assert [found[f"writer-{p % 2}", p] % N_KEYS for p in range(N_KEYS)] == list(range(N_KEYS))


def test_a_dump_has_the_last_commit_of_every_key(feed, tmp_path):
    dump = write_dump(feed, tmp_path / "dump")
    check(positions(run(None, dump, tmp_path / "tables").tables))
    (one,) = dump.open_transactions
    assert (one.partition, one.groups, one.n_records) == (OPEN, (waiting("open"),), 2)


def test_a_watch_has_the_last_commit_of_every_key(feed, tmp_path):
    check(positions(watch(feed, tmp_path / "tables")))


def test_no_key_is_missed_while_the_topic_is_written_and_cleaned(feed, written, tmp_path):
    end = threading.Event()

    def write():
        while not end.is_set():
            written.write_many(5_000)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        dump = write_dump(feed, tmp_path / "dump")
    finally:
        end.set()
        writing.join()
    check(positions(run(None, dump, tmp_path / "tables").tables))

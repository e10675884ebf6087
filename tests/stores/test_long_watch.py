"""A watch whose store is busy, late, deaf or gone again and again: nothing lost, nothing twice."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.live.crew import Topic
from tests.pipeline.test_stream import everything

from holdfast.cluster.cluster import LiveCluster
from holdfast.errors import SourceError
from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.pipeline.batches.watch import watch
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.offsets_topic import KafkaFeed
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage import clients
from holdfast.fleet.tables.storage.paths import storage_path

pytestmark = [pytest.mark.spark, pytest.mark.broker]

FAULTS = ("busy", "refuse", "drop", "mute", "stall", "late")
CHANCES = (60, 1, 30, 1, 1, 60)
"""Of ten thousand requests; the rest is answered. A batch makes 184."""
N_PARTITIONS = 3
OF_A_MOMENT = (
    "lag_seconds",
    "lag_per_second",
    "catch_up_seconds",
    "lag_seconds_basis",
    "has_unread",
    "idle_lower_seconds",
    "idle_upper_seconds",
    "lag_history",
)
"""Whether a record waited in a pause is known by the log ends of its batch."""


class EnoughError(Exception):
    """As many batches as the test wants."""


def foul(seed):
    """Weather for a relay, and what it did."""
    chance, done = random.Random(seed), Counter()

    def weather():
        (fault,) = chance.choices(["", *FAULTS], [10_000 - sum(CHANCES), *CHANCES])
        done[fault] += 1
        return fault

    return weather, done


@contextmanager
def living(bootstrap, topic, groups):
    """Groups that commit all the time; a member comes to one of them now and then, and goes."""
    end = threading.Event()

    def settings(group):
        return {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}

    def commits(group):
        with closing(Consumer(settings(group))) as consumer:
            offset = 0
            while not end.wait(0.1):
                offset += 1
                place = TopicPartition(topic, offset % N_PARTITIONS, offset)
                consumer.commit(offsets=[place], asynchronous=False)

    def rebalances(group):
        while not end.wait(1.0):
            with closing(Consumer(settings(group))) as consumer:
                consumer.subscribe([topic])
                while not consumer.assignment() and not end.is_set():
                    consumer.poll(0.1)

    threads = [threading.Thread(target=commits, args=(group,)) for group in groups[1:]]
    threads.append(threading.Thread(target=rebalances, args=(groups[0],)))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(
    "n_batches",
    [pytest.param(6, marks=pytest.mark.every), pytest.param(500, marks=pytest.mark.slow)],
)
def test_a_watch_on_remote_storage_that_fails_now_and_then(
    spark, broker, faulty, tmp_path, n_batches, monkeypatch
):
    """Whoever runs it starts it again when it has ended; the tables are those of one history."""
    monkeypatch.setattr(clients, "_REQUEST_S", 6.0)
    between, url = faulty
    feed = KafkaFeed(cluster=LiveCluster(bootstrap=broker.bootstrap), session=lambda: spark)
    place = storage_path(f"{url}/watched")
    groups = [f"g{n}-{uuid.uuid4().hex}" for n in range(4)]
    asked, said = Selection(groups=groups), []
    between.weather, done = foul(n_batches)

    def after(_, batch):
        print(f"batch {batch} after {sum(done.values())} requests", flush=True)
        if batch >= n_batches - 1:
            raise EnoughError

    with living(broker.bootstrap, Topic(broker.bootstrap, N_PARTITIONS).name, groups):
        while True:
            try:
                watch(feed, place, selection=asked, every_seconds=0.2, after_batch=after)
            except SourceError as error:
                assert "\n" not in str(error)
                said.append(str(error))
                print(f"started again ({len(said)}): {error}", flush=True)
            except EnoughError:
                break
    between.weather = None
    watch(feed, place, selection=asked)
    once = run(None, feed, tmp_path / "once", selection=asked)
    kept = Tables(place)
    assert kept.committed()[-1].id >= n_batches - 1
    found, wanted = (everything(tables, OF_A_MOMENT) for tables in (kept, once))
    assert found.pop("ownership_gaps") and wanted.pop(
        "ownership_gaps"
    )  # their sums are in `rebalances`
    stated = [
        {(f["group"], f["code"]) for f in t.table("findings").to_pylist()} for t in (kept, once)
    ]
    assert stated[0] == stated[1]
    del found["findings"], wanted["findings"]  # with the times at which each source was read
    differing = [
        f"{table}: {of} {row}"
        for table in found
        for of, rows, others in (
            ("watched", found[table], wanted[table]),
            ("at once", wanted[table], found[table]),
        )
        for row in sorted(set(rows) - set(others))[:5]
    ]
    assert found == wanted, "\n".join(differing)
    assert kept.rows("offset_commits") > n_batches and kept.rows("rebalances") > 0
    print(f"{dict(done)}; started again {len(said)} times")

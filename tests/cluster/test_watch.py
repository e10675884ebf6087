"""``watch`` on a real cluster: two workers, tables on a store, an executor and a driver killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster import standalone
from tests.cluster.orphans import orphans
from tests.pipeline.test_stream import everything
from tests.stores.conftest import forget, new_bucket

from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.paths import storage_path
from holdfast.local.broker import Broker, BrokerSettings
from holdfast.local.jars import connector_jars

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
JOBS = HERE.parents[1] / "jobs"
TOPIC = "t"
N_PARTITIONS = 4
CONNECTOR = {
    "spark.jars": ",".join(map(str, connector_jars(pyspark.__version__))),
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
}
OF_A_MOMENT = ("lag_seconds", "lag_seconds_basis", "has_unread", "lag_history")


@pytest.fixture(scope="module")
def bootstrap():
    """A broker with a topic of N_PARTITIONS, 20 records in each."""
    settings = BrokerSettings(properties={"offsets.topic.num.partitions": "4"})
    with Broker.start(settings=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, N_PARTITIONS, 1)])[TOPIC].result(30)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for n in range(20 * N_PARTITIONS):
            producer.produce(TOPIC, b"-", partition=n % N_PARTITIONS)
        assert producer.flush(30) == 0
        yield broker.bootstrap


def live(bootstrap, group, offset):
    """A member comes, a second one joins it, the first leaves; who owns something commits it."""
    first, second = (
        Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": name})
        for name in ("first", "second")
    )
    first.subscribe([TOPIC])
    settle({first: N_PARTITIONS}, offset)
    second.subscribe([TOPIC])
    settle({first: N_PARTITIONS // 2, second: N_PARTITIONS // 2}, offset + 1)
    first.close()
    settle({second: N_PARTITIONS}, offset + 2)
    second.close()


def settle(wanted, offset):
    """Poll until every consumer owns so many partitions, and commit an offset for each of them."""
    until = time.monotonic() + 60
    while any(len(consumer.assignment()) != n for consumer, n in wanted.items()):
        assert time.monotonic() < until, [c.assignment() for c in wanted]
        for consumer in wanted:
            consumer.poll(0.1)
    for consumer in wanted:
        owned = [TopicPartition(p.topic, p.partition, offset) for p in consumer.assignment()]
        consumer.commit(offsets=owned, asynchronous=False)


def batches(out):
    """Numbers of the batches of a folder."""
    return [batch.id for batch in Tables(storage_path(out)).committed()]


def wrong(done):
    """What a run says of errors, first and last; Spark's log is long."""
    found = [line for line in done.stderr.splitlines() if "Error" in line or "Exception" in line]
    return "\n".join([*found[:15], "...", *found[-5:]])


def history(bootstrap, cluster, storage_env, folder):
    """Tables of ``history`` of the same records, on one machine."""
    dump, out = folder / "dump", folder / "tables"
    command = [sys.executable, "-m", "holdfast", "dump", "-b", bootstrap, "-o", str(dump), "-q"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    done = standalone.submit(
        "local[2]", cluster.wheel, JOBS / "history.py", dump, out, conf={}, env=storage_env
    )
    assert done.returncode == 0, wrong(done)
    return Tables(out)


def test_watch_while_an_executor_and_the_driver_are_killed(
    cluster, bootstrap, storage_env, tmp_path, monkeypatch
):
    for name, value in storage_env.items():
        monkeypatch.setenv(name, value)
    forget()
    out = f"{new_bucket(storage_env)}/tables"
    words = (HERE / "watch_job.py", JOBS, bootstrap, out)
    mark = cluster.wheel.parent / "killed"
    mark.unlink()
    live(bootstrap, "g-0", 1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(cluster.submit, *words, 1, "die", 2, conf=CONNECTOR, env=storage_env)
        n = 0
        while not running.done():  # by the third batch, which has what lived beside the second
            n += 1
            live(bootstrap, f"g-{n}", 1)
            live(bootstrap, "g-0", 1 + n % 4)
        died = running.result()
    assert died.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), wrong(died)
    assert mark.exists(), "no executor was killed"
    assert batches(out) == [0, 1]
    for last in (2, 3):
        done = cluster.submit(*words, conf=CONNECTOR, env=storage_env)
        assert done.returncode == 0, wrong(done)
        assert batches(out) == [*range(last + 1)]
        live(bootstrap, "g-0", 5 + last)
    done = cluster.submit(*words, conf=CONNECTOR, env=storage_env)
    assert done.returncode == 0, wrong(done)
    whole = history(bootstrap, cluster, storage_env, tmp_path)
    assert everything(Tables(storage_path(out)), OF_A_MOMENT) == everything(whole, OF_A_MOMENT)
    assert whole.rows("rebalances") >= 15
    assert orphans(out) == set()
    ran = [list((home / "work").glob("app-*/*/stderr")) for home in cluster.environments]
    assert all(ran), "both workers had an executor"
    forget()

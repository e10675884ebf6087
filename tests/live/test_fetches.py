"""A partition at its end does not delay records of others, on a real broker."""

from __future__ import annotations

from contextlib import closing

import kafka
import pytest
from tests.live.crew import Topic, fresh
from tests.live.waiting import until

from holdfast.kafka import KafkaConsumer

pytestmark = pytest.mark.broker
N_PRODUCED = 20
N_EACH = 30
EMPTY, FULL = 0, 1


@pytest.fixture
def topic(broker):
    """Partition 1 has records in batches that are fetched one by one, 0 has none."""
    topic = Topic(broker.bootstrap, 2)
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap)
    with closing(producer):
        for _ in range(N_PRODUCED):
            for _ in range(N_EACH):
                producer.send(topic.name, bytes(100), partition=FULL)
            producer.flush()
    return topic


def read_and_note_waits(consumer, poll):
    """Read all records, and return the fetches that named only what was at its end."""
    fetcher, waits = consumer._fetcher, []
    make = fetcher._create_fetch_requests

    def noted():
        requests = make()
        for _, offsets in requests.values():
            seen = {tp.partition for tp in offsets}
            if seen == {EMPTY} and consumer.highwater(next(iter(offsets))) == 0:
                waits.append(n_read)
        return requests

    fetcher._create_fetch_requests = noted
    n_read = 0

    def all_read():
        nonlocal n_read
        n_read += poll()
        return n_read == N_PRODUCED * N_EACH

    until(all_read, lambda: f"{n_read} records read")
    return [n for n in waits if n < N_PRODUCED * N_EACH]


def test_the_drop_in_fetches_what_is_there(broker, topic):
    options = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 4_000}
    consumer = KafkaConsumer(
        topic.name, bootstrap_servers=broker.bootstrap, group_id=fresh("group"), **options
    )
    with closing(consumer):
        assert not read_and_note_waits(
            consumer, lambda: sum(map(len, consumer.poll(100, max_records=5).values()))
        )

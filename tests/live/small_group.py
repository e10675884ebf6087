"""A group of a stock client whose only member has joined, read, committed and left."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from tests.live.waiting import until

N_READ = 3


@contextmanager
def small_group(bootstrap: str, group: str) -> Iterator[tuple[str, Callable[[int], None]]]:
    """Name of a topic of two partitions, 2 and 1 records of it read, and a way to write more."""
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka.admin import NewTopic

    topic = f"t-{uuid.uuid4().hex}"
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)])
    with closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer:

        def produce(n: int) -> None:
            for i in range(n):
                producer.send(topic, b"x", partition=i % 2).get(30)

        produce(N_READ)
        consumer = KafkaConsumer(
            topic,
            group_id=group,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        with closing(consumer):  # left by the end: or it is thrown out while a test looks at it
            # A client that leads before it knows the topic joins again (tests/live/polled.py).
            until(lambda: consumer.partitions_for_topic(topic), "the topic's metadata")
            read: list[object] = []

            def has_read() -> bool:
                read.extend(record for batch in consumer.poll(500).values() for record in batch)
                return len(read) >= N_READ

            until(has_read, lambda: f"{N_READ} records of {topic}; {len(read)} read")
            consumer.commit()
        yield topic, produce

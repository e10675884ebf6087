"""A group of a stock client whose only member has come, read, committed and gone."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

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
            seen = 0
            while seen < N_READ:
                seen += sum(len(batch) for batch in consumer.poll(500).values())
            consumer.commit()
        yield topic, produce

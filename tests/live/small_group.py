"""A group of a stock client whose only member has joined, read, committed and left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from tests.live.clients import CLIENTS
from tests.live.crew import Topic
from tests.live.waiting import until

N_READ = 3


@contextmanager
def small_group(bootstrap: str, group: str) -> Iterator[tuple[str, Callable[[int], None]]]:
    """Name of a topic of two partitions, 2 and 1 records of it read, and a way to write more."""
    topic = Topic(bootstrap, 2)

    def produce(n: int) -> None:
        topic.write({0: n - n // 2, 1: n // 2})

    produce(N_READ)
    config = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    # It has left by the end: or it is thrown out while a test looks at it.
    with closing(CLIENTS["kafka"](topic.name, config, is_original=True)) as client:
        client.subscribe([topic.name])
        until(lambda: client.poll(0.5) is not None and len(client.records) >= N_READ, client.seen)
        client.commit()
    yield topic.name, produce

"""The data plane keeps the promises of its interface, on a real broker."""

from __future__ import annotations

import pytest
from holdfast.adapters.records.data_plane import ConfluentPlane
from tests.live.crew import Topic
from tests.live.waiting import until

from holdfast.adapters.settings import Settings

pytestmark = pytest.mark.broker


@pytest.fixture
def plane(broker):
    made = ConfluentPlane(
        Settings.parse({"bootstrap.servers": broker.bootstrap, "group.id": "of no use"})
    )
    yield made
    made.close()


def place(message):
    return message.partition(), message.offset()


def read(plane, n):
    """The next ``n`` (partition, offset), by partition."""
    found = []

    def enough():
        found.extend(map(place, plane.poll(50, n - len(found))))
        return len(found) == n

    until(enough, lambda: f"{n} records, found {found}")
    return sorted(found)


def silent(plane, partition):
    """Whether polls that bring something of another partition bring nothing of this one."""
    return not any(p == partition for p, _ in map(place, plane.poll(300, 1_000)))


def test_partitions_begin_pause_go_on_and_come_back(broker, plane):
    topic = Topic(broker.bootstrap, 2)
    topic.produce(20)
    a, b = (topic.name, 0), (topic.name, 1)
    plane.start({a: 3})
    assert read(plane, 2) == [(0, 3), (0, 4)]
    assert plane.positions() == {a: 5}
    plane.start({b: 7})
    assert {p for p, _ in read(plane, 28)} == {0, 1}  # 15 and 13: nothing lost, nothing twice
    assert plane.positions() == {a: 20, b: 20}
    plane.pause([a])
    topic.produce(1)
    assert read(plane, 1) == [(1, 20)]
    assert silent(plane, 0)
    plane.resume([a])
    assert read(plane, 1) == [(0, 20)]
    plane.seek(a, 18)
    assert read(plane, 3) == [(0, 18), (0, 19), (0, 20)]
    plane.pause([a])
    plane.stop([a])
    topic.produce(1)
    assert read(plane, 1) == [(1, 21)]
    assert a not in plane.positions()
    plane.start({a: 20})  # somebody else had it meanwhile; it is not paused any more
    assert read(plane, 2) == [(0, 20), (0, 21)]
    plane.stop([a, b])
    assert plane.poll(50, 10) == []

"""The chaos suite in short: one group of each of two designs under every kind of fire.

All of it, ten members and three brokers, is ``python -m tests.live.chaos`` (`make soak`).
"""

from __future__ import annotations

import pytest
from tests.live.chaos import cluster
from tests.live.faults import ONE_BROKER, fire
from tests.live.herd import Herd
from tests.suites import further

from holdfast.jvm.jars import KAFKA_VERSION

pytestmark = pytest.mark.broker

SHORT = {
    "simple": ("kill -9 two", "SIGSTOP, SIGCONT", "twin static ids"),
    "deferred": ("kill -9, back at once", "network cut", "broker kill -9"),
}


@pytest.fixture
def fired_at(request, design):
    """A broker and its proxy; one that a fault kills is nobody else's."""
    if any("broker" in fault for fault in SHORT[design]):
        with cluster(1, KAFKA_VERSION) as own:
            yield own
    else:
        yield request.getfixturevalue("broker"), request.getfixturevalue("cut")


@pytest.mark.parametrize("design", further(SHORT))
def test_a_group_under_fire(fired_at, tmp_path, design):
    """Every record is processed, nobody commits what it lost, only what was in flight is reread."""
    broker, cut = fired_at
    with Herd(
        broker,
        cut,
        tmp_path,
        design=design,
        n_members=5,
        n_partitions=20,
        session_ms=4_000,
        delay_ms=3_000,
    ) as herd:
        found = fire(herd, {name: ONE_BROKER[name] for name in SHORT[design]})
    print(found)
    assert found["violations"] == []
    assert found["records"] > 0


@pytest.mark.every
def test_every_client_in_one_group_under_fire(broker, cut, tmp_path):
    """The drop-ins for all three clients are members of one group that waits for the returning."""
    with Herd(
        broker,
        cut,
        tmp_path,
        design="deferred",
        client="confluent+aiokafka+kafka",
        n_members=3,
        n_partitions=6,
        session_ms=4_000,
        delay_ms=3_000,
    ) as herd:
        found = fire(herd, {"kill -9, back at once": ONE_BROKER["kill -9, back at once"]})
    print(found)
    assert found["violations"] == []
    assert found["records"] > 0

"""The short chaos suite: one group of each of two designs under every kind of fault.

All of it, ten members and three brokers, is ``python -m tests.live.chaos`` (`make soak`).
"""

from __future__ import annotations

import pytest
from tests.live.chaos import cluster
from tests.live.faults import ONE_BROKER, fire
from tests.live.member_group import MemberGroup
from tests.suites import further

from holdfast.local.jars import KAFKA_VERSION

pytestmark = pytest.mark.broker

SHORT = {
    "simple": ("SIGSTOP, SIGCONT", "twin static ids"),
    "deferred": ("kill -9 two", "kill -9, back at once", "network cut", "broker kill -9"),
}


@pytest.fixture
def fired_at(request, design):
    """A broker and its proxy; one that a fault kills is nobody else's."""
    if any("broker" in fault for fault in SHORT[design]):
        with cluster(1, KAFKA_VERSION) as own:
            yield own
    else:
        yield request.getfixturevalue("broker"), request.getfixturevalue("cut")


def check(fired_at, folder, design, faults, **sizes):
    """Every record is processed, nobody commits what it lost, only what was in flight is reread."""
    times = {"session_ms": 4_000, "delay_ms": 3_000}
    with MemberGroup(*fired_at, folder, design=design, **times, **sizes) as member_group:
        found = fire(member_group, {name: ONE_BROKER[name] for name in faults})
    print(found)
    assert found["violations"] == []
    assert found["records"] > 0


@pytest.mark.parametrize("design", further(SHORT))
def test_a_group_under_fire(fired_at, tmp_path, design):
    check(fired_at, tmp_path, design, SHORT[design], n_members=5, n_partitions=20)


@pytest.mark.every
def test_every_client_in_one_group_under_fire(broker, cut, tmp_path):
    """The drop-ins for all three clients are members of one group that waits for the returning."""
    sizes = {"client": "confluent+aiokafka+kafka", "n_members": 3, "n_partitions": 6}
    check((broker, cut), tmp_path, "deferred", ["kill -9, back at once"], **sizes)

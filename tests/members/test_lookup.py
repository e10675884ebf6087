"""Requests for offsets while a partition has no leader."""

from __future__ import annotations

from types import SimpleNamespace

import kafka.errors
import pytest
from tests.members.fake_connections import FakeConnections
from tests.members.fake_member import done

from holdfast.cluster import lookup as lookup_module
from holdfast.cluster.lookup import EARLIEST, LATEST, Lookup
from holdfast.members.runtime.coordinator_client import BrokerLags

A, B, C = ("t", 0), ("t", 1), ("t", 2)
NOT_LEADER = kafka.errors.NotLeaderForPartitionError.errno


class Answers(FakeConnections):
    """Partition 1 has no leader, partition 2 has one that knows nothing."""

    async def send(self, request, node=None):
        if node is None:
            parts = [
                SimpleNamespace(partition_index=i, leader_id=-1 if i == 1 else 7, error_code=0)
                for i in range(3)
            ]
            topic = SimpleNamespace(name="t", partitions=parts, error_code=0)
            return SimpleNamespace(topics=[topic], brokers=[])
        (topic,) = request.topics
        at = {EARLIEST: 3, LATEST: 9}[topic.partitions[0].timestamp]
        parts = [
            SimpleNamespace(
                partition_index=p.partition_index,
                error_code=NOT_LEADER if p.partition_index == 2 else 0,
                offset=at,
                timestamp=-1,
            )
            for p in topic.partitions
        ]
        return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=parts)])


def test_a_partition_without_a_leader_alone_is_missing() -> None:
    lookup = Lookup(Answers())
    assert lookup.list_offsets([A, B, C], EARLIEST).result() == {A: 3}
    for alone in (B, C):
        with pytest.raises(kafka.errors.KafkaError):
            lookup.list_offsets([alone], EARLIEST).result()


def test_what_some_leaders_know_is_reported_and_why_the_rest_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookup_module, "NODE_PATIENCE_S", 0.0)
    found, why = Lookup(Answers()).known_offsets([A, B, C], EARLIEST).result()
    assert found == {A: 3}
    assert why[B] == "LeaderNotAvailableError: it has no leader"
    assert why[C].startswith("NotLeaderForPartitionError")


class OneIsAway(Answers):
    """The leader of partition 2 refuses connections."""

    async def send(self, request, node=None):
        answer = await super().send(request, node)
        if node is None:
            answer.topics[0].partitions[2].leader_id = 8
        if node == 8:
            raise kafka.errors.KafkaConnectionError("111")
        return answer


def test_a_leader_that_is_away_is_named_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_module, "NODE_PATIENCE_S", 0.0)
    found, why = Lookup(OneIsAway()).known_offsets([A, C], LATEST).result()
    assert found == {A: 9}
    assert why == {C: "KafkaConnectionError: broker 8 (h8:9092): Connection refused"}


def test_a_partition_without_a_leader_has_no_lag() -> None:
    group = SimpleNamespace(committed=lambda partitions, stable: done({A: 4, B: 4}))
    source = BrokerLags(group, Lookup(Answers()), "earliest")
    assert source({"t": 3}) == {"t": [5, 0, 0]}

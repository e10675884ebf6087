"""The client libraries of members, recognised by the ids in their group's record."""

from __future__ import annotations

import aiokafka
import kafka
import pytest

from holdfast.core.machine.upgrade import Client
from holdfast.fleet.analysis.group.client_library import PLANNED, client_of, clients_of
from holdfast.members.config.settings import Settings

NEEDED = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


@pytest.mark.parametrize(
    ("client_id", "rack", "protocol", "client"),
    [
        ("rdkafka", "", "range", Client.CONFLUENT),
        ("payments-api", "", "range", Client.CONFLUENT),  # whatever its id
        ("consumer-etl-1", "", "range", Client.CONFLUENT),
        ("rdkafka", None, "range", Client.CONFLUENT),  # one that sends no rack
        ("rdkafka", "rack-1", "range", Client.CONFLUENT),
        ("consumer-etl-1", None, "range", Client.JAVA),
        ("consumer-etl-instance-a", "rack-1", "range", Client.JAVA),
        ("consumer-other-1", None, "range", None),
        ("consumer-1", None, "range", None),
        ("aiokafka-0.14.0", None, "roundrobin", Client.AIOKAFKA),
        ("aiokafka-worker", None, "roundrobin", None),
        ("kafka-python-3.0.12", None, "range", Client.KAFKA_PYTHON),
        ("kafka-python-3.0.12", None, None, Client.KAFKA_PYTHON),
        ("holdfast", None, "cooperative-sticky", Client.HOLDFAST),
        ("holdfast-x", None, "cooperative-sticky", None),
        ("anything", None, "holdfast-deferred", Client.HOLDFAST),
        ("sarama", None, "range", "sarama"),
        ("kgo", None, "cooperative-sticky", "franz-go"),
        ("kafkajs", None, "RoundRobinAssigner", "KafkaJS"),
        ("", None, "range", None),
    ],
)
def test_a_library_is_recognised_by_what_it_alone_writes(client_id, rack, protocol, client):
    assert client_of("etl", protocol, client_id, rack) == client


def test_the_default_ids_are_those_of_the_libraries():
    theirs = {
        Client.KAFKA_PYTHON: kafka.KafkaConsumer.DEFAULT_CONFIG["client_id"],
        Client.AIOKAFKA: f"aiokafka-{aiokafka.__version__}",
        Client.HOLDFAST: Settings.parse(NEEDED)["client.id"],
    }
    for client, own in theirs.items():
        assert client_of("g", "range", own, None) is client


def test_the_members_of_a_group_may_run_several():
    members = [("rdkafka", ""), ("consumer-g-1", None), ("mine", None), ("rdkafka", "")]
    assert clients_of("g", "range", members) == {Client.CONFLUENT, Client.JAVA, None}
    assert clients_of("g", "range", []) == frozenset()


def test_what_a_person_may_choose_is_a_client_of_consumers():
    assert Client.WORKER not in PLANNED
    assert {*PLANNED} < {*Client}

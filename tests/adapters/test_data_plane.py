"""What the default data plane asks of its library, in which order."""

from __future__ import annotations

import confluent_kafka
import pytest

from holdfast.adapters.records.data_plane import MOST_INTRODUCED, ConfluentPlane
from holdfast.adapters.settings import Settings


class Client:
    """Stands for confluent_kafka.Consumer."""

    def __init__(self):
        self.asked = []
        self.fails = False

    def list_topics(self, topic, timeout):
        self.asked.append(topic)
        if self.fails:
            raise confluent_kafka.KafkaException("no answer")

    def incremental_assign(self, partitions):
        self.asked.append([(p.topic, p.partition, p.offset) for p in partitions])

    def incremental_unassign(self, partitions):
        pass


@pytest.fixture
def made(monkeypatch):
    client = Client()
    monkeypatch.setattr(confluent_kafka, "Consumer", lambda config, logger: client)
    config = {"bootstrap.servers": "h:1", "group.id": "of no use"}
    return ConfluentPlane(Settings.parse(config)), client


def test_a_new_topic_is_asked_for_before_it_is_fetched(made):
    plane, client = made
    plane.start({("a", 0): 5})
    plane.start({("a", 1): 6, ("b", 0): 7})
    plane.stop([("a", 0)])
    plane.start({("a", 0): 8})
    assert client.asked == ["a", [("a", 0, 5)], "b", [("a", 1, 6), ("b", 0, 7)], [("a", 0, 8)]]


def test_a_topic_without_an_answer_is_left_to_the_library(made):
    plane, client = made
    client.fails = True
    plane.start({("a", 0): 5, ("b", 0): 7})
    assert client.asked == ["a", [("a", 0, 5), ("b", 0, 7)]]


def test_many_topics_are_not_asked_for_one_by_one(made):
    plane, client = made
    plane.start({(f"t{i:02}", 0): 0 for i in range(MOST_INTRODUCED + 5)})
    assert client.asked[:-1] == [f"t{i:02}" for i in range(MOST_INTRODUCED)]
    assert len(client.asked[-1]) == MOST_INTRODUCED + 5

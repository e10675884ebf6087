"""The page of the clients is whole: no public name of theirs is without an answer."""

import pytest
from tools.pages import clients


def test_every_public_name_of_a_client_is_in_its_drop_in_and_has_a_counterpart_or_a_reason():
    assert clients.missing() == []


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("NOT_HERE", "kafka.KafkaConsumer.highwater: no counterpart in Consumer"),
        ("COUNTERPARTS", "aiokafka.AIOKafkaConsumer.getone: no counterpart in Consumer"),
    ],
)
def test_a_name_without_an_answer_is_reported(monkeypatch, table, told):
    monkeypatch.setattr(clients, table, {})
    assert told in clients.missing()

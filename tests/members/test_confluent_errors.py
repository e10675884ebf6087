"""The replacement of confluent-kafka's message where a program cannot make one (before 2.13).

``tests/live/test_confluent.py`` compares it with the original's on a broker; ``make soak`` runs it
with the oldest confluent-kafka.
"""

from __future__ import annotations

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message
from confluent_kafka.error import ConsumeError

from holdfast.members.clients.confluent import errors
from holdfast.members.clients.confluent.errors import ErrorMessage, error_message

KINDS = pytest.mark.parametrize("kind", dict.fromkeys([errors.MESSAGES[-1], ErrorMessage]))


@KINDS
def test_it_answers_as_a_message(monkeypatch, kind):
    monkeypatch.setattr(errors, "MESSAGES", (kind,))
    error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "no such topic")
    message = error_message(error, "orders")
    assert isinstance(message, Message)
    assert message.error() == error
    assert (message.topic(), message.partition(), message.value()) == (
        "orders",
        0,
        b"no such topic",
    )
    assert message.timestamp() == (TIMESTAMP_NOT_AVAILABLE, -1)
    assert len(message) == len(b"no such topic")
    beside = (message.key, message.headers, message.offset, message.leader_epoch, message.latency)
    assert [answer() for answer in beside] == [None] * len(beside)
    with pytest.raises(ConsumeError, match="no such topic"):
        raise ConsumeError(error, kafka_message=message)


def test_it_has_the_names_of_the_oldest_message_and_no_others():
    newer = {"delivery_count", "deserialized_key", "deserialized_value", "set_error", "set_topic"}
    assert {n for n in vars(ErrorMessage) if n[0] != "_"} == {
        name for name in dir(Message) if not name.startswith("_")
    } - newer

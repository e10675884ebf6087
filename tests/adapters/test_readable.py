"""Subscriptions that do not parse, in front of the readers of two client libraries."""

from __future__ import annotations

import logging
import struct

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from holdfast.adapters.readable import NO_TOPICS, ReadableSubscriptions
from holdfast.wire.layouts.consumer_protocol import (
    Subscription,
    decode_subscription,
    encode_subscription,
)

GOOD = encode_subscription(Subscription(version=3, topics=("a", "b"), user_data=b"x"))
ODD = {
    "empty": b"",
    "cut": GOOD[:9],
    "bad UTF-8": GOOD.replace(b"a", b"\xff", 1),
    "version -1": struct.pack(">h", -1) + GOOD[2:],
    "a count of 2^31 - 1": GOOD[:2] + struct.pack(">i", 2**31 - 1) + GOOD[6:],
    "a count of -5": GOOD[:2] + struct.pack(">i", -5) + GOOD[6:],
    "no list of topics": struct.pack(">hii", 0, -1, -1),
}
READERS = {
    "kafka-python": ConsumerProtocolSubscription.decode,
    "aiokafka": ConsumerProtocol.METADATA.decode,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("odd", ODD)
def test_odd_bytes_are_those_of_a_member_without_topics(reader, odd, caplog):
    caplog.set_level(logging.WARNING)
    readable = ReadableSubscriptions(READERS[reader])
    assert readable.of([("good", GOOD), ("odd", ODD[odd])]) == [GOOD, NO_TOPICS]
    assert READERS[reader](NO_TOPICS)
    assert decode_subscription(NO_TOPICS).topics == ()
    (record,) = caplog.records
    assert record.getMessage().startswith("member 'odd' gets nothing, its subscription cannot be")
    readable.of([("good", GOOD), ("odd", ODD[odd])])
    assert len(caplog.records) == 1  # once while it stays
    readable.of([("good", GOOD)])
    readable.of([("odd", ODD[odd])])
    assert len(caplog.records) == 2


def test_newer_versions_and_more_bytes_stay_as_they_are():
    newer = [struct.pack(">h", 9) + GOOD[2:], GOOD + b"more"]
    for decode in READERS.values():
        assert ReadableSubscriptions(decode).of(zip("ab", newer, strict=True)) == newer

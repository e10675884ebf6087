"""What is wrong with a membership, as messages that ``poll`` hands out.

**Rules.** A failure is told once a second at most, a subscribed topic that does not exist once, and
an application that has not polled for ``max.poll.interval.ms`` as soon as it is back.

References: librdkafka, ``rd_kafka_consumer_err``; KIP-62 (``max.poll.interval.ms``).
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, Message

from holdfast.core.machine.codes import ErrorCode
from holdfast.members.drop_in.confluent.codes import MAX_POLL_EXCEEDED, kafka_error, said
from holdfast.members.drop_in.confluent.error_message import told_as
from holdfast.members.seat.membership import Membership

_TOLD_EVERY_S = 1.0


class Problems:
    """What has been told of one membership."""

    def __init__(self) -> None:
        self._told_at = 0.0
        self._told_missing: set[str] = set()

    def of(self, membership: Membership) -> Message | None:
        """The next message, if there is one."""
        parts, failure, now = membership.parts, membership.failure, time.monotonic()
        if failure is not None and now - self._told_at >= _TOLD_EVERY_S:
            self._told_at = now
            return told_as(kafka_error(failure))
        if parts is None or set(missing := parts.missing) == self._told_missing:
            return None
        told = self._told_missing & set(missing)
        topic = min(set(missing) - told, default=None)
        if topic is None:
            self._told_missing = told
            return None
        self._told_missing = told | {topic}  # the others come with the next polls
        code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        text = f"Subscribed topic not available: {topic}: {said(code)}"
        return told_as(KafkaError(code, text), topic)


def late(membership: Membership, seconds: float) -> Message | None:
    """The message for an application that has not polled for so long, if that is too long."""
    if membership.parts is None:
        return None
    most_ms: int = membership.settings["max.poll.interval.ms"]
    over_ms = int(seconds * 1000) - most_ms
    if over_ms < 0:
        return None
    text = f"Application maximum poll interval ({most_ms}ms) exceeded by {over_ms}ms"
    return told_as(KafkaError(MAX_POLL_EXCEEDED, text))

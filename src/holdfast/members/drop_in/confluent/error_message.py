"""An error of the member as a message, which is how librdkafka hands errors out.

**Rules.** The application gets a ``confluent_kafka.Message`` where a program can make one. Before
confluent-kafka 2.13 none can: there it gets an object that answers as the original's message does,
and that ``isinstance`` takes for one.

References: confluent-kafka-python, ``Message``.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message

_CAN_BE_MADE = "__init__" in vars(Message)  # since confluent-kafka 2.13


class ErrorMessage:
    """Answers as the ``Message`` of an error does.

    Parameters
    ----------
    topic : str or None
        The topic that the error is about.
    partition : int
        Its partition; 0 as librdkafka has it where there is none.
    value : bytes
        The text of the error.
    timestamp : (int, int)
        Kind and milliseconds.
    error : KafkaError
        The error.
    """

    def __init__(
        self,
        *,
        topic: str | None,
        partition: int,
        value: bytes,
        timestamp: tuple[int, int],
        error: KafkaError,
    ):
        self._topic = topic
        self._partition = partition
        self._timestamp = timestamp
        self._error = error
        self._value: Any = value
        self._key: Any = None
        self._headers: Any = None

    @property  # type: ignore[misc]  # isinstance() asks for it
    def __class__(self) -> type:
        return Message

    def __len__(self) -> int:
        return 0 if self._value is None else len(self._value)

    def error(self) -> KafkaError:
        """The error."""
        return self._error

    def topic(self) -> str | None:
        """The topic that the error is about, None without one."""
        return self._topic

    def partition(self) -> int:
        """The partition."""
        return self._partition

    def timestamp(self) -> tuple[int, int]:
        """No time: an error has none."""
        return self._timestamp

    def value(self) -> Any:
        """The text of the error, unless the application has set another value."""
        return self._value

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        self._value = value

    def key(self) -> Any:
        """What the application has set, else None."""
        return self._key

    def set_key(self, key: Any) -> None:
        """Set a key."""
        self._key = key

    def headers(self) -> Any:
        """What the application has set, else None."""
        return self._headers

    def set_headers(self, headers: Any) -> None:
        """Set headers."""
        self._headers = headers

    def offset(self) -> None:
        """None: no record is meant."""

    def leader_epoch(self) -> None:
        """None: no record is meant."""

    def latency(self) -> None:
        """None: nothing was produced."""


MESSAGES: tuple[type, ...] = (Message,) if _CAN_BE_MADE else (Message, ErrorMessage)
"""The classes of what ``poll`` hands out."""


def told_as(error: KafkaError, topic: str | None = None) -> Message:
    """An error as librdkafka hands it out: of partition 0, with its text for a value."""
    make: Any = MESSAGES[-1]
    made: Message = make(
        topic=topic,
        partition=0,
        value=error.str().encode(),
        timestamp=(TIMESTAMP_NOT_AVAILABLE, -1),
        error=error,
    )
    return made

"""Errors of holdfast, in confluent-kafka's classes, codes and messages.

**Rules.** An error has the class and the code that confluent-kafka raises for the same call. An
error that only holdfast has gets the code that a broker would answer. A text begins as librdkafka's
does; holdfast's details follow.

Errors of a membership are messages that ``poll`` returns. The message is a
``confluent_kafka.Message`` if programs can make one. Before confluent-kafka 2.13 they cannot: there
it is an object that answers as the original's message does, and that ``isinstance`` accepts as one.

References: librdkafka, ``rd_kafka_resp_err_t``, ``rd_kafka_consumer_err``; confluent-kafka-python,
``Message``; Kafka protocol guide, "Error codes".
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message

from holdfast.core.machine.codes import ErrorCode
from holdfast.errors import ConfigError, HoldfastError, LocalProtocolError, RemoteProtocolError

INVALID_ARG: int = KafkaError._INVALID_ARG
STATE: int = KafkaError._STATE
NO_OFFSET: int = KafkaError._NO_OFFSET
TIMED_OUT: int = KafkaError._TIMED_OUT
FATAL: int = KafkaError._FATAL
FAIL: int = KafkaError._FAIL
LOGIN_FAILED: int = KafkaError.SASL_AUTHENTICATION_FAILED
MAX_POLL_EXCEEDED: int = KafkaError._MAX_POLL_EXCEEDED
_OF_A_JOIN = frozenset({ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.INVALID_SESSION_TIMEOUT})
_CAN_BE_MADE = "__init__" in vars(Message)  # since confluent-kafka 2.13


def exception(code: int, text: str) -> KafkaException:
    """Return a ``KafkaException`` as confluent-kafka raises it."""
    return KafkaException(KafkaError(code, text))


def kafka_error(error: BaseException) -> KafkaError:
    """Convert an error of holdfast to a ``KafkaError``."""
    if isinstance(error, KafkaException):
        original: KafkaError = error.args[0]
        return original
    match error:
        case RemoteProtocolError() if error.error_code == ErrorCode.FENCED_INSTANCE_ID:
            return KafkaError(FATAL, f"Fatal error: {text_of(error.error_code)}: {error}", True)
        case RemoteProtocolError() if error.error_code > 0:
            code = error.error_code
        case LocalProtocolError():  # what this generation does not own
            code = int(ErrorCode.ILLEGAL_GENERATION)
        case ConfigError():
            code = INVALID_ARG
        case HoldfastError():
            code = TIMED_OUT
        case _:
            return KafkaError(FAIL, f"{type(error).__name__}: {error}")
    start = "JoinGroup failed: " if code in _OF_A_JOIN else ""
    return KafkaError(code, f"{start}{text_of(code)}: {error}")


def text_of(code: int) -> str:
    """Return librdkafka's text for a code."""
    words: str = KafkaError(code).str()
    return words


def commit_failed(error: HoldfastError) -> KafkaException:
    """Return the error of a commit that waited for its response."""
    refusal = kafka_error(error)
    return KafkaException(
        KafkaError(refusal.code(), f"Commit failed: {refusal.str()}", refusal.fatal())
    )


class ErrorMessage:
    """Has the methods of the ``Message`` of an error; the partition is 0 if there is none."""

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
        """Return the error."""
        return self._error

    def topic(self) -> str | None:
        """Return the topic that the error is about, None without one."""
        return self._topic

    def partition(self) -> int:
        """Return the partition."""
        return self._partition

    def timestamp(self) -> tuple[int, int]:
        """Return no time: an error has none."""
        return self._timestamp

    def value(self) -> Any:
        """Return the text of the error, unless the application has set another value."""
        return self._value

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        self._value = value

    def key(self) -> Any:
        """Return the key that the application has set, else None."""
        return self._key

    def set_key(self, key: Any) -> None:
        """Set a key."""
        self._key = key

    def headers(self) -> Any:
        """Return the headers that the application has set, else None."""
        return self._headers

    def set_headers(self, headers: Any) -> None:
        """Set headers."""
        self._headers = headers

    def offset(self) -> None:
        """Return None: no record is meant."""

    def leader_epoch(self) -> None:
        """Return None: no record is meant."""

    def latency(self) -> None:
        """Return None: nothing was produced."""


MESSAGES: tuple[type, ...] = (Message,) if _CAN_BE_MADE else (Message, ErrorMessage)
"""The classes of the messages that ``poll`` returns."""


def error_message(error: KafkaError, topic: str | None = None) -> Message:
    """Return an error as librdkafka does: of partition 0, with its text as value."""
    make: Any = MESSAGES[-1]
    message: Message = make(
        topic=topic,
        partition=0,
        value=error.str().encode(),
        timestamp=(TIMESTAMP_NOT_AVAILABLE, -1),
        error=error,
    )
    return message

"""librdkafka's own error codes, and holdfast's errors as confluent-kafka's.

**Rules.** An error of the façade has the class and the code that confluent-kafka raises in the same
place. Where only holdfast has the error, the code is the one that a broker would answer. A text
begins as librdkafka's does; what holdfast knows beside it comes after that.

References: librdkafka, ``rd_kafka_resp_err_t``; Kafka protocol guide, "Error codes".
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from holdfast.core.machine.codes import ErrorCode
from holdfast.errors import ConfigError, HoldfastError, LocalProtocolError, RemoteProtocolError

INVALID_ARG: int = KafkaError._INVALID_ARG
STATE: int = KafkaError._STATE
NO_OFFSET: int = KafkaError._NO_OFFSET
TIMED_OUT: int = KafkaError._TIMED_OUT
FATAL: int = KafkaError._FATAL
FAIL: int = KafkaError._FAIL
MAX_POLL_EXCEEDED: int = KafkaError._MAX_POLL_EXCEEDED
_OF_A_JOIN = frozenset({ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.INVALID_SESSION_TIMEOUT})


def exception(code: int, text: str) -> KafkaException:
    """A ``KafkaException`` as confluent-kafka raises it."""
    return KafkaException(KafkaError(code, text))


def kafka_error(error: BaseException) -> KafkaError:
    """An error of holdfast as a ``KafkaError``."""
    if isinstance(error, KafkaException):
        found: KafkaError = error.args[0]
        return found
    match error:
        case RemoteProtocolError() if error.error_code == ErrorCode.FENCED_INSTANCE_ID:
            return KafkaError(FATAL, f"Fatal error: {said(error.error_code)}: {error}", True)
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
    place = "JoinGroup failed: " if code in _OF_A_JOIN else ""
    return KafkaError(code, f"{place}{said(code)}: {error}")


def said(code: int) -> str:
    """Librdkafka's words for a code."""
    words: str = KafkaError(code).str()
    return words


def commit_failed(error: HoldfastError) -> KafkaException:
    """The error of a commit that waited for its answer."""
    found = kafka_error(error)
    return KafkaException(KafkaError(found.code(), f"Commit failed: {found.str()}", found.fatal()))

"""Errors of holdfast in kafka-python's classes.

**Rules.** A commit that the group refused, or that names what this member may not commit, raises
``CommitFailedError``. A missing answer is an error of the connection, and can be retried.

References: Kafka's ``CommitFailedException``, ``RetriableCommitFailedException``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import kafka.errors as kafka_errors

from holdfast.core.machine.codes import COMMIT_FAILED
from holdfast.errors import LocalProtocolError, RemoteProtocolError
from holdfast.members.clients import client_errors

theirs = partial(client_errors.translated, kafka_errors)
"""Convert an error of holdfast to kafka-python's class."""


def is_passing(error: Any) -> bool:
    """Return whether a retry may succeed after one of kafka-python's errors.

    An error without a class of its own means that no broker has answered.
    """
    return type(error) is kafka_errors.KafkaError or isinstance(error, kafka_errors.RetriableError)


def of_commit(error: BaseException) -> Any:
    """Convert an error of a commit to kafka-python's."""
    if isinstance(error, LocalProtocolError):  # what this generation does not own
        return kafka_errors.CommitFailedError(str(error))
    found = theirs(error)
    if isinstance(error, RemoteProtocolError) and error.error_code in COMMIT_FAILED:
        return kafka_errors.CommitFailedError(found)
    if type(found) is kafka_errors.KafkaError:
        return kafka_errors.KafkaConnectionError(str(error))
    return found


def of_commit_in_time(error: BaseException) -> Any:
    """Convert the error of a commit that was retried until its time limit."""
    found = of_commit(error)
    if not is_passing(found):
        return found
    late = kafka_errors.KafkaTimeoutError(str(error))
    late.__cause__ = found
    return late


def raise_of_callback(error: BaseException | None) -> None:
    """Raise the error of a rebalance callback as kafka-python does; Ctrl-C stays what it is."""
    if isinstance(error, Exception):
        raise kafka_errors.KafkaError("User rebalance callback throws an error") from error
    if error is not None:
        raise error

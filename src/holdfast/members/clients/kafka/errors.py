"""Errors of ours in kafka-python's classes.

**Rules.** A commit that the group refused, or that names what this member may not commit, raises
``CommitFailedError``. Nobody's answer is an error of the connection, which another try may mend.

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
"""An error of ours as kafka-python's class."""


def is_passing(error: Any) -> bool:
    """Whether another try may succeed, of kafka-python's error for one of ours.

    What has no class of its own there is that nobody answered.
    """
    return type(error) is kafka_errors.KafkaError or isinstance(error, kafka_errors.RetriableError)


def of_commit(error: BaseException) -> Any:
    """kafka-python's error for a commit that failed with one of ours."""
    if isinstance(error, LocalProtocolError):  # what this generation does not own
        return kafka_errors.CommitFailedError(str(error))
    found = theirs(error)
    if isinstance(error, RemoteProtocolError) and error.error_code in COMMIT_FAILED:
        return kafka_errors.CommitFailedError(found)
    if type(found) is kafka_errors.KafkaError:
        return kafka_errors.KafkaConnectionError(str(error))
    return found


def of_commit_in_time(error: BaseException) -> Any:
    """The same for a commit that was tried until its time was over."""
    found = of_commit(error)
    if not is_passing(found):
        return found
    late = kafka_errors.KafkaTimeoutError(str(error))
    late.__cause__ = found
    return late


def raise_of_callback(error: BaseException | None) -> None:
    """Raise what a callback of a rebalance raised, as kafka-python; Ctrl-C stays what it is."""
    if isinstance(error, Exception):
        raise kafka_errors.KafkaError("User rebalance callback throws an error") from error
    if error is not None:
        raise error

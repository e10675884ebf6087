"""Errors of a member in aiokafka's classes."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import aiokafka.errors as kafka_errors

from holdfast.core.machine.codes import COMMIT_FAILED, MEMBER_OVER
from holdfast.errors import HoldfastError, LocalProtocolError, RemoteProtocolError
from holdfast.members.clients import client_errors

theirs = partial(client_errors.translated, kafka_errors)
"""Convert an error of holdfast to aiokafka's class with the same code."""


def commit_failed(error: HoldfastError) -> Any:
    """Return the error of ``commit``: ``CommitFailedError`` for a refusal."""
    if isinstance(error, RemoteProtocolError):
        is_refused = error.error_code in COMMIT_FAILED | MEMBER_OVER
        return kafka_errors.CommitFailedError(str(error)) if is_refused else theirs(error)
    if isinstance(error, LocalProtocolError):
        return kafka_errors.CommitFailedError(str(error))
    return kafka_errors.RequestTimedOutError(str(error))


def no_committed_offsets(error: HoldfastError) -> Any:
    """Return the error of a request for committed offsets; without an answer aiokafka retries."""
    found = theirs(error)
    if type(found) is kafka_errors.KafkaError:
        return kafka_errors.KafkaConnectionError(str(error))
    return copy.copy(found)

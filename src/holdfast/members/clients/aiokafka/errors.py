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
"""The class with the same code."""


def commit_failed(error: HoldfastError) -> Any:
    """What ``commit`` raises: ``CommitFailedError`` where the group or the member refused it."""
    if isinstance(error, RemoteProtocolError):
        is_refused = error.error_code in COMMIT_FAILED | MEMBER_OVER
        return kafka_errors.CommitFailedError(str(error)) if is_refused else theirs(error)
    if isinstance(error, LocalProtocolError):
        return kafka_errors.CommitFailedError(str(error))
    return kafka_errors.RequestTimedOutError(str(error))


def no_committed_offsets(error: HoldfastError) -> Any:
    """What a question for committed offsets raises; where nobody answered, aiokafka asks again."""
    found = theirs(error)
    if type(found) is kafka_errors.KafkaError:
        return kafka_errors.KafkaConnectionError(str(error))
    return copy.copy(found)

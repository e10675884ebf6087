"""Errors of ours in the classes of aiokafka or kafka-python.

**Rules.** ``classes`` is the client's module of errors: ``aiokafka.errors`` or ``kafka.errors``,
which name their classes alike.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast.errors import RemoteProtocolError, SourceError


def translated(classes: Any, error: BaseException) -> Any:
    """An error of ours as the client's class with the same code."""
    if isinstance(error, classes.KafkaError):
        return error
    if isinstance(error, RemoteProtocolError) and error.error_code > 0:
        return classes.for_code(error.error_code)(str(error))
    if isinstance(error, SourceError):
        return classes.KafkaConnectionError(str(error))
    return classes.KafkaError(str(error))


def not_ours(classes: Any, refused: Collection[Any]) -> Exception:
    """The client's error for a commit of these partitions, which are not the member's."""
    names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(refused)[:5])
    error: Exception = classes.CommitFailedError(
        f"the commit was refused: {names} is not this member's, or was not when these records were "
        "handed out; they are read again from the committed offset, here or elsewhere"
    )
    return error

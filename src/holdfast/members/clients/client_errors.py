"""Errors of holdfast in the classes of aiokafka or kafka-python.

**Rules.** ``classes`` is the client's module of errors: ``aiokafka.errors`` or ``kafka.errors``,
which use the same class names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast.errors import RemoteProtocolError, SourceError


def translated(classes: Any, error: BaseException) -> Any:
    """Convert an error of holdfast to the client's class with the same code."""
    if isinstance(error, classes.KafkaError):
        return error
    if isinstance(error, RemoteProtocolError) and error.error_code > 0:
        return classes.for_code(error.error_code)(str(error))
    if isinstance(error, SourceError):
        return classes.KafkaConnectionError(str(error))
    return classes.KafkaError(str(error))


def not_ours(classes: Any, refused: Collection[Any]) -> Exception:
    """Return the client's error for a commit of partitions that are not the member's."""
    names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(refused)[:5])
    error: Exception = classes.CommitFailedError(
        f"the commit was refused: {names} is not this member's, or was not when the records were "
        "delivered; they are read again from the committed offset, here or elsewhere"
    )
    return error

"""Errors of holdfast in the classes of aiokafka and kafka-python, which have the same names.

``classes`` is ``aiokafka.errors`` or ``kafka.errors``.
"""

from __future__ import annotations

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


def of_connection(classes: Any, error: BaseException) -> Any:
    """Convert an error; one without a class of its own means that no broker has answered."""
    found = translated(classes, error)
    if type(found) is classes.KafkaError:
        return classes.KafkaConnectionError(str(error))
    return found

"""Requests about groups that kafka-python lacks, made from descriptions of their fields.

The ``*.json`` files in this folder have the names, types and versions of the fields, as Kafka 4.3
has them; kafka-python makes a class from a description, as it does for its own.

References: KIP-848 (consumer groups), KIP-932 and KIP-1226 (share groups), KIP-1071 (streams).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

from holdfast.cluster.versions import GROUP_REQUESTS

_make_class: Final[Any] = type(ApiMessage)


def _classes(name: str) -> tuple[Any, Any]:
    """Make a request and its answer; kafka-python finds the answer's class by the number."""
    request, answer = (
        _make_class(f"{name}{end}", (ApiMessage,), {}, load_json=__package__)
        for end in ("Request", "Response")
    )
    return request, answer


_CLASSES: Final[Mapping[str, tuple[Any, Any]]] = {name: _classes(name) for name in GROUP_REQUESTS}


def request_class(name: str) -> Any:
    """Return the class of a request of :data:`~holdfast.cluster.versions.GROUP_REQUESTS`."""
    return _CLASSES[name][0]

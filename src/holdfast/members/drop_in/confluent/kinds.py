"""confluent-kafka's deserializing consumer over :class:`ConfluentConsumer`, and a patch.

**Rules.** What confluent-kafka's classes do stays theirs; only the consumer below them is ours.

**Strategy.** The deserializing class finds our consumer next in its method resolution order.
:func:`install` is for frameworks that import confluent-kafka's classes and take none from outside.

References: confluent-kafka-python, ``DeserializingConsumer``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import Any

import confluent_kafka

from holdfast.members.drop_in.confluent.consumer import ConfluentConsumer
from holdfast.members.drop_in.confluent.routing import INSTALLED


# The two differ in the return type of __exit__ alone: the original says bool or None.
class ConfluentDeserializingConsumer(  # type: ignore[misc]
    confluent_kafka.DeserializingConsumer, ConfluentConsumer
):
    """A drop-in for ``confluent_kafka.DeserializingConsumer``."""

    # As the original's, which is generic since 2.16: ``DeserializingConsumer[str, dict]``.
    __class_getitem__: Any = classmethod(GenericAlias)


_IN_PLACE_OF: dict[type, type] = {
    confluent_kafka.Consumer: ConfluentConsumer,
    confluent_kafka.DeserializingConsumer: ConfluentDeserializingConsumer,
}


def install(config: Mapping[str, Any] | None = None) -> Callable[[], None]:
    """Have everybody who asks confluent-kafka for a consumer get ours.

    It replaces the classes in ``confluent_kafka``, in ``confluent_kafka.aio``, and in every loaded
    module that has one of them as a global. Classes that were derived from the originals before,
    and consumers that exist, stay as they are: call it first.

    Parameters
    ----------
    config : mapping of str to object, optional
        Keys for every consumer of ours that is made from now on, over its own configuration. With
        ``holdfast.policy`` the ``partition.assignment.strategy`` of a framework is dropped, unless
        it is given here as well.

    Returns
    -------
    callable
        Puts the originals and the keys before back.

    Warns
    -----
    RuntimeWarning
        For each class that was derived from an original before.

    Examples
    --------
    ::

        import holdfast.confluent

        holdfast.confluent.install({"holdfast.policy": "deferred"})
    """
    ours = dict(_IN_PLACE_OF)
    try:
        from holdfast.members.drop_in.confluent.asynchronous import (
            ConfluentAIOConsumer,
            OriginalAIOConsumer,
        )
    except ImportError:  # confluent-kafka has it since 2.13
        pass
    else:
        ours[OriginalAIOConsumer] = ConfluentAIOConsumer
    try:
        from holdfast.members.drop_in.confluent.asynchronous import (
            ConfluentAsyncDeserializingConsumer,
            OriginalDeserializing,
        )
    except ImportError:  # since 2.16
        pass
    else:
        ours[OriginalDeserializing] = ConfluentAsyncDeserializingConsumer
    return INSTALLED.install(ours, config or {}, leave=_needs_originals)


def _needs_originals(module: str) -> bool:
    return module.startswith("confluent_kafka.") and module != "confluent_kafka.aio"

"""confluent-kafka's consumers over a member of holdfast: change one import.

``from holdfast.confluent import Consumer`` replaces ``from confluent_kafka import Consumer``;
``docs/clients.md`` has the keys and the intended differences. A framework that imports
confluent-kafka's classes itself gets holdfast's after :func:`install`; ``docs/frameworks.md`` has
the lines for each. Every other public name of confluent-kafka, such as ``Producer``, is the
original's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from holdfast.extras import needed

with needed("members"):
    import confluent_kafka
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

from holdfast.members.clients.confluent.config import INSTALLED
from holdfast.members.clients.confluent.consumer import ConfluentConsumer as Consumer
from holdfast.members.clients.drop_in import module_attribute

if TYPE_CHECKING:
    from holdfast.members.clients.confluent.async_consumer import (
        ConfluentAIOConsumer as AIOConsumer,
    )
    from holdfast.members.clients.confluent.async_consumer import (
        ConfluentAsyncDeserializingConsumer as AsyncDeserializingConsumer,
    )

__all__ = [
    "AIOConsumer",
    "AsyncDeserializingConsumer",
    "Consumer",
    "DeserializingConsumer",
    "KafkaError",
    "KafkaException",
    "TopicPartition",
    "install",
]

# confluent-kafka has the first one since 2.13, the other one since 2.16.
_LATE = {
    name: f"holdfast.members.clients.confluent.async_consumer:Confluent{name}"
    for name in ("AIOConsumer", "AsyncDeserializingConsumer")
}


# The two differ in the return type of __exit__ alone: the original says bool or None.
class DeserializingConsumer(  # type: ignore[misc]
    confluent_kafka.DeserializingConsumer, Consumer
):
    """A drop-in for ``confluent_kafka.DeserializingConsumer``.

    Its configuration is that of :class:`holdfast.confluent.Consumer`, with ``key.deserializer`` and
    ``value.deserializer``.
    """

    # As the original's, which is generic since 2.16: ``DeserializingConsumer[str, dict]``.
    __class_getitem__: Any = classmethod(GenericAlias)


_REPLACEMENTS: dict[type, type] = {
    confluent_kafka.Consumer: Consumer,
    confluent_kafka.DeserializingConsumer: DeserializingConsumer,
}


def install(config: Mapping[str, Any] | None = None) -> Callable[[], None]:
    """Replace confluent-kafka's consumers by holdfast's in all loaded modules.

    It replaces the classes in ``confluent_kafka``, in ``confluent_kafka.aio``, and in every loaded
    module that has one of them as a global. Classes already derived from the originals, and
    existing consumers, stay as they are: call it first.

    Parameters
    ----------
    config : mapping of str to object, optional
        Keys for every later consumer of holdfast; they override its own configuration. With
        ``holdfast.policy`` the ``partition.assignment.strategy`` of a framework is dropped, unless
        it is given here as well.

    Returns
    -------
    callable
        Restores the originals and the previous keys.

    Warns
    -----
    RuntimeWarning
        For each class already derived from an original.

    Examples
    --------
    ::

        import holdfast.confluent

        holdfast.confluent.install({"holdfast.policy": "deferred"})
    """
    ours = dict(_REPLACEMENTS)
    with suppress(ImportError):  # confluent-kafka has it since 2.13
        from holdfast.members.clients.confluent.async_consumer import REPLACEMENTS

        ours |= REPLACEMENTS
    return INSTALLED.install(ours, config or {}, keeps_original=_needs_originals)


def _needs_originals(module: str) -> bool:
    return module.startswith("confluent_kafka.") and module != "confluent_kafka.aio"


def __getattr__(name: str) -> Any:
    return module_attribute(__name__, name, _LATE, confluent_kafka)

"""Converts the keywords of kafka-python's consumer to a member's configuration.

**Rules.** Every keyword of kafka-python keeps its meaning. Keywords of holdfast begin with
``holdfast_`` and are the ``holdfast.*`` keys with underscores; ``scheduled_rebalance_max_delay_ms``
is the only other one. ``partition_assignment_strategy`` takes names of the registry as well as
kafka-python's classes, which mean the assignors of the same name. A value that cannot be honoured
is refused by ``KafkaConfigurationError``, as kafka-python refuses its own keywords.

**Strategy.** kafka-python's defaults, range and roundrobin, stay the defaults, so members of both
kinds work in one group. The member's connections are kafka-python's too, and take every keyword of
security and of the network unchanged.

References: KIP-726; KIP-429.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaConfigurationError

from holdfast.errors import ConfigError
from holdfast.members.clients import drop_in
from holdfast.members.config.settings import Settings

_KEEP = {
    RangePartitionAssignor: "range",
    RoundRobinPartitionAssignor: "roundrobin",
    StickyPartitionAssignor: "sticky",
    CooperativeStickyAssignor: "cooperative-sticky",
}
_NETWORK = ("security_protocol", "proxy_url", "socks5_proxy", "selector", "client_dns_lookup")


def settings_of(
    options: Mapping[str, Any], ours: Mapping[str, Any], *, strategies: Iterable[Any] | None
) -> Settings:
    """Return the member's settings; ``strategies`` is None if only a policy is named.

    Raises
    ------
    KafkaConfigurationError
        For a keyword that is unknown, out of range, or in conflict with another.
    """
    try:
        return drop_in.settings_of(
            options, ours, strategies, same=drop_in.SAME, assignor_of=_assignor
        )
    except ConfigError as error:
        raise KafkaConfigurationError(str(error)) from error


def network_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords of security and of the network, for the member's own connections."""
    return {
        word: value
        for word, value in options.items()
        if word in _NETWORK or word.startswith(("ssl_", "sasl_"))
    }


def _assignor(given: Any) -> Any:
    """Return a name, an assignor of holdfast, or one written for kafka-python."""
    kind = given if isinstance(given, type) else type(given)
    if kind in _KEEP:
        return _KEEP[kind]
    protocol = getattr(given, "protocol", None)  # one of holdfast.members.clients.kafka.assignors
    if protocol is not None:
        return protocol
    if issubclass(kind, AbstractPartitionAssignor):
        raise KafkaConfigurationError(
            f"partition_assignment_strategy: {kind.__name__} is written for kafka-python's own "
            "coordinator; name an assignor of the registry, or give one with the parts of "
            "holdfast.core.machine.leader.assignor_protocol.Assignor"
        )
    return given

"""Converts the keywords of aiokafka's consumer to a member's configuration.

**Rules.** Every keyword of aiokafka keeps its meaning. Keywords of holdfast begin with
``holdfast_`` and are the ``holdfast.*`` keys with underscores; ``scheduled_rebalance_max_delay_ms``
is the only other one. ``partition_assignment_strategy`` takes names of the registry as well as
aiokafka's classes, which mean the assignors of the same name. A value that cannot be honoured is
refused by ``ValueError``, the class that aiokafka raises for its own keywords.

**Strategy.** aiokafka's roundrobin is the default, as in aiokafka, so members of both kinds work in
one group and a rolling deployment needs no downtime.

References: KIP-726; KIP-429.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any

from aiokafka.abc import AbstractTokenProvider
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from holdfast.cluster import kerberos
from holdfast.cluster.tokens import Token, token_of
from holdfast.errors import ConfigError
from holdfast.members.clients import drop_in
from holdfast.members.config.settings import Settings

_MEMBER_KEYS = {
    **drop_in.MEMBER_KEYS,
    "auto_commit_interval_ms": "auto.commit.interval.ms",
    "security_protocol": "security.protocol",
    "ssl_context": "holdfast.ssl.context",
}
_ASSIGNOR_NAMES = {
    RangePartitionAssignor: "range",
    RoundRobinPartitionAssignor: "roundrobin",
}
_REBALANCE = "rebalance_timeout_ms"
_DRAIN = "holdfast.drain.timeout.ms"


def settings_of(
    options: Mapping[str, Any],
    ours: Mapping[str, Any],
    *,
    written: Container[str],
    loop: asyncio.AbstractEventLoop,
    cluster: Any,
) -> Settings:
    """Return the member's settings; the program has ``written`` some of the ``options``.

    A token provider runs on ``loop``, and assignors written for aiokafka get its ``cluster``.

    Raises
    ------
    ValueError
        For a keyword that is unknown, out of range, or in conflict with another.
    """
    # aiokafka itself never waits for records in flight. So a revocation waits no longer than
    # the rebalance time-out in the member's JoinGroup.
    waits = "session_timeout_ms" if options[_REBALANCE] is None else _REBALANCE
    try:
        settings = drop_in.settings_of(
            options,
            ours,
            written=written,
            member_keys=_MEMBER_KEYS,
            assignor_of=lambda given: _assignor(given, cluster),
            more={_DRAIN: options[waits], **_login(options, loop)},
        )
    except ConfigError as error:
        raise ValueError(str(error)) from error
    if _DRAIN.replace(".", "_") in ours:
        return settings
    return replace(settings, user_names={**settings.user_names, _DRAIN: waits})


def _login(options: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    if not options["security_protocol"].startswith("SASL"):
        return {}
    mechanism = options["sasl_mechanism"]
    if mechanism == kerberos.MECHANISM:
        return _kerberos(options)
    if mechanism != "OAUTHBEARER":
        return {
            "sasl.mechanism": mechanism,
            "sasl.username": options["sasl_plain_username"],
            "sasl.password": options["sasl_plain_password"],
        }
    provider, timeout_s = options["sasl_oauth_token_provider"], options["request_timeout_ms"] / 1000
    if isinstance(provider, AiokafkaTokens):
        return {"sasl.mechanism": mechanism, "holdfast.oauth.token.provider": provider.provide}

    def token() -> Token:
        value = asyncio.run_coroutine_threadsafe(provider.token(), loop).result(timeout_s)
        return replace(token_of(str(value)), extensions=dict(provider.extensions() or {}))

    return {"sasl.mechanism": mechanism, "holdfast.oauth.token.provider": token}


def _kerberos(options: Mapping[str, Any]) -> dict[str, Any]:
    if options["sasl_kerberos_domain_name"] is not None:
        raise ConfigError(
            "sasl_kerberos_domain_name: the member's connections log in to the broker's host name"
        )
    service = options["sasl_kerberos_service_name"]
    return {
        "sasl.mechanism": kerberos.MECHANISM,
        kerberos.SERVICE: str(service),
        kerberos.KEYTAB: getattr(service, "keytab", None),
        kerberos.PRINCIPAL: getattr(service, "principal", None),
    }


class AiokafkaTokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """The token provider of aiokafka for one of :mod:`holdfast.cluster.tokens`."""

    def __init__(self, provide: Callable[[], Any]):
        self.provide = provide
        self._extensions: Mapping[str, str] = {}

    async def token(self) -> str:
        """Return a token, fetched on another thread."""
        token = token_of(await asyncio.get_running_loop().run_in_executor(None, self.provide))
        self._extensions = token.extensions
        return token.value

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions of the last token."""
        return dict(self._extensions)


def _assignor(given: Any, cluster: Any) -> Any:
    """Return a name, an assignor of holdfast, or one written for aiokafka."""
    kind = given if isinstance(given, type) else type(given)
    if kind in _ASSIGNOR_NAMES:
        return _ASSIGNOR_NAMES[kind]
    if not issubclass(kind, AbstractPartitionAssignor):
        return given
    # aiokafka's own, and the leader's code, are loaded on first use, not with the module.
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    if kind is StickyPartitionAssignor:
        return "sticky"
    from holdfast.members.clients.aiokafka.assignors import AiokafkaAssignor, ForeignAssignor

    return (
        given.protocol if isinstance(given, AiokafkaAssignor) else ForeignAssignor(given, cluster)
    )

"""The settings of a member.

**Rules.** Names are Kafka's, with the unit at the end. A value out of range is a ``ConfigError``
that names the range.

References: Kafka's consumer configuration; KIP-62, KIP-345.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.model.limits import INT32_MAX
from holdfast.errors import ConfigError

AGAIN_PAUSE_MS = 50
"""Pause before the first of the rounds that are announced in a row, in ms."""

LAST_COMMIT_MS = 5_000
"""Time for the last commit of a member whose application has stopped polling, in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Options of one member; times in ms."""

    protocol_type: str = "consumer"
    instance_id: str | None = None
    rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    # How long the coordinator waits for this member in a round. It is longer than a revocation may
    # take, with the heartbeat before it that announces the round, and the last commit.
    rebalance_timeout_ms: int = 300_000
    # Longest time between two ``Polled`` before the member leaves; 0 never. Before it leaves, it
    # commits what is processed.
    max_poll_interval_ms: int = 300_000
    drain_timeout_ms: int = 300_000  # how long a revocation waits for the application
    # The user's name of the setting behind ``drain_timeout_ms``; for the log.
    drain_setting: str = "drain_timeout_ms"
    # The user's name of the setting behind ``max_poll_interval_ms``.
    poll_setting: str = "max_poll_interval_ms"
    # How long the commit of a late revocation, or of a member that leaves because the application
    # does not poll, may take.
    last_commit_ms: int = LAST_COMMIT_MS
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    # How soon a member joins an announced round if it revokes nothing; doubled for each further one
    # in a row, up to the heartbeat interval.
    again_pause_ms: int = AGAIN_PAUSE_MS
    # How long rounds may be refused with a code that is neither expected nor fatal before the
    # member fails with it; 0: it keeps trying.
    error_timeout_ms: int = 0
    commit_retries: int = 5
    plan_retries: int = 3
    auto_commit: bool = True  # whether a revocation commits; else the callback is expected to
    # Protocols under which a member that leaves for good says so in a last round, so that a
    # deferring leader need not wait for it.
    announce_leave: frozenset[str] = frozenset()
    # The member's location, from :func:`holdfast.core.machine.leader.locations.digest_of`; empty
    # for none.
    location: bytes = b""

    def __post_init__(self) -> None:
        positive = {
            "session_timeout_ms": self.session_timeout_ms,
            "heartbeat_interval_ms": self.heartbeat_interval_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "drain_timeout_ms": self.drain_timeout_ms,
            "last_commit_ms": self.last_commit_ms,
            "request_timeout_ms": self.request_timeout_ms,
            "retry_backoff_ms": self.retry_backoff_ms,
            "retry_backoff_max_ms": self.retry_backoff_max_ms,
            "again_pause_ms": self.again_pause_ms,
        }
        for name, value in positive.items():
            if not 0 < value <= INT32_MAX:
                raise ConfigError(f"{name}: found {value}, expected 1 to {INT32_MAX}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms: found {self.heartbeat_interval_ms}, expected less than "
                f"session_timeout_ms ({self.session_timeout_ms})"
            )
        counted = (self.commit_retries, self.plan_retries, self.error_timeout_ms)
        if self.max_poll_interval_ms < 0 or min(counted) < 0:
            raise ConfigError(
                "max_poll_interval_ms, error_timeout_ms and retry counts are not negative"
            )

"""Kafka's error codes in the answers of a group coordinator, and what each one means for a member.

**Rules.** Names and numbers are Kafka's. A failed connection has no code: the caller reports it as
the event ``RequestFailed``.

References: Kafka protocol guide, "Error codes"; KIP-345 (82), KIP-394 (79), KIP-559 (23).
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """Error codes of JoinGroup, SyncGroup, Heartbeat, LeaveGroup and OffsetCommit."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82


COORDINATOR_GONE = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""The coordinator has moved or is away: find it again, keep every claim."""

RETRIABLE = frozenset(
    {*COORDINATOR_GONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS}
)
"""Try again after a pause; nothing is reset (KAFKA-9801, KAFKA-13214)."""

MEMBERSHIP_LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The member loses all partitions and joins again without claims (KAFKA-12983)."""

EXPLANATIONS: dict[int, str] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the group's protocol type or assignors have nothing in common with this member's; "
        "configure one assignor that every member offers"
    ),
    ErrorCode.INVALID_GROUP_ID: "the broker refuses this group.id; set a non-empty one",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms is outside the broker's group.min/max.session.timeout.ms"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "not authorised to read this group; grant READ on the group to this principal"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "not authorised to read a subscribed topic; grant READ on it to this principal"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group already has group.max.size members",
    ErrorCode.FENCED_INSTANCE_ID: (
        "another process joined with the same group.instance.id and took this member's place; "
        "give every process its own id"
    ),
}
"""Advice for an error that ends a member."""


def describe(code: int) -> str:
    """One line for people: the code's Kafka name and what to do."""
    name = next((known.name for known in ErrorCode if known == code), f"error code {code}")
    advice = EXPLANATIONS.get(code)
    return f"{name}: {advice}" if advice else name

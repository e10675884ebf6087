"""Kafka's error codes in the answers to a group member, and their meaning for the member.

**Rules.**

- Names and numbers are those of Kafka's ``Errors``. A failed connection has no code: the caller
  reports it as the event ``RequestFailed``.
- Only a code of :data:`FATAL` ends a member. Each of them names where Kafka's own client
  or coordinator treats the code as final. Every other code is temporary, also one that is not in
  this file: the member tries again after a pause, and logs that (:data:`EXPECTED` names the
  exceptions).
- The codes to try again are the same for every request of a member: JoinGroup, SyncGroup,
  Heartbeat, OffsetCommit, FindCoordinator, OffsetFetch, Metadata, ListOffsets. LeaveGroup is not
  repeated.

References: Kafka protocol guide, "Error codes"; Kafka's ``Errors``; KIP-345 (82), KIP-394 (79),
KIP-447 (88), KIP-559 (23).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from holdfast.core.command_lines import CLIENT, holdfast_line


class ErrorCode(IntEnum):
    """The error codes that a member meets, and all that Kafka calls retriable."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    CONCURRENT_TRANSACTIONS = 51
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    SHARE_SESSION_LIMIT_REACHED = 133


COORDINATOR_GONE = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""The coordinator has moved or is unavailable: find it again, keep every claim."""

EXPECTED = frozenset(
    {*COORDINATOR_GONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS}
)
"""Usual in every group: try again after a pause, without a warning (KAFKA-9801, KAFKA-13214)."""

RETRIABLE = frozenset(
    {
        *EXPECTED,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""Kafka's codes with a ``RetriableException``, and REBALANCE_IN_PROGRESS."""

MEMBERSHIP_LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The member loses all partitions and joins again without claims (KAFKA-12983)."""

COMMIT_FAILED = frozenset({*MEMBERSHIP_LOST, ErrorCode.REBALANCE_IN_PROGRESS})
"""Answers to a commit that Kafka's consumer raises as ``CommitFailedException``."""

MEMBER_OVER = frozenset({*MEMBERSHIP_LOST, ErrorCode.FENCED_INSTANCE_ID})
"""Answers to a commit of a member, or of a generation of it, that has ended.

Nothing of that generation can be committed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FatalCode:
    """The reason why a code ends a member."""

    advice: str  # what to do about it
    source: str  # class and method of Kafka that treat the code as final


_JOIN = "AbstractCoordinator.JoinGroupResponseHandler.handle"
_SYNC = "AbstractCoordinator.SyncGroupResponseHandler.handle"
_FIND = "AbstractCoordinator.FindCoordinatorResponseHandler.onSuccess"
_BEAT = "AbstractCoordinator.HeartbeatResponseHandler.handle"
_UPGRADE = holdfast_line(
    "upgrade-check",
    *("--client", CLIENT, "--from", "THEIRS", "--to", "YOURS", "--plan"),
)
_COMMIT = "ConsumerCoordinator.OffsetCommitResponseHandler.handle"
_METADATA = "Metadata.checkUnauthorizedTopics"
_LOGIN = FatalCode(
    advice="the broker refused the login; check sasl.mechanism and the credentials",
    source="ConsumerNetworkClient.maybeThrowAuthFailure",
)

FATAL: Mapping[int, FatalCode] = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: FatalCode(
        advice=(
            "a subscribed name cannot be that of a topic; a name has 1 to 249 of the characters "
            "a to z, A to Z, 0 to 9, '.', '_' and '-'"
        ),
        source="Metadata.checkInvalidTopics",
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: FatalCode(
        advice=(
            "the group's protocol type or assignors have nothing in common with this member's; "
            "configure one assignor that every member offers, or go over to another one as "
            f"`{_UPGRADE}` says"
        ),
        source=f"{_JOIN}, {_SYNC}",
    ),
    ErrorCode.INVALID_GROUP_ID: FatalCode(
        advice="the broker refuses this group.id; set a non-empty one", source=_JOIN
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: FatalCode(
        advice="session.timeout.ms is outside the broker's group.min/max.session.timeout.ms",
        source=_JOIN,
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: FatalCode(
        advice="not authorised to read a subscribed topic; grant READ on it to this principal",
        source=f"{_COMMIT}, {_METADATA}",
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: FatalCode(
        advice="not authorised to read this group; grant READ on the group to this principal",
        source=f"{_FIND}, {_JOIN}, {_SYNC}, {_BEAT}, {_COMMIT}",
    ),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: _LOGIN,
    ErrorCode.ILLEGAL_SASL_STATE: _LOGIN,
    ErrorCode.UNSUPPORTED_VERSION: FatalCode(
        advice=(
            "the brokers are too old for this request, or keep an old "
            "inter.broker.protocol.version; a group.instance.id needs Kafka 2.3"
        ),
        source=_JOIN,
    ),
    ErrorCode.INVALID_REQUEST: FatalCode(
        advice="the broker cannot use this request; please report it with the broker's log",
        source=f"{_JOIN} (unexpected errors)",
    ),
    ErrorCode.SASL_AUTHENTICATION_FAILED: _LOGIN,
    ErrorCode.GROUP_MAX_SIZE_REACHED: FatalCode(
        advice="the group already has group.max.size members",
        source=f"{_JOIN}; GroupMetadataManager.acceptJoiningMember",
    ),
    ErrorCode.FENCED_INSTANCE_ID: FatalCode(
        advice=(
            "another process joined with the same group.instance.id and took this member's place; "
            "give every process its own id"
        ),
        source=f"{_JOIN}, {_SYNC}, {_BEAT}, {_COMMIT}",
    ),
}
"""The codes that end a member: no second attempt can succeed without a change by a person."""

HINTS: Mapping[int, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: (
        "the broker failed and does not say how; the log of the group's coordinator does"
    ),
}
"""Advice for other codes."""


def commits_again(code: int, *, is_overtaken: bool) -> bool:
    """Return whether a commit that was answered with a code is sent again.

    Parameters
    ----------
    code : int
        Kafka's error code, -1 where no broker answered.
    is_overtaken : bool
        Whether the member has a newer generation than the commit, or is about to get one: then the
        commit was refused for its number alone.

    References: KAFKA-14024; Kafka's ConsumerCoordinator, ``OffsetCommitResponseHandler.handle``.
    """
    if code == ErrorCode.ILLEGAL_GENERATION:
        return is_overtaken
    return code in RETRIABLE or code == ErrorCode.UNKNOWN_SERVER_ERROR


def describe(code: int) -> str:
    """Return one line for people: the code's Kafka name and advice."""
    name = next((known.name for known in ErrorCode if known == code), f"error code {code}")
    fatal = FATAL.get(code)
    advice = HINTS.get(code) if fatal is None else fatal.advice
    return f"{name}: {advice}" if advice else name

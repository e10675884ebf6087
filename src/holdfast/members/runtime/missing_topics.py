"""Warnings about topics that a leader leaves out of its rounds, with their subscribers.

**Rules.** A topic that is left out affects only its own subscribers. A topic is logged once, and
again when the reason or the members change. A topic that does not exist, and that the leader
subscribes to, is left to the leader's metadata watch, which names the nearest existing topic. A
round logs at most :data:`MAX_REPORTED` lines, so that one member with ten thousand names does not
fill a log.

References: KIP-429, "Consumer leader"; Kafka's ConsumerCoordinator, ``onLeaderElected``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.machine.codes import ErrorCode, describe
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.subscriptions import subscribers_of
from holdfast.members.runtime.member_log import MemberLog

MAX_REPORTED = 10
_MOST_NAMES = 3
_LONGEST = 249  # characters of a topic's name that Kafka allows

_REASONS: Mapping[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "this leader may not describe it (TOPIC_AUTHORIZATION_FAILED); grant DESCRIBE on the topic "
        "to the principal of every member, since each of them may lead"
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist (UNKNOWN_TOPIC_OR_PARTITION)",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "no topic can have this name (INVALID_TOPIC_EXCEPTION)",
}


class MissingTopics:
    """Logs which topics have no owner in a round, and why."""

    def __init__(self, log: MemberLog):
        self._log = log
        self._reported: dict[str, tuple[int, tuple[str, ...]]] = {}

    def warn(
        self, refused: Mapping[str, int], members: Sequence[JoinedMember], leader: str
    ) -> None:
        """Log what has changed about topics that are left out.

        Parameters
        ----------
        refused : mapping of str to int
            Kafka's error code of every topic that is left out of this round.
        members : sequence of JoinedMember
            The members of the round.
        leader : str
            The member id of this leader.
        """
        if not refused:
            self._reported = {}
            return
        asked_by = subscribers_of(members, refused)
        now = {
            topic: (refused[topic], asked_by.get(topic, ()))
            for topic in sorted(refused)
            if asked_by.get(topic)  # named by a message that cannot be read: no member needs it
            and not (
                refused[topic] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                and leader in asked_by.get(topic, ())
            )
        }
        news = [topic for topic in now if self._reported.get(topic) != now[topic]]
        self._reported = now
        for topic in news[:MAX_REPORTED]:
            code, member_ids = now[topic]
            self._log.warning(
                "topic %s gets no owner in this round: %s; subscribed by %s",
                _shown(topic),
                _REASONS.get(code) or describe(code),
                _listed(member_ids),
            )
        if len(news) > MAX_REPORTED:
            self._log.warning("and %d more topics get no owner", len(news) - MAX_REPORTED)


def _shown(name: str) -> str:
    """Return another member's name, quoted and cut to the length limit of topic names."""
    return repr(name) if len(name) <= _LONGEST else f"{name[:_LONGEST]!r}..."


def _listed(member_ids: tuple[str, ...]) -> str:
    rest = len(member_ids) - _MOST_NAMES
    names = ", ".join(map(_shown, member_ids[:_MOST_NAMES]))
    return f"{names} and {rest} more members" if rest > 0 else names

"""The arguments of the calls of ``holdfast.Consumer``: checked, and converted.

**Rules.** Every call checks its arguments before it has any effect, and refuses them with a
:class:`LocalProtocolError` that has the found and the expected value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from math import isnan
from typing import NamedTuple, Protocol

from holdfast.core.machine.shared_values import Offsets, OffsetToCommit
from holdfast.errors import LocalProtocolError

LARGEST_OFFSET = 2**63 - 1  # OffsetCommit has eight bytes for it
_CALLBACKS = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")


def checked_pattern(topics: object) -> Callable[[str], bool] | None:
    """Return the predicate of a pattern; None if topics are named."""
    if isinstance(topics, str):
        if not topics.startswith("^"):
            raise LocalProtocolError(f"subscribe() takes a list of topics: [{topics!r}]")
        topics = re.compile(topics)
    if isinstance(topics, re.Pattern):
        matches = topics.match
        return lambda name: matches(name) is not None
    return None


def checked_names(topics: Collection[str] | str | re.Pattern[str]) -> tuple[str, ...]:
    """Return the named topics, sorted."""
    if not isinstance(topics, Collection):
        raise LocalProtocolError(f"subscribe() takes a list of topics, found {topics!r}")
    for name in topics:
        if not isinstance(name, str):
            raise LocalProtocolError(f"a topic's name is a str, found {name!r}")
    names = tuple(sorted(set(topics)))
    if not names or not all(names):
        raise LocalProtocolError(
            "subscribe() takes at least one topic name; unsubscribe() leaves the group"
        )
    return names


def check_listener(listener: object) -> None:
    """Refuse a listener that would never be called, such as a plain function."""
    if listener is not None and not any(hasattr(listener, name) for name in _CALLBACKS):
        raise LocalProtocolError(
            f"a listener is an object with {', '.join(_CALLBACKS[:2])} or {_CALLBACKS[2]}, "
            f"found {listener!r}"
        )


def checked_pairs(partitions: object) -> list[tuple[str, int]]:
    """Return pairs of topic and partition; refuse anything else."""
    if not isinstance(partitions, Collection) or isinstance(partitions, str):
        raise LocalProtocolError(
            f"expected a list of pairs (topic, partition), found {partitions!r}"
        )
    pairs = []
    for given in partitions:
        match given:
            case (str(topic), int(partition)):
                pairs.append((topic, partition))
            case _:
                raise LocalProtocolError(
                    f"expected a list of pairs (topic, partition), found {given!r} in it"
                )
    return pairs


def check_offsets(offsets: object) -> None:
    """Refuse anything but a mapping from partitions to offsets that a record can have."""
    if not isinstance(offsets, Mapping):
        raise LocalProtocolError(
            "expected a mapping from (topic, partition) to the next offset, such as "
            f"{{('orders', 0): 42}}, found {offsets!r}"
        )
    for (topic, partition), offset in zip(checked_pairs(offsets), offsets.values(), strict=True):
        if not _is_offset(offset):
            raise LocalProtocolError(
                f"{topic}-{partition}: an offset is a whole number from 0 to 2^63 - 1, "
                f"found {offset!r}"
            )


def check_times(times: Mapping[tuple[str, int], int]) -> None:
    """Refuse a negative time, in ms since 1970."""
    for tp, time_ms in times.items():
        if time_ms < 0:
            raise LocalProtocolError(f"{tp[0]}-{tp[1]}: a time is not negative, found {time_ms}")


def checked_seconds(timeout: object) -> float:
    """Return a timeout in seconds."""
    if not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or isnan(timeout):
        raise LocalProtocolError(f"a timeout is a number of seconds, found {timeout!r}")
    return timeout


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_OFFSET


class TopicPartition(NamedTuple):
    """One partition of one topic, as Kafka's clients name it: ``partition`` counts from 0."""

    topic: str
    partition: int


OffsetCommitCallback = Callable[[Mapping[TopicPartition, int], Exception | None], object]


def as_offsets(offsets: Mapping[tuple[str, int], int]) -> Offsets:
    """Convert offsets of the application to those of a commit."""
    return {(tp[0], tp[1]): OffsetToCommit(at) for tp, at in offsets.items()}


class RebalanceListener(Protocol):
    """Callbacks of KIP-429; any of them may be missing."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        """Take over the newly assigned partitions; called in every round."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """Flush the state of the revoked partitions; their offsets are committed right after."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """Drop the state of the lost partitions: another member may already be reading them.

        A listener without this method gets ``on_partitions_revoked`` instead.
        """

"""The versions of the requests that holdfast sends, and the brokers that answer all of them.

**Rules.** A request is sent in the newest version that holdfast and the broker both support,
between the oldest and the newest of :data:`REQUESTS`. A broker that lacks one of them in its oldest
version is refused when a client connects. The refusal names the broker, the request, and the
release of Kafka that brought it.

**Strategy.** A broker reports which versions it supports (ApiVersions), but not its release, and a
server that is compatible with Kafka has no release. So the versions decide, and a release only
appears in texts: kafka-python infers it from the versions.

References: Kafka protocol guide, "Protocol Primitives"; KIP-35 (ApiVersions), KIP-110 (Fetch v10
may answer with zstd), KIP-345 (static members: JoinGroup v5, LeaveGroup v3), KIP-447 (OffsetFetch
v7 waits for open transactions).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

OLDEST_KAFKA: Final = "2.5"
"""The first release that supports every request of :data:`REQUESTS`."""


@dataclass(frozen=True, slots=True)
class RequestVersions:
    """Versions of one request that holdfast can use."""

    key: int  # Kafka's number of the request
    # Versions. The newest is below Kafka's own if Kafka's names topics by id, while holdfast has
    # their names.
    oldest: int
    newest: int
    since: str  # the release of Kafka with the oldest version

    @property
    def bounds(self) -> dict[str, int]:
        """Return keywords of kafka-python's request classes."""
        return {"min_version": self.oldest, "max_version": self.newest}


REQUESTS: Final[Mapping[str, RequestVersions]] = {
    "Fetch": RequestVersions(1, 10, 12, "2.1"),
    "ListOffsets": RequestVersions(2, 2, 11, "0.11"),
    "Metadata": RequestVersions(3, 4, 13, "0.11"),
    "OffsetCommit": RequestVersions(8, 7, 9, "2.3"),
    "OffsetFetch": RequestVersions(9, 7, 9, "2.5"),
    "FindCoordinator": RequestVersions(10, 1, 6, "0.11"),
    "JoinGroup": RequestVersions(11, 5, 9, "2.3"),
    "Heartbeat": RequestVersions(12, 3, 4, "2.3"),
    "LeaveGroup": RequestVersions(13, 3, 5, "2.4"),
    "SyncGroup": RequestVersions(14, 3, 5, "2.3"),
    "DescribeGroups": RequestVersions(15, 0, 6, "0.9"),
    "ListGroups": RequestVersions(16, 0, 5, "0.9"),
}

GROUP_REQUESTS: Final[Mapping[str, RequestVersions]] = {
    "ConsumerGroupDescribe": RequestVersions(69, 0, 1, "3.7"),
    "ShareGroupDescribe": RequestVersions(77, 1, 1, "4.1"),
    "StreamsGroupDescribe": RequestVersions(89, 0, 0, "4.1"),
    "DescribeShareGroupOffsets": RequestVersions(90, 0, 1, "4.1"),
}
"""Requests about one kind of group: a broker without them has no group of that kind."""


def why_too_old(known: Mapping[int, tuple[int, int]], release: str) -> str | None:
    """Return why a broker cannot be used.

    Parameters
    ----------
    known : mapping of int to (int, int)
        Oldest and newest version of each request that the broker supports, by Kafka's number.
    release : str
        The release of Kafka that matches the versions.

    Returns
    -------
    str or None
        The missing request of the newest release; None for a broker that supports all.
    """
    lacking = [
        (tuple(map(int, span.since.split("."))), name, span)
        for name, span in REQUESTS.items()
        if known.get(span.key, (0, -1))[1] < span.oldest
    ]
    if not lacking:
        return None
    _, name, span = max(lacking, key=lambda one: one[:2])
    return (
        f"it is Kafka {release} by the requests that it supports, and has no {name} of version "
        f"{span.oldest} (Kafka {span.since}); holdfast needs Kafka {OLDEST_KAFKA} or newer"
    )

"""The versions that holdfast works with: of requests, and so of brokers, and of client libraries.

**Rules.** A request is sent in the newest version that holdfast and the broker both support,
between the oldest and the newest of :data:`REQUESTS`. A broker that lacks one of them in its oldest
version is refused when a client connects. The refusal names the broker, the request, and the
release of Kafka that brought it.

The versions of client libraries are those of the extras in ``pyproject.toml`` (a test compares
them), and ``make soak ARGS="--only clients"`` runs the first and the newest of each against a
broker. Another version is refused at import, with the installed one, the supported ones, and the
extra.

**Strategy.** A broker reports which versions it supports (ApiVersions), but not its release, and a
server that is compatible with Kafka has no release. So the versions decide, and a release only
appears in texts: kafka-python infers it from the versions. The name of the metadata folder next to
a client library has its version, so the library need not be imported.

References: Kafka protocol guide, "Protocol Primitives"; KIP-35 (ApiVersions), KIP-110 (Fetch v10
may answer with zstd), KIP-345 (static members: JoinGroup v5, LeaveGroup v3), KIP-447 (OffsetFetch
v7 waits for open transactions); PyPA specifications, "Recording installed projects"
(``NAME-VERSION.dist-info``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
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
    """Return why a broker cannot be used: the missing request of the newest release.

    Parameters
    ----------
    known : mapping of int to (int, int)
        Oldest and newest version of each request that the broker supports, by Kafka's number.
    release : str
        The release of Kafka that matches the versions.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Versions of a client library."""

    first: str  # the oldest version
    below: str  # the first version that is too new, "" if every newer one is supported
    module: str  # what is imported

    def __str__(self) -> str:
        return f"{self.first} or newer" + (f", below {self.below}" if self.below else "")

    def has(self, found: str) -> bool:
        """Return whether ``found`` is in the range."""
        at = _numbers(found)
        return _numbers(self.first) <= at and not (self.below and at >= _numbers(self.below))


RANGES = {
    "confluent-kafka": Range(first="2.6.1", below="", module="confluent_kafka"),
    "aiokafka": Range(first="0.12", below="0.15", module="aiokafka"),
    "kafka-python": Range(first="3.0.12", below="3.1", module="kafka"),
}

TESTED = {"kafka-python": frozenset({"3.0.12"})}
"""Versions whose private parts the live tests have run with; other versions are not changed where
that is possible.
"""


def check(client: str) -> None:
    """Refuse a client of :data:`RANGES` that is missing, or has another version: an ImportError."""
    wanted = RANGES[client]
    install = "pip install 'kafka-holdfast[members]'"
    found = version(client)
    if found is None:
        raise ModuleNotFoundError(f"{client} {wanted} is needed: {install}", name=wanted.module)
    if not wanted.has(found):
        raise ImportError(f"{client} {wanted} is needed, found {found}: {install}")


def version(client: str) -> str | None:
    """Return the version of a client library that an import would find; None for none."""
    spec = find_spec(RANGES[client].module)
    if spec is None:
        return None
    start, end = f"{client.replace('-', '_')}-", ".dist-info"
    for home in spec.submodule_search_locations or ():
        for beside in Path(home).parent.glob(f"{start}*{end}"):
            return beside.name.removeprefix(start).removesuffix(end)
    from importlib import metadata  # its import costs as much as a client's

    try:
        return metadata.version(client)
    except metadata.PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version: 3.0.12rc1 is (3, 0, 12)."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()

"""Partition counts in messages: those a static leader planned with, and those of a version.

**Rules.** Topics stand as hashes of four bytes.

- Only a static leader is sent the counts that it planned with: KIP-814 asks the process that takes
  its place to skip the assignment, and that process does not know what was planned.
- A worker that has a version of its resources reports the version and the counts, as the assignor's
  data of its subscription. If a member reports a newer version than the leader has, the leader
  plans for what both versions have. What the newer one has more runs on the members that report it
  (:mod:`holdfast.core.machine.leader.new_resources`); what it has less stays where it is, and
  nobody is given it. Example: the leader knows 10 shards. If a newer version has 8, whoever has
  shard 8 or 9 keeps it.

References: KIP-814; KIP-415 (the leader's configuration offset).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.core.machine.leader.ring import hash_of_topic
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.wire.one.reader import Reader
from holdfast.core.wire.one.writer import Writer
from holdfast.errors import WireError

HASH_BYTES = 4
SCHEMA = "HoldfastPlannedCounts"
_VERSION = struct.Struct(">q")


def planned_counts(
    partitions: Mapping[str, int], members: Sequence[SubscribedMember], leader_id: str
) -> bytes | None:
    """The counts of all topics that somebody subscribes to; None if the leader is not static."""
    if not any(m.member_id == leader_id and m.instance_id is not None for m in members):
        return None
    named = {t for m in members for t in m.subscription.topics}
    return _written({t: count for t, count in partitions.items() if t in named})


def key_of(topic: str) -> bytes:
    """How a topic stands in these messages: four bytes of its hash."""
    return int(hash_of_topic(topic)[: 8 * HASH_BYTES], 2).to_bytes(HASH_BYTES, "big")


def _written(counts: Mapping[str, int]) -> bytes:
    writer = Writer(SCHEMA)
    for topic in sorted(counts):
        writer.raw(key_of(topic))
        writer.uvarint(counts[topic], "count")
    return writer.done()


def read_counts(data: bytes | None) -> tuple[tuple[bytes, int], ...]:
    """Hashes of topics with their counts; nothing if there is nothing that can be read."""
    reader = Reader(data or b"", SCHEMA)
    found = []
    try:
        while reader.n_left:
            start = reader.pos
            reader.skip(HASH_BYTES, "topic")
            found.append((reader.data[start : reader.pos], reader.uvarint("count")))
    except WireError:
        return ()
    return tuple(found)


def handed_out(planned: bytes | None) -> tuple[tuple[str, int], ...]:
    """The counts in a leader's assignment, each topic under its hash in hex."""
    return tuple((found.hex(), count) for found, count in read_counts(planned))


def with_names(
    planned: Sequence[tuple[str, int]], known: Sequence[tuple[str, int]]
) -> tuple[tuple[str, int], ...]:
    """The counts ``planned`` by topic; one that stands under its hash gets its name from ``known``.

    A topic that this process does not know stays under its hash.
    """
    if {topic for topic, _ in planned} <= {topic for topic, _ in known}:
        return tuple(planned)
    names = {key_of(topic).hex(): topic for topic, _ in known}
    return tuple(sorted((names.get(topic, topic), count) for topic, count in planned))


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedCounts:
    """The counts of one version of a worker's resources, by hash of the kind."""

    version: int
    counts: Mapping[bytes, int]

    def shared_with(self, own: Mapping[str, int]) -> dict[str, int]:
        """Counts of what is in these and in ``own``."""
        counts = {kind: min(n, self.count_of(kind)) for kind, n in own.items()}
        return {kind: n for kind, n in counts.items() if n}

    def joined_with(self, own: Mapping[str, int]) -> dict[str, int]:
        """Counts of what is in these or in ``own``, of the kinds in ``own``."""
        return {kind: max(n, self.count_of(kind)) for kind, n in own.items()}

    def count_of(self, kind: str) -> int:
        """How many resources of a kind this version has."""
        return self.counts.get(key_of(kind), 0)


def report_of(version: int, counts: Mapping[str, int]) -> bytes:
    """A version with its counts, for a subscription."""
    return _VERSION.pack(version) + _written(counts)


def version_of(member: SubscribedMember) -> int | None:
    """The version that a member reports, None if it reports none."""
    said = member.subscription.assignor_data or b""
    return _VERSION.unpack_from(said)[0] if len(said) >= _VERSION.size else None


def newest_reported(members: Sequence[SubscribedMember]) -> VersionedCounts | None:
    """The newest version that a member reports; None if nobody reports one."""
    said = [m.subscription.assignor_data or b"" for m in members]
    reports = [
        (_VERSION.unpack_from(d)[0], d[_VERSION.size :]) for d in said if len(d) >= _VERSION.size
    ]
    if not reports:
        return None
    version, counts = max(reports)
    return VersionedCounts(version=version, counts=dict(read_counts(counts)))

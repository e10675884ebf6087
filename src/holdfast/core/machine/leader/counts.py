"""Partition counts in messages, and resources of workers that the leader does not know yet.

**Rules.** Messages name topics by hashes of four bytes.

- Only a static leader is sent the counts that it planned with: KIP-814 asks the process that
  replaces it to skip the assignment, and that process does not know what was planned.
- A worker that has a version of its resources reports the version and the counts, as the assignor's
  data of its subscription. If a member reports a newer version than the leader has, the leader
  plans for what both versions have. The newer version's additional resources run on the members
  that report it (:mod:`holdfast.core.machine.leader.counts`); resources that it lacks stay
  where they are, and are assigned to no other member. Example: the leader knows 10 shards. If a
  newer version has 8, the owner of shard 8 or 9 keeps it.

References: KIP-814; KIP-415 (the leader's configuration offset).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.core.machine.leader.ring import hash_of_topic
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.model.partitions import Resource, grouped, merge_topics, resources_of
from holdfast.core.wire.one.reader import Reader
from holdfast.core.wire.one.writer import Writer
from holdfast.errors import WireError

if TYPE_CHECKING:
    from holdfast.core.machine.leader.leader import PlannedRound

HASH_BYTES = 4
SCHEMA = "HoldfastPlannedCounts"
_VERSION = struct.Struct(">q")


def planned_counts(
    partitions: Mapping[str, int], members: Sequence[SubscribedMember], leader_id: str
) -> bytes | None:
    """Return the counts of all subscribed topics; None if the leader is not static."""
    if not any(m.member_id == leader_id and m.instance_id is not None for m in members):
        return None
    named = {t for m in members for t in m.subscription.topics}
    return _written({t: count for t, count in partitions.items() if t in named})


def key_of(topic: str) -> bytes:
    """Return how the messages name a topic: four bytes of its hash."""
    return int(hash_of_topic(topic)[: 8 * HASH_BYTES], 2).to_bytes(HASH_BYTES, "big")


def _written(counts: Mapping[str, int]) -> bytes:
    writer = Writer(SCHEMA)
    for topic in sorted(counts):
        writer.raw(key_of(topic))
        writer.uvarint(counts[topic], "count")
    return writer.done()


def read_counts(data: bytes | None) -> tuple[tuple[bytes, int], ...]:
    """Read hashes of topics with their counts; nothing if nothing can be read."""
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
    """Return the counts in a leader's assignment, each topic under its hash in hex."""
    return tuple((found.hex(), count) for found, count in read_counts(planned))


def with_names(
    planned: Sequence[tuple[str, int]], known: Sequence[tuple[str, int]]
) -> tuple[tuple[str, int], ...]:
    """Return the counts ``planned`` by topic; a hash becomes a name from ``known``.

    A topic that this process does not know keeps its hash.


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
        """Return the counts of resources that are in this version and in ``own``."""
        counts = {kind: min(n, self.count_of(kind)) for kind, n in own.items()}
        return {kind: n for kind, n in counts.items() if n}

    def joined_with(self, own: Mapping[str, int]) -> dict[str, int]:
        """Return the counts of resources in this version or in ``own``, of the kinds in ``own``."""
        return {kind: max(n, self.count_of(kind)) for kind, n in own.items()}

    def count_of(self, kind: str) -> int:
        """Return how many resources of a kind this version has."""
        return self.counts.get(key_of(kind), 0)


def report_of(version: int, counts: Mapping[str, int]) -> bytes:
    """Return a version with its counts, for a subscription."""
    return _VERSION.pack(version) + _written(counts)


def version_of(member: SubscribedMember) -> int | None:
    """Return the version that a member reports, None if it reports none."""
    said = member.subscription.assignor_data or b""
    return _VERSION.unpack_from(said)[0] if len(said) >= _VERSION.size else None


def newest_reported(members: Sequence[SubscribedMember]) -> VersionedCounts | None:
    """Return the newest version that a member reports; None if no member reports one."""
    said = [m.subscription.assignor_data or b"" for m in members]
    reports = [
        (_VERSION.unpack_from(d)[0], d[_VERSION.size :]) for d in said if len(d) >= _VERSION.size
    ]
    if not reports:
        return None
    version, counts = max(reports)
    return VersionedCounts(version=version, counts=dict(read_counts(counts)))


# Resources of workers that the leader does not know yet: they run on workers that know them.
#
# If a worker reports a newer version of the resources than the leader has, the leader plans the
# counts that both have (``counts``). The additional resources of the newest version are assigned
# afterwards: a resource that no member claims goes to the worker of that version that has the
# fewest of its kind, and of several to the one that has the fewest in all. A claim stays where it
# is; no additional resource waits for a departed worker or moves for balance until a leader knows
# that version. Kinds unknown to the leader are named by the subscriptions of those workers. No more
# than ``MOST`` resources are assigned in one round: a report may be false. Example: the leader
# knows 10 shards, B and C report a version with 12. Shard 10 goes to B and shard 11 to C. B leaves:
# shard 10 goes to C, in the next round.
#
# A pure function of a plan, applied after the plan of what both have.
#
# References: KIP-415 (a leader whose configuration offset is behind).


MOST = 10_000
"""Upper bound of resources: far more than a deployment adds, and quick to list."""


def with_new_resources(
    plan: PlannedRound,
    members: Sequence[SubscribedMember],
    newest: VersionedCounts,
    known: Mapping[str, int],
) -> PlannedRound:
    """Return the plan of a round, extended by the resources of the newest version alone.

    Parameters
    ----------
    newest : VersionedCounts
        The newest version that a member reports.
    known : mapping of str to int
        The leader's own counts, by kind.
    """
    able = sorted(
        (m for m in members if m.stays and version_of(m) == newest.version),
        key=lambda m: m.member_id,
    )
    claimed = frozenset[Resource]().union(*(resources_of(m.subscription.owned) for m in members))
    # A generator and a bound: a report of a billion resources costs no more than one of ten
    # thousand.
    new = tuple(islice(_unclaimed(able, newest, known, claimed), MOST))
    if not new:
        return plan
    has = {m.member_id: _next_of(plan, m) for m in able}
    gained: dict[str, list[Resource]] = {}
    for kind, number in new:
        name = min(has, key=lambda each: (has[each][kind], has[each].total(), each))
        has[name][kind] += 1
        gained.setdefault(name, []).append((kind, number))
    assignments = dict(plan.assignments)
    for name, resources in gained.items():
        own = assignments[name]
        assignments[name] = replace(own, gained=merge_topics((*own.gained, *grouped(resources))))
    return replace(plan, assignments=assignments)


def _unclaimed(
    able: Sequence[SubscribedMember],
    newest: VersionedCounts,
    known: Mapping[str, int],
    claimed: frozenset[Resource],
) -> Iterator[Resource]:
    """Yield the resources of the newest version alone that no member claims, by kind and number."""
    for kind in sorted({kind for m in able for kind in m.subscription.topics}):
        for number in range(known.get(kind, 0), newest.count_of(kind)):
            if (kind, number) not in claimed:
                yield kind, number


def _next_of(plan: PlannedRound, member: SubscribedMember) -> Counter[str]:
    """Count the resources of each kind that a member is to own by a plan."""
    own = plan.assignments[member.member_id]
    after = resources_of(member.subscription.owned) - resources_of(own.revoked)
    return Counter(kind for kind, _ in after | resources_of(own.gained))

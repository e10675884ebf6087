"""The partition counts that a static leader planned with, for its next process.

**Rules.** Only a static leader is sent the counts: KIP-814 asks the process that takes its place to
skip the assignment, and that process does not know what was planned. Topics stand as hashes of four
bytes.

References: KIP-814.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.machine.leader.ring import hash_of_topic
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.wire.one.reader import Reader
from holdfast.core.wire.one.writer import Writer
from holdfast.errors import WireError

HASH_BYTES = 4
SCHEMA = "HoldfastPlannedCounts"


def planned_counts(
    partitions: Mapping[str, int], members: Sequence[SubscribedMember], leader_id: str
) -> bytes | None:
    """The counts of all topics that somebody subscribes to; None if the leader is not static."""
    if not any(m.member_id == leader_id and m.instance_id is not None for m in members):
        return None
    writer = Writer(SCHEMA)
    for topic in sorted({t for m in members for t in m.subscription.topics}):
        if topic in partitions:
            writer.raw(hash_of_topic(topic)[:HASH_BYTES])
            writer.uvarint(partitions[topic], "count")
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


def handed_out(
    planned: Sequence[tuple[bytes, int]], known: Sequence[tuple[str, int]]
) -> tuple[tuple[str, int], ...]:
    """The counts that were planned with, by topic.

    Parameters
    ----------
    planned : sequence of (topic hash, count)
        From the leader's assignment.
    known : sequence of (topic, count)
        What this process knows; it gives the hashes their names.

    Returns
    -------
    tuple of (str, int)
        A topic that this process does not know stands under its hash.

    References
    ----------
    KIP-814: a static leader that comes back keeps the assignment, but must watch the topics.
    """
    names = {hash_of_topic(topic)[:HASH_BYTES]: topic for topic, _ in known}
    return tuple(sorted((names.get(found, found.hex()), count) for found, count in planned))

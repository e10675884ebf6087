"""The leader's memory: facts about a round for the next leader, carried by all members.

=======  ===========  =============================================================================
frame    magic        version 1
=======  ===========  =============================================================================
memory   f4 48 46 6d  Generation int32, DelayMs int32, Topics []string, Members [](MemberId,
                      InstanceId nullable, Leaving int8, DelayMs int32, Owned [](topic index
                      uvarint, PartitionSet), tags), GivenUp [](topic index, PartitionSet)
=======  ===========  =============================================================================

**Rules.** A delay is the time that remains, in ms, 0 to 2**31 - 1; 0 means no delay. A negative
delay is refused.

**Strategy.** A leader writes the memory once, as bytes inside every assignment; a member sends the
bytes back in its next subscription, unread; only a leader reads them. A new field goes in front of
the tags of a member or of the frame, with a new version; :mod:`holdfast.machine.leader.deferral`
is where it is written and used.

References: Incremental Cooperative Rebalancing, Design II, "Leader exits"; KIP-415, whose leader
forgets; :mod:`holdfast.wire.layouts.frames` for frames and PartitionSets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from holdfast.errors import WireError
from holdfast.model.partitions import TopicPartitions, sort_partitions
from holdfast.wire.layouts.frames import (
    Leaving,
    open_frame,
    read_leaving,
    read_set,
    start_frame,
    write_set,
)
from holdfast.wire.one.reader import Reader
from holdfast.wire.one.reasons import Reason
from holdfast.wire.one.writer import Writer

MEMORY = "HoldfastMemory"
MEMORY_MAGIC = b"\xf4HFm"


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedMember:
    """One member in the leader's memory.

    Parameters
    ----------
    member_id : str
        As the coordinator gave it.
    instance_id : str or None
        ``group.instance.id`` of a static member.
    leaving : Leaving
        The member's last announcement.
    delay_ms : int
        For a departed member: how long its partitions still wait. 0 for a member of that round.
    owned : tuple of (topic, partitions)
        Partitions owned after that round; for a departed member, the partitions that wait.
    """

    member_id: str
    instance_id: str | None = None
    leaving: Leaving = Leaving.STAYS
    delay_ms: int = 0
    owned: TopicPartitions = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Facts about the last round that the next leader needs.

    Parameters
    ----------
    generation : int
        Generation in which it was written.
    delay_ms : int
        How long it then was until the next batch of Design III, 0 for no such time. What remains of
        it is less by ``MemberSubscription.memory_age_ms``.
    members : tuple of RememberedMember
        The members of that round, and departed members whose partitions wait.
    given_up : tuple of (topic, partitions)
        Partitions revoked in that round: no member will claim them, and yet they are not lost.
    """

    generation: int
    delay_ms: int = 0
    members: tuple[RememberedMember, ...] = ()
    given_up: TopicPartitions = ()

    @property
    def longest_delay_ms(self) -> int:
        """The longest of its times: once it is older than that, its age makes no difference."""
        return max([self.delay_ms, *(member.delay_ms for member in self.members)])


@lru_cache(maxsize=8)
def read_memory(data: bytes | None) -> Memory | None:
    """A leader's memory, or None where there is nothing that can be read.

    All members carry the same copy, so the last ones are remembered.
    """
    try:
        return None if data is None else decode_memory(data)
    except WireError:
        return None


def decode_memory(data: bytes) -> Memory:
    """Read a leader's memory.

    Raises
    ------
    WireError
        If the bytes are not a memory frame.

    References
    ----------
    KIP-415, whose leader forgets; Incremental Cooperative Rebalancing, Design II, "Leader exits".
    """
    reader = open_frame(data, MEMORY, MEMORY_MAGIC)
    generation = reader.int32("generation")
    delay_ms = reader.delay_ms("delay_ms")
    topics = reader.compact_array("topics", _read_name, 1)

    def read_indexed(inner: Reader) -> tuple[str, tuple[int, ...]]:
        start = inner.pos
        index = inner.uvarint("topic")
        if index >= len(topics):
            inner.fail(Reason.OUT_OF_RANGE, "topic", start, f"{index} of {len(topics)} topics")
        return topics[index], read_set(inner)

    def read_member(inner: Reader) -> RememberedMember:
        member = RememberedMember(
            member_id=inner.compact_string("member_id"),
            instance_id=inner.nullable_compact_string("instance_id"),
            leaving=read_leaving(inner),
            delay_ms=inner.delay_ms("delay_ms"),
            owned=inner.compact_array("owned", read_indexed, _INDEXED_SET_MIN),
        )
        inner.tagged()
        return member

    members = reader.compact_array("members", read_member, _MEMBER_MIN)
    given_up = reader.compact_array("given_up", read_indexed, _INDEXED_SET_MIN)
    reader.tagged()
    return Memory(generation=generation, delay_ms=delay_ms, members=members, given_up=given_up)


def encode_memory(value: Memory) -> bytes:
    """Write a leader's memory; partitions come out sorted, members in the order given.

    Raises
    ------
    WireError
        If a value does not fit its field.

    References: As :func:`decode_memory`.
    """
    owned = [sort_partitions(member.owned) for member in value.members]
    given_up = sort_partitions(value.given_up)
    topics = sorted({topic for entries in (*owned, given_up) for topic, _ in entries})
    index_of = {topic: index for index, topic in enumerate(topics)}

    def write_indexed(inner: Writer, entry: tuple[str, tuple[int, ...]]) -> None:
        inner.uvarint(index_of[entry[0]], "topic")
        write_set(inner, entry[1])

    def write_member(inner: Writer, pair: tuple[RememberedMember, TopicPartitions]) -> None:
        member, partitions = pair
        inner.compact_string(member.member_id, "member_id")
        inner.compact_string(member.instance_id, "instance_id", nullable=True)
        inner.int8(member.leaving, "leaving")
        inner.delay_ms(member.delay_ms, "delay_ms")
        inner.compact_array(partitions, "owned", write_indexed)
        inner.tagged()

    writer = start_frame(MEMORY, MEMORY_MAGIC)
    writer.int32(value.generation, "generation")
    writer.delay_ms(value.delay_ms, "delay_ms")
    writer.compact_array(topics, "topics", _write_name)
    writer.compact_array(list(zip(value.members, owned, strict=True)), "members", write_member)
    writer.compact_array(given_up, "given_up", write_indexed)
    writer.tagged()
    return writer.done()


_INDEXED_SET_MIN = 2
_MEMBER_MIN = 9


def _read_name(reader: Reader) -> str:
    return reader.compact_string("")


def _write_name(writer: Writer, name: str) -> None:
    writer.compact_string(name, "")

"""The messages of Designs I to III, inside Kafka's own consumer protocol messages.

A member's subscription is a ConsumerProtocolSubscription, and its assignment is a
ConsumerProtocolAssignment, so every Kafka tool can read both. The designs' additions are in the
user data, as a *frame*: a magic of two bytes, then fields. The upper four bits of the second byte
say what the frame is, the lower four its version. The two frames are called claim and verdict on
the wire, and ``holdfast decode`` takes the names ``claim`` and ``verdict``. A *PartitionSet* is a
compact array of uvarints: the first partition, then each gap less one.

=======  ===========  =============================================================================
frame    begins with  fields
=======  ===========  =============================================================================
claim    f4 c1        Flags int8, Nonce uvarint, then the fields of the flags: Location 4 bytes
                      (64), StateAgeMs uvarint (32), AlreadyRevoked [](Topic, PartitionSet) (4),
                      Failed [](Topic, Error, PartitionSet) (16), AssignorData bytes (8);
                      LeaderState: the remaining bytes. Flags 1 and 2 are Leaving
verdict  f4 d1        Flags int8, then the fields of the flags: Revoked [](Topic, PartitionSet) (2),
                      DelayMs uvarint (4), Planned bytes (8); LeaderState: the remaining bytes
=======  ===========  =============================================================================

**Rules.**

* A member then owns (owned - revoked) + assigned. Null ``revoked`` has no meaning; empty
  ``revoked`` means that another round follows.
* A delay is the time that remains, in ms, 0 to 2**31 - 1; 0 means no delay. A delay or an age
  outside of that range is refused.
* A frame has no field twice and no empty field. No leader state and an empty one are the same.
* A frame of another version is refused, and so is a frame of other software. The first bit of the
  magic is set: a foreign reader that takes the frame for a generation or a count reads a negative
  number, and finds no claim.

**Strategy.** A leader may list as assigned only the new partitions of a member. It may also list
*all* of them: the first rule gives the same result, and other tools then show the partitions that
the member owns. The leader state (:mod:`holdfast.core.wire.layouts.state_shard`) is bytes inside
both frames.

References: Incremental Cooperative Rebalancing: Support and Policies; KIP-429; KIP-415, whose
leader forgets; KIP-482 (compact types).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple, NoReturn

from holdfast.core.model.constants import INT32_MAX, NO_GENERATION
from holdfast.core.model.partitions import TopicPartitions, sort_partitions
from holdfast.core.wire.layouts.consumer_protocol import (
    HIGHEST_VERSION,
    AssignmentMessage,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.one.reader import TOPIC_PARTITIONS_MIN, Reader
from holdfast.core.wire.one.writer import Writer
from holdfast.errors import Reason, WireError

SUBSCRIPTION, ASSIGNMENT = "HoldfastClaim", "HoldfastVerdict"
SUBSCRIPTION_MAGIC, ASSIGNMENT_MAGIC = b"\xf4\xc1", b"\xf4\xd1"

FRAME_VERSION = 1
"""The version of a frame."""

_VERSION_BITS = 0x0F  # of the second byte

LOCATION_BYTES = 4
"""Bytes of a location's digest: of 2,000 members two have equal digests once in 2,000 groups."""


MOST_FAILED = 100
"""Failed resources that a member reports at most, and that a leader reads of it."""


class Leaving(IntEnum):
    """Whether a member announces that it stops, and whether it comes back."""

    STAYS = 0
    RETURNS = 1  # it stops, and means to come back: its partitions should wait
    FOR_GOOD = 2  # it stops for good: its partitions need not wait


LEAVING_BITS = 3
"""Flags of a claim frame that hold the member's announcement."""

LEAVING = {int(value): value for value in Leaving}
"""Announcements by their number."""


# The flags of optional fields: of a claim, beside the two bits of Leaving, and of a verdict.
_ALREADY_REVOKED, _ASSIGNOR_DATA, _FAILED, _AGE, LOCATION_FLAG = 4, 8, 16, 32, 64
_CLAIM_FLAGS = LEAVING_BITS | _ALREADY_REVOKED | _ASSIGNOR_DATA | _FAILED | _AGE | LOCATION_FLAG
_REVOKED, _DELAY, _PLANNED = 2, 4, 8
_VERDICT_FLAGS = _REVOKED | _DELAY | _PLANNED


class FailedPartitions(NamedTuple):
    """Partitions of a topic, or resources of a kind, whose work has failed with one error."""

    topic: str
    error: str  # the name of the error's type; its text may hold a secret
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """A member's report to the leader."""

    # The first four are as in :class:`Subscription`.
    topics: tuple[str, ...]
    owned: TopicPartitions = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    # 0 to 2**32 - 1. A coordinator starts no round for a follower that joins again with the same
    # bytes; a new nonce makes them differ.
    nonce: int = 0
    leaving: Leaving = Leaving.STAYS  # the announcement of the member
    state_age_ms: int = 0  # time since the leader state was received, by the member's clock
    # Partitions revoked since ``generation`` because the leader revoked them; they are not lost.
    already_revoked: TopicPartitions = ()
    # Resources that have failed at this member, owned or not, sorted by topic and error.
    failed: tuple[FailedPartitions, ...] = ()
    leader_state: bytes | None = None  # this member's state shard as received, unread
    # A digest of the member's location, :data:`LOCATION_BYTES` long; empty for none.
    location: bytes = b""
    # The document's ``PartitionAssignorData``; a worker reports the version of its resources.
    assignor_data: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAssignment:
    """The leader's assignment of one member."""

    # New partitions of the member, or all partitions that it is to own.
    assigned: TopicPartitions = ()
    # Partitions to revoke before joining again. Empty, not null: another round follows.
    revoked: TopicPartitions | None = None
    delay_ms: int = 0  # when to join again at the latest, in ms from now; 0 for no such time
    # This member's state shard; the member sends it back unread.
    leader_state: bytes | None = None
    # For a static leader: the partition counts of the plan, by topic hash.
    planned: bytes | None = None


def decode_member_subscription(data: bytes, *, lenient: bool = False) -> MemberSubscription:
    """Read a member's subscription from a ConsumerProtocolSubscription.

    Without user data, only the standard fields are filled.

    Parameters
    ----------
    data : bytes
        The whole message.
    lenient : bool
        True: user data without a readable frame are ignored, since a leader must not fail on the
        bytes of one member. A broken message still fails.
    """
    message = decode_subscription(data)
    if message.user_data:
        try:
            return _read_claim_frame(message, message.user_data)
        except WireError:
            if not lenient:
                raise
    return MemberSubscription(
        topics=message.topics,
        owned=message.owned,
        generation=message.generation,
        rack=message.rack,
    )


def encode_member_subscription(value: MemberSubscription) -> bytes:
    """Write a member's subscription as a ConsumerProtocolSubscription v3."""
    return encode_subscription(
        Subscription(
            topics=value.topics,
            user_data=_claim_frame(value),
            owned=value.owned,
            generation=value.generation,
            rack=value.rack,
        )
    )


def decode_member_assignment(data: bytes) -> MemberAssignment:
    """Read a member's assignment from a ConsumerProtocolAssignment.

    Without user data, only the partitions are filled.
    """
    message = decode_assignment(data)
    if not message.user_data:
        return MemberAssignment(assigned=message.partitions)
    return _read_verdict(message, message.user_data)


def encode_member_assignment(value: MemberAssignment) -> bytes:
    """Write a member's assignment as a ConsumerProtocolAssignment v3."""
    revoked = None if value.revoked is None else sort_partitions(value.revoked)
    frame = _verdict_frame(value, revoked)
    return encode_assignment(AssignmentMessage(partitions=value.assigned, user_data=frame))


def rejoin_data() -> bytes:
    """Return the user data of an assignment after which every member joins again at once."""
    return _verdict_frame(MemberAssignment(assigned=(), revoked=()), ())


# Frames

_TOPIC_SET_MIN = 2  # an empty name and an empty set
_FAILED_MIN = 3  # two empty names and an empty set


def _read_claim_frame(message: Subscription, data: bytes) -> MemberSubscription:
    reader = _open_frame(data, SUBSCRIPTION, SUBSCRIPTION_MAGIC)
    flags = _read_flags(reader, _CLAIM_FLAGS)
    if flags & LEAVING_BITS not in LEAVING:
        reader.fail(Reason.OUT_OF_RANGE, "flags", reader.pos - 1, f"{flags}")
    nonce = reader.uvarint("nonce")
    location = _read_location(reader) if flags & LOCATION_FLAG else b""
    age_ms = _read_ms(reader, "state_age_ms") if flags & _AGE else 0
    already_revoked: TopicPartitions = ()
    if flags & _ALREADY_REVOKED:
        already_revoked = reader.compact_array("already_revoked", _read_topic_set, _TOPIC_SET_MIN)
    failed: tuple[FailedPartitions, ...] = ()
    if flags & _FAILED:
        failed = reader.compact_array("failed", _read_failed, _FAILED_MIN)
    assignor_data = reader.compact_bytes("assignor_data") if flags & _ASSIGNOR_DATA else None
    return MemberSubscription(
        topics=message.topics,
        owned=message.owned,
        generation=message.generation,
        rack=message.rack,
        nonce=nonce,
        leaving=LEAVING[flags & LEAVING_BITS],
        state_age_ms=age_ms,
        already_revoked=already_revoked,
        failed=failed,
        leader_state=_read_rest(reader) or None,
        location=location,
        assignor_data=assignor_data,
    )


def _claim_frame(value: MemberSubscription) -> bytes:
    already_revoked = sort_partitions(value.already_revoked) if value.already_revoked else ()
    flags = (
        value.leaving
        | _ALREADY_REVOKED * bool(already_revoked)
        | _FAILED * bool(value.failed)
        | _ASSIGNOR_DATA * (value.assignor_data is not None)
        | _AGE * (value.state_age_ms != 0)
        | LOCATION_FLAG * (value.location != b"")
    )
    writer = Writer(SUBSCRIPTION, FRAME_VERSION)
    writer.raw(SUBSCRIPTION_MAGIC)
    writer.int8(flags, "flags")
    writer.uvarint(value.nonce, "nonce")
    if value.location and len(value.location) != LOCATION_BYTES:
        writer.fail(
            Reason.BAD_LENGTH, "location", f"{len(value.location)} bytes, not {LOCATION_BYTES}"
        )
    writer.raw(value.location)
    if value.state_age_ms:
        _write_ms(writer, value.state_age_ms, "state_age_ms")
    if already_revoked:
        writer.compact_array(already_revoked, "already_revoked", _write_topic_set)
    if value.failed:
        writer.compact_array(sorted(value.failed), "failed", _write_failed)
    if value.assignor_data is not None:
        writer.compact_bytes(value.assignor_data, "assignor_data")
    writer.raw(value.leader_state or b"")
    return writer.done()


def _read_verdict(message: AssignmentMessage, data: bytes) -> MemberAssignment:
    reader = _open_frame(data, ASSIGNMENT, ASSIGNMENT_MAGIC)
    flags = _read_flags(reader, _VERDICT_FLAGS)
    revoked: TopicPartitions | None = None
    if flags & _REVOKED:
        revoked = reader.compact_array("revoked", _read_topic_set, _TOPIC_SET_MIN)
    delay_ms = _read_ms(reader, "delay_ms") if flags & _DELAY else 0
    planned = reader.compact_bytes("planned") if flags & _PLANNED else None
    return MemberAssignment(
        assigned=message.partitions,
        revoked=revoked,
        delay_ms=delay_ms,
        leader_state=_read_rest(reader) or None,
        planned=planned,
    )


def _verdict_frame(value: MemberAssignment, revoked: TopicPartitions | None) -> bytes:
    flags = (
        _REVOKED * (revoked is not None)
        | _DELAY * (value.delay_ms != 0)
        | _PLANNED * (value.planned is not None)
    )
    writer = Writer(ASSIGNMENT, FRAME_VERSION)
    writer.raw(ASSIGNMENT_MAGIC)
    writer.int8(flags, "flags")
    if revoked is not None:
        writer.compact_array(revoked, "revoked", _write_topic_set)
    if value.delay_ms:
        _write_ms(writer, value.delay_ms, "delay_ms")
    if value.planned is not None:
        writer.compact_bytes(value.planned, "planned")
    writer.raw(value.leader_state or b"")
    return writer.done()


def _read_flags(reader: Reader, known: int) -> int:
    start = reader.pos
    flags = reader.int8("flags")
    if flags & ~known:
        reader.fail(Reason.OUT_OF_RANGE, "flags", start, f"{flags}")
    return flags


def _open_frame(data: bytes, schema: str, magic: bytes) -> Reader:
    """Return a reader behind the magic."""
    reader = Reader(data, schema)
    if not data.startswith(magic):
        _refuse_frame(reader, data, magic)
    reader.pos = len(magic)
    reader.version = FRAME_VERSION
    return reader


def _refuse_frame(reader: Reader, data: bytes, magic: bytes) -> NoReturn:
    version = data[1] & _VERSION_BITS if len(data) > 1 else 0
    if data[:2] == bytes((magic[0], magic[1] & ~_VERSION_BITS | version)):
        detail = f"{version} is not {FRAME_VERSION}, the only version that is known"
        reader.fail(Reason.BAD_VERSION, "version", 1, detail)
    reader.fail(Reason.BAD_MAGIC, "magic", 0, f"{data[:2].hex()} is not {magic.hex()}")


def _read_location(reader: Reader) -> bytes:
    return reader.int32("location").to_bytes(LOCATION_BYTES, "big", signed=True)


def _read_ms(reader: Reader, field: str) -> int:
    start = reader.pos
    time_ms = reader.uvarint(field)
    if time_ms > INT32_MAX:
        reader.fail(Reason.OUT_OF_RANGE, field, start, f"{time_ms} ms is not 0 to {INT32_MAX}")
    return time_ms


def _write_ms(writer: Writer, time_ms: int, field: str) -> None:
    if not 0 <= time_ms <= INT32_MAX:
        writer.fail(Reason.OUT_OF_RANGE, field, f"{time_ms} ms is not 0 to {INT32_MAX}")
    writer.uvarint(time_ms, field)


def _read_rest(reader: Reader) -> bytes:
    start = reader.pos
    reader.pos = reader.end
    return reader.data[start : reader.end]


def _read_set(reader: Reader) -> tuple[int, ...]:
    """Read a PartitionSet, sorted."""
    start = reader.pos
    count = reader.compact_count("partitions", 1)
    if count is None:
        reader.fail(Reason.UNEXPECTED_NULL, "partitions", start)
    partitions = tuple(_partitions(reader, count))
    if partitions and partitions[-1] > INT32_MAX:
        reader.fail(Reason.OUT_OF_RANGE, "partitions", start, f"partition {partitions[-1]}")
    return partitions


def _partitions(reader: Reader, count: int) -> Iterator[int]:
    """Yield partitions one by one: a list of them would be far larger than their bytes."""
    index, last = 0, -1
    try:
        for index in range(count):  # noqa: B007 - the index names the failing one
            last += reader.uvarint("") + 1
            yield last
    except WireError as error:
        raise error.within(f"partitions[{index}]") from None


def _write_set(writer: Writer, partitions: tuple[int, ...]) -> None:
    """Write a PartitionSet of sorted partitions."""
    if partitions and not 0 <= partitions[0] <= partitions[-1] <= INT32_MAX:
        writer.fail(Reason.OUT_OF_RANGE, "partitions", f"{partitions[0]} to {partitions[-1]}")
    distinct = sorted(set(partitions))
    gaps = [after - before - 1 for before, after in pairwise((-1, *distinct))]
    writer.compact_array(gaps, "partitions", _write_gap)


def _write_gap(writer: Writer, gap: int) -> None:
    writer.uvarint(gap, "")


def _read_topic_set(reader: Reader) -> tuple[str, tuple[int, ...]]:
    return reader.compact_string("topic"), _read_set(reader)


def _read_failed(reader: Reader) -> FailedPartitions:
    topic, error = reader.compact_string("topic"), reader.compact_string("error")
    return FailedPartitions(topic, error, _read_set(reader))


def _write_failed(writer: Writer, entry: FailedPartitions) -> None:
    writer.compact_string(entry.topic, "topic")
    writer.compact_string(entry.error, "error")
    _write_set(writer, entry.partitions)


def _write_topic_set(writer: Writer, entry: tuple[str, tuple[int, ...]]) -> None:
    writer.compact_string(entry[0], "topic")
    _write_set(writer, entry[1])


# The number of entries in an assignment, counted without building any of it.
#
# Topics and partitions count, assigned or revoked, as often as they are named. The count ends as
# soon as it is above a bound, so that a message of any size costs little. Malformed bytes end the
# count too: the decoder then raises the error.
#
# Names and numbers are stepped over. Planned counts and the member's state shard are not decoded: a
# member carries them as bytes.
#
# References: KIP-429; Incremental Cooperative Rebalancing, "General Approach".


def names_more(data: bytes, *, topics: int, partitions: int) -> bool:
    """Return whether an assignment names more topics, or more partitions, than the two bounds.

    Parameters
    ----------
    data : bytes
        A ConsumerProtocolAssignment.
    topics, partitions : int
        The bounds; the count ends once it is above one of the two.
    """
    counter = _Counter(topics, partitions)
    with suppress(WireError):
        counter.assignment(Reader(data, ASSIGNMENT))
    return counter.is_over


class _Counter:
    """Topics and partitions that may still be named before the count ends."""

    def __init__(self, topics: int, partitions: int):
        self.topics = topics
        self.partitions = partitions

    @property
    def is_over(self) -> bool:
        return self.topics < 0 or self.partitions < 0

    def assignment(self, reader: Reader) -> None:
        reader.leading_version(HIGHEST_VERSION)
        count = reader.count("assigned_partitions", TOPIC_PARTITIONS_MIN) or 0
        self.topics -= count
        for _ in range(0 if self.is_over else count):
            reader.skip(max(0, reader.int16("topic")), "topic")
            count = reader.count("partitions", 4) or 0
            self.partitions -= count
            reader.skip(4 * count, "partitions")
        size = reader.int32("user_data")
        if self.is_over or not reader.data.startswith(ASSIGNMENT_MAGIC, reader.pos):
            return
        if len(ASSIGNMENT_MAGIC) < size <= reader.n_left:
            frame = _open_frame(
                reader.data[reader.pos : reader.pos + size], ASSIGNMENT, ASSIGNMENT_MAGIC
            )
            if frame.int8("flags") & _REVOKED:
                self._sets(frame)

    def _sets(self, reader: Reader) -> None:
        count = reader.compact_count("revoked", _TOPIC_SET_MIN) or 0
        self.topics -= count
        for _ in range(0 if self.is_over else count):
            reader.skip(max(0, reader.uvarint("topic") - 1), "topic")
            count = reader.compact_count("partitions", 1) or 0
            self.partitions -= count
            for _ in range(0 if self.is_over else count):
                reader.uvarint("partition")
            if self.is_over:
                return

"""A subscription without topics and partitions that do not exist, made without building them.

**Rules.**

- Topics and claims of topics that are not wanted are skipped. Each remaining claim occurs once. Of
  claims of partitions that a topic does not have, the :data:`MOST_BEYOND` lowest are kept, because
  the leader has to ask their member to revoke them.
- A message with more topics, or more lists of claims, than ``most_topics`` cannot be read. Nor can
  one that :func:`~holdfast.core.wire.layouts.consumer_protocol.decode_subscription` cannot read,
  except that skipped names need not be UTF-8.
- User data of more bytes than ``most_user_data`` are ignored, and so is a rack of more than
  :data:`LONGEST_RACK` bytes.

**Strategy.** One loop over topics and one over lists of claims, on offsets. Numbers are taken in
pieces, so that time is linear in the message and memory in what is left.

References: KIP-429 (v1), KAFKA-13715 (v2), KIP-881 (v3).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.layouts.consumer_protocol import (
    HIGHEST_VERSION,
    SUBSCRIPTION,
    Subscription,
    encode_subscription,
)
from holdfast.core.wire.one.reader import STRING_MIN, TOPIC_PARTITIONS_MIN, Reader
from holdfast.core.wire.one.reasons import Reason
from holdfast.errors import WireError

LONGEST_RACK = 255
MOST_BEYOND = 256
PIECE_BYTES = 1 << 14
UNREADABLE = b""
"""A message that no reader can read: a member without topics and without claims."""


def trim_subscription(
    data: bytes, partitions: Mapping[str, int], *, most_topics: int, most_user_data: int
) -> bytes:
    """Return the same message, with only the topics and claims that exist.

    Parameters
    ----------
    data : bytes
        A ConsumerProtocolSubscription.
    partitions : mapping of str to int
        Partition count of each topic that exists.
    most_topics : int
        Topics, and lists of claims, that the message may have.
    most_user_data : int
        Bytes of user data that are kept.
    """
    try:
        return _trimmed(Reader(data, SUBSCRIPTION), partitions, most_topics, most_user_data)
    except (WireError, UnicodeDecodeError):
        return UNREADABLE


def _trimmed(
    reader: Reader, partitions: Mapping[str, int], most_topics: int, most_user_data: int
) -> bytes:
    version = reader.leading_version(HIGHEST_VERSION)
    wanted = {t.encode(): n for t, n in partitions.items()}
    topics = _topics(reader, wanted, most_topics)
    start = reader.pos + 4
    size = reader.int32("user_data")
    reader.skip(max(0, size), "user_data")
    owned: TopicPartitions = ()
    if version >= 1:
        owned = _owned(reader, wanted, most_topics)
    generation = reader.int32("generation_id") if version >= 2 else -1
    rack = reader.nullable_string("rack_id") if version >= 3 else None
    kept = 0 <= size <= most_user_data
    return encode_subscription(
        Subscription(
            topics=topics,
            user_data=reader.data[start : start + size] if kept else None,
            owned=owned,
            generation=generation,
            rack=rack if rack is not None and len(rack) <= LONGEST_RACK else None,
        ),
        version,
    )


def _count(reader: Reader, field: str, min_size: int, most: int) -> int:
    start = reader.pos
    count = reader.count(field, min_size)
    if count is None or count > most:
        reader.fail(Reason.BAD_COUNT, field, start, f"{count} of at most {most}")
    return count


def _topics(reader: Reader, wanted: Mapping[bytes, int], most: int) -> tuple[str, ...]:
    count = _count(reader, "topics", STRING_MIN, most)
    data, pos, end = reader.data, reader.pos, reader.end
    found: dict[bytes, None] = {}
    for _ in range(count):
        first = pos + 2
        if first > end:
            reader.fail(Reason.TRUNCATED, "topics", pos)
        pos = first + (data[pos] << 8 | data[pos + 1])
        if pos > end or data[first - 2] > 0x7F:
            reader.fail(Reason.TRUNCATED, "topics", first)
        name = data[first:pos]
        if name in wanted:
            found[name] = None
    reader.pos = pos
    return tuple(name.decode() for name in found)


def _owned(reader: Reader, wanted: Mapping[bytes, int], most: int) -> TopicPartitions:
    count = _count(reader, "owned_partitions", TOPIC_PARTITIONS_MIN, most)
    data, pos, end = reader.data, reader.pos, reader.end
    found: dict[bytes, bytearray] = {}
    for _ in range(count):
        first = pos + 2
        if first > end:
            reader.fail(Reason.TRUNCATED, "owned_partitions", pos)
        at = first + (data[pos] << 8 | data[pos + 1]) + 4
        if at > end or data[pos] > 0x7F:
            reader.fail(Reason.TRUNCATED, "owned_partitions", pos)
        n = data[at - 4] << 24 | data[at - 3] << 16 | data[at - 2] << 8 | data[at - 1]
        pos = at + 4 * n
        if pos > end:
            reader.fail(Reason.TRUNCATED, "owned_partitions", at)
        name = data[first : at - 4]
        if name not in wanted:
            continue
        if name not in found:
            found[name] = bytearray()
        numbers = found[name]
        for piece in range(at, pos, PIECE_BYTES):
            numbers += data[piece : min(pos, piece + PIECE_BYTES)]
            if len(numbers) > PIECE_BYTES + 8 * (wanted[name] + MOST_BEYOND):
                numbers[:] = _distinct(numbers, wanted[name])
    reader.pos = pos
    return tuple(
        (name.decode(), tuple(np.frombuffer(_distinct(numbers, wanted[name]), ">i4").tolist()))
        for name, numbers in found.items()
    )


def _distinct(numbers: bytearray, count: int) -> bytes:
    """Return the existing partitions and the lowest of the others, each once and sorted."""
    column = np.frombuffer(bytes(numbers), ">i4")
    found = np.unique(column[column >= 0])
    return found[: np.searchsorted(found, count) + MOST_BEYOND].tobytes()

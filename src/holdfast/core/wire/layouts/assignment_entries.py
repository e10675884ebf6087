"""The number of entries in an assignment, counted without building any of it.

**Rules.** Topics and partitions count, assigned or revoked, as often as they are named. The count
ends as soon as it is above a bound, so that a message of any size costs little. Malformed bytes end
the count too: the decoder then raises the error.

**Strategy.** Names and numbers are stepped over. Planned counts and the member's state shard are
not decoded: a member carries them as bytes.

References: KIP-429; Incremental Cooperative Rebalancing, "General Approach".
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.core.wire.layouts.consumer_protocol import ASSIGNMENT, HIGHEST_VERSION
from holdfast.core.wire.layouts.container import ASSIGNMENT_MAGIC, VerdictFlag
from holdfast.core.wire.layouts.frames import open_frame
from holdfast.core.wire.one.reader import TOPIC_PARTITIONS_MIN, Reader
from holdfast.errors import WireError

_TOPIC_SET_MIN = 2


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
    """How many more topics and partitions may be named before the count ends."""

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
        if 0 < size <= reader.n_left and not self.is_over:
            self._frame(reader.data[reader.pos : reader.pos + size])

    def _frame(self, data: bytes) -> None:
        if not data.startswith(ASSIGNMENT_MAGIC):
            return
        reader = open_frame(data, ASSIGNMENT, ASSIGNMENT_MAGIC)
        flags = reader.int8("flags")
        if flags & VerdictFlag.REVOKED:
            self._sets(reader)

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

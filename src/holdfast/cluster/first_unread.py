"""The first unread record of partitions: whether there is one, and how old it is.

**Rules.** A transaction ends with a control record (a marker). A marker takes an offset, but no
consumer gets it: a partition with only markers after its commit has been read to its end. No
request by time distinguishes a marker from a record; a marker is the answer for the largest time
too (KIP-734). So the batches after a commit are fetched, within bounds. What a batch does not show
stays unknown:

- Records of an aborted or an open transaction are unread for consumers of uncommitted records only.
  Kafka does not know which kind of consumer a group has.
- In a topic that the principal may not read, the age is a bound
  (:mod:`holdfast.cluster.first_unread`), and whether a record is unread is not known. A record with
  a time in the future has no age.

**Strategy.** One request for many partitions fetches up to :data:`LOOK_BYTES` of each: a marker has
78. A partition whose batch is larger is missing there, and its batch is fetched by itself, for at
most :data:`MOST_ALONE` partitions, those with the least lag. After markers the fetch continues,
:data:`LOOKS` times in all. The rest is requested by time.

References: KIP-98 (control records, aborted transactions), KIP-534 (delete horizon), KIP-734
(ListOffsets of the largest time).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

STEPS: Final = 20
NEAR_MS: Final = 100
NEAR_SHARE: Final = 0.01

TopicPartition = tuple[str, int]
Ask = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, tuple[int, int] | None]]
"""Times in milliseconds to (offset, time) of the first record at or after each, or None. A
partition that has no leader is missing."""


@dataclass(frozen=True, slots=True)
class RecordTime:
    """The time of a record."""

    ms: int  # since 1970
    is_exact: bool  # False: the record has this time or an earlier one


@dataclass(slots=True)
class _RecordSearch:
    """The search for the first record at or after ``offset``; ``low`` lies before it."""

    offset: int
    guess: int
    now_ms: int
    high_ms: int  # no record before ``high_offset`` has this time or a later one, once requested
    high_offset: int = -1
    low_ms: int = -1
    low_offset: int = -1
    bound_ms: int | None = None
    is_exact: bool = False
    over: bool = False
    steps: int = 0

    def take(self, answer: tuple[int, int] | None) -> None:
        """Narrow the search by the record that was found for the guess."""
        self.steps += 1
        repeated = False
        if answer is None:
            self.high_ms, self.high_offset, self.bound_ms = self.guess, -1, self.guess - 1
        elif answer[0] < self.offset:
            self.low_offset, self.low_ms = answer
        else:
            # Records between the offset and the found one are earlier than the guess, and
            # so than the found one's time. Whichever of them is the first, the bound holds for it.
            repeated = answer[0] == self.high_offset
            self.high_ms, (self.high_offset, self.bound_ms) = self.guess, answer
            self.is_exact = answer[0] == self.offset or not self.guess
        self._next(repeated)

    def _next(self, repeated: bool) -> None:
        if self.low_ms < 0:
            self.over = not self.guess
            self.guess = 0
            return
        between = self.high_ms - self.low_ms
        if between <= 1:  # a record with a later time precedes it, or all times were requested
            self.over = True
        elif repeated or self.low_offset == self.offset - 1:
            self.guess = self.low_ms + 1  # nothing may lie between the two records
        else:
            share = 0.5
            if self.steps % 3 and self.high_offset > self.low_offset:
                share = (self.offset - self.low_offset) / (self.high_offset - self.low_offset)
            self.guess = self.low_ms + min(max(round(between * share), 1), between - 1)

    @property
    def ended(self) -> bool:
        """Whether the time is known, or known closely enough."""
        if self.over or self.is_exact:
            return True
        if self.bound_ms is None or self.low_ms < 0:
            return False
        most = max(NEAR_MS, NEAR_SHARE * (self.now_ms - self.bound_ms))
        return self.bound_ms - self.low_ms <= most

    @property
    def found(self) -> RecordTime | None:
        """Return the time, as far as the answers show it."""
        if self.bound_ms is None or self.bound_ms < 0:
            return None
        return RecordTime(self.bound_ms, self.is_exact)


def record_times(
    wanted: Sequence[tuple[str, int, int, int]], ask: Ask, now_ms: int
) -> list[RecordTime | None]:
    """Find the times of records; None if the cluster does not know.

    Two groups may read one partition: each gets a search, and a request covers one of them.

    Parameters
    ----------
    wanted : sequence of (str, int, int, int)
        Topic, partition, offset, and a time that is likely to be near the record's own. If the log
        has no record at the offset, the next one is meant.
    """
    searches = [
        _RecordSearch(
            offset=offset,
            guess=max(min(near_ms, now_ms), 0),  # below 0 ListOffsets has other meanings
            now_ms=now_ms,
            high_ms=now_ms + 1,
        )
        for _, _, offset, near_ms in wanted
    ]
    for layer in layers([(topic, partition) for topic, partition, _, _ in wanted]):
        for _ in range(STEPS):
            live = {tp: searches[i] for tp, i in layer.items() if not searches[i].ended}
            if not live:
                break
            answers = ask({tp: search.guess for tp, search in live.items()})
            for tp, search in live.items():
                if tp in answers:
                    search.take(answers[tp])
                else:
                    search.over = True
    return [search.found for search in searches]


def layers(tps: Sequence[TopicPartition]) -> list[dict[TopicPartition, int]]:
    """Group indices of ``tps`` into layers, each with every partition at most once."""
    found: list[dict[TopicPartition, int]] = []
    depth: dict[TopicPartition, int] = {}
    for i, tp in enumerate(tps):
        at = depth.get(tp, 0)
        depth[tp] = at + 1
        if at == len(found):
            found.append({})
        found[at][tp] = i
    return found


MOST_QUERIED: Final = 5_000
"""Partitions in one query: a cluster answers a few thousand of them in a second."""

LOOK_BYTES: Final = 1_024
FURTHER_BYTES: Final = 65_536
AT_ONCE: Final = 128
LOOKS: Final = 4
MOST_ALONE: Final = 50
_DELETE_HORIZON = 0x40
"""Attribute of a batch whose first time is that of a coming deletion (KIP-534)."""

Fetch = Callable[[Mapping[TopicPartition, int], int, int], Mapping[TopicPartition, Any]]
"""Takes offsets, bytes of each partition and partitions in a request, and returns the answers of
:meth:`holdfast.cluster.lookup.Lookup.first_batches`."""


class Wanted(NamedTuple):
    """A partition that has not been read to its end."""

    topic: str
    partition: int
    offset: int  # of the first record that may be unread
    end: int  # log end offset
    near_ms: int  # a time that is likely to be near the record's own


@dataclass(frozen=True, slots=True)
class FirstUnread:
    """The first unread record of a partition, as far as a cluster knows."""

    time: RecordTime | None = None  # None if it is not known, or no record exists
    # False: only control records follow the commit. None: not known.
    has_unread: bool | None = None

    def of_lag(self, now_us: int) -> dict[str, Any]:
        """Return the known columns of a row of the table ``lag``."""
        if self.has_unread is False:
            return {"lag_seconds": 0.0, "lag_seconds_basis": None, "has_unread": False}
        found: dict[str, Any] = {"has_unread": self.has_unread}
        if self.time is not None and self.time.ms * 1_000 < now_us:
            found["lag_seconds"] = (now_us - self.time.ms * 1_000) / 1_000_000
            found["lag_seconds_basis"] = "record" if self.time.is_exact else "at_least"
        return found


NOT_KNOWN: Final = FirstUnread()


def first_unread(
    wanted: Sequence[Wanted], fetch: Fetch, ask: Ask, now_ms: int
) -> list[FirstUnread]:
    """Find the first unread record of each partition; two groups may read one partition."""
    looks = [_Look(one.offset, one.end) for one in wanted]
    for layer in layers([(one.topic, one.partition) for one in wanted]):
        _look_at({tp: looks[i] for tp, i in layer.items()}, fetch)
    found = [look.found or NOT_KNOWN for look in looks]
    untimed = [i for i, one in enumerate(found) if one.time is None and one.has_unread is not False]
    searched = [
        (one.topic, one.partition, one.offset, one.near_ms)
        for one in map(wanted.__getitem__, untimed)
    ]
    for i, time in zip(untimed, record_times(searched, ask, now_ms), strict=True):
        found[i] = FirstUnread(time, found[i].has_unread)
    return found


@dataclass(slots=True)
class _Look:
    """What the batches of a partition have shown so far."""

    offset: int  # where the search continues
    end: int
    found: FirstUnread | None = None
    is_large: bool = False
    has_doubtful: bool = False  # records that only some consumers get
    doubtful: RecordTime | None = None  # the time of the first of them

    def take(self, answer: Any) -> None:
        """Skip the control records of an answer, up to the first unread record."""
        began, self.is_large = self.offset, False
        is_aborted = _aborted_by(answer)
        for batch in _batches(answer.records):
            if self.found is not None or batch.base_offset >= self.end:
                break
            self._pass(batch, is_aborted(batch))
        if self.found is not None:
            return
        if self.offset >= self.end:
            self.found = FirstUnread(self.doubtful, None if self.has_doubtful else False)
        elif self.offset >= answer.last_stable_offset:  # of an open transaction
            self.found = FirstUnread(self.doubtful)
        else:
            self.is_large = self.offset == began

    def _pass(self, batch: Any, is_aborted: bool) -> None:
        """Skip a batch without an unread record."""
        if batch.next_offset <= self.offset:
            return
        if not batch.is_control_batch and batch.records_count:
            is_there, time = _first_of(batch, self.offset)
            if is_there and not is_aborted:
                self.found = FirstUnread(time, True)
                return
            if is_there and not self.has_doubtful:
                self.has_doubtful, self.doubtful = True, time
        self.offset = batch.next_offset


def _look_at(looks: Mapping[TopicPartition, _Look], fetch: Fetch) -> None:
    """Fetch the batches of partitions until all are known, within bounds."""
    live = dict(looks)
    n_bytes, n_alone = LOOK_BYTES, MOST_ALONE
    for _ in range(LOOKS):
        large = sorted(
            (tp for tp, look in live.items() if look.is_large),
            key=lambda tp: live[tp].end - live[tp].offset,
        )
        small = {tp: look.offset for tp, look in live.items() if not look.is_large}
        alone = {tp: live[tp].offset for tp in large[:n_alone]}
        n_alone -= len(alone)
        answers = {**(fetch(small, n_bytes, AT_ONCE) if small else {})}
        answers |= fetch(alone, 1, 1) if alone else {}
        n_bytes = FURTHER_BYTES
        for tp in small.keys() | alone.keys():
            look = live[tp]
            try:
                look.take(answers[tp])
            except Exception:  # no answer, or a damaged one: the record is requested by time
                look.found = NOT_KNOWN
        live = {tp: look for tp, look in live.items() if look.found is None}
        if not live:
            return


def _aborted_by(answer: Any) -> Callable[[Any], bool]:
    """Return a function that says whether a batch holds records of an aborted transaction.

    It takes the batches of the answer in the order of the log.
    """
    listed = answer.aborted_transactions or ()
    coming = sorted(((one.first_offset, one.producer_id) for one in listed), reverse=True)
    producers: set[int] = set()  # with an aborted transaction that has begun and not ended

    def is_aborted(batch: Any) -> bool:
        while coming and coming[-1][0] <= batch.next_offset - 1:
            producers.add(coming.pop()[1])
        if batch.is_control_batch:
            producers.discard(batch.producer_id)
            return False
        return batch.is_transactional and batch.producer_id in producers

    return is_aborted


def _batches(records: bytes | None) -> Iterator[Any]:
    """Yield batches with a header of today's layout, which all records of transactions have."""
    from kafka.record.default_records import DefaultRecordBatch
    from kafka.record.memory_records import MemoryRecords

    for batch in MemoryRecords(records or b""):
        if not isinstance(batch, DefaultRecordBatch):
            raise TypeError("a message set from before Kafka 0.11")
        yield batch


def _first_of(batch: Any, offset: int) -> tuple[bool, RecordTime | None]:
    """Return whether a batch has a record at ``offset`` or later, and the time of the first."""
    from kafka.errors import UnsupportedCodecError

    is_whole = batch.base_offset >= offset and not batch.attributes & _DELETE_HORIZON
    if is_whole:
        at_append = batch.timestamp_type == batch.LOG_APPEND_TIME
        return True, _known(batch.max_timestamp if at_append else batch.first_timestamp, True)
    try:
        for record in batch:
            if record.offset >= offset:
                return True, _known(record.timestamp, True)
    except UnsupportedCodecError:  # the records cannot be read here: none is later than this time
        return True, _known(batch.max_timestamp, False)
    return False, None


def _known(ms: int, is_exact: bool) -> RecordTime | None:
    """Return a time; None for a record without one, for which Kafka has -1."""
    return RecordTime(ms, is_exact) if ms >= 0 else None

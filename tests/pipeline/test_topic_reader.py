"""The log of a topic, read to its end while it is written and cleaned. No broker, no Spark."""

from __future__ import annotations

import gzip
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.topic_in_memory import OffsetsLog, done, read_whole
from tests.wire.log_twin import Batch

from holdfast.cluster.lookup import EARLIEST, FetchedLog
from holdfast.errors import SourceError
from holdfast.fleet.pipeline.ingest import offsets_topic
from holdfast.fleet.pipeline.ingest.offsets_topic import TopicReader, unpack

OPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "begin", "end", "abort", "delete", "clean", "wipe"]),
        st.sampled_from(["a", "b", "cc"]),
        st.integers(0, 1),
        st.integers(0, 9),
    ),
    max_size=40,
)


def play(log, op):
    what, group, number, offset = op
    match what:
        case "commit":
            log.commit(group, "t", number, offset)
        case "begin":
            log.commit(group, "t", number, offset, producer=number)
        case "end" | "abort":
            log.end(number, commit=what == "end")
        case "delete":
            log.delete(group)
        case "clean" | "wipe":
            log.clean(tombstones=what == "wipe", active=offset % 3)


def positions(rows):
    """The last commit of each key, by the records alone."""
    found = {}
    ordered = rows.sort_by([("partition", "ascending"), ("offset", "ascending")])
    for row in ordered.to_pylist():
        found[row["key"]] = row["value"]
    return {key: value for key, value in found.items() if value is not None}


def told(log):
    """What the coordinator knows: the value of the record behind each position."""
    values = {(p, e.offset): (e.key, e.value) for p, e, _ in log.written}
    return dict(
        values[log.partition_of(group), record]
        for (group, _, _), (_, record) in log.positions.items()
    )


@given(OPS)
def test_the_last_records_are_the_positions_of_the_coordinator(ops):
    log = OffsetsLog()
    for op in ops:
        play(log, op)
    reader, rows = read_whole(log)
    assert positions(rows) == told(log)
    waiting = {(p, e.offset) for p, own in log.log.items() for e in own if e.state == "waits"}
    held = reader.transactions.table()
    pairs = zip(held["partition"].to_pylist(), held["offset"].to_pylist(), strict=True)
    assert {*pairs} == waiting
    assert reader.missing_until == {}


@given(OPS, st.lists(st.lists(OPS.map(lambda ops: ops[:4]), max_size=1), max_size=6))
def test_what_is_cleaned_while_it_is_read_is_not_missed(ops, meanwhile):
    """Records are superseded and cleaned between the requests of one read."""
    log = OffsetsLog()
    for op in ops:
        play(log, op)
    # Deletions apart, no key may be lost: tombstones that go at once are another matter.
    for some in meanwhile:
        kept = [op for own in some for op in own if op[0] not in ("delete", "wipe")]
        log.on_fetch.append(lambda kept=kept: [play(log, op) for op in kept])
        log.on_fetch.append(lambda: log.clean(active=0))
    reader, rows = read_whole(log)
    found, wanted = positions(rows), told(log)
    log.on_fetch.clear()
    # What was written behind the end that was read may have a later value, but every key is there.
    behind = {
        e.key for p, e, _ in log.written if e.offset >= reader.reached.get(p, 0) or e.producer >= 0
    }
    assert {k: v for k, v in found.items() if k not in behind} == {
        k: v for k, v in wanted.items() if k not in behind
    }
    assert reader.missing_until == {}


def test_a_key_that_is_superseded_behind_the_planned_end_is_found_there():
    log = OffsetsLog(n_partitions=1)
    log.commit("busy", "t", 0, 1)
    log.commit("idle", "t", 0, 1)

    def supersede():
        log.commit("busy", "t", 0, 2)
        log.commit("new", "t", 0, 3)
        log.clean()

    log.on_fetch = [supersede]
    _, rows = read_whole(log)
    assert rows["offset"].to_pylist() == [1, 2, 3] and positions(rows) == told(log)


def test_a_topic_that_is_cleaned_at_every_look_is_reported():
    log = OffsetsLog(n_partitions=1)
    for _ in range(2):
        log.commit("busy", "t", 0, 1)

    def again():
        for _ in range(2):
            log.commit("busy", "t", 0, 1)
        log.clean()

    log.on_fetch = [again] * 99
    reader, _ = read_whole(log)
    assert log.fetched == offsets_topic.MOST_READS and set(reader.missing_until) == {0}


def test_a_read_ends_at_its_end_offset(monkeypatch):
    log = OffsetsLog(n_partitions=1)
    for offset in range(20):
        log.commit("g", "t", 0, offset, producer=3 if offset == 4 else -1)
    log.end(3)
    with log.connected() as asked:
        reader = TopicReader(asked, "o")
        rows = pa.concat_tables(reader.read({0: (2, 9)}))
        assert rows["offset"].to_pylist() == [2, 3, 5, 6, 7, 8] and reader.reached == {0: 9}
        late = pa.concat_tables(reader.read({0: (9, 21)}))
        assert sorted(late["offset"].to_pylist()) == [4, *range(9, 20)]  # it counts at its end
        assert not list(reader.read({0: (5, 5)})) and reader.reached[0] == 5


class Deleted(OffsetsLog):
    """A topic whose records before ``begin`` are deleted while it is read."""

    begin = 0

    def fetch(self, topic, offsets):
        gone = [p for p, at in offsets.items() if at < self.begin]
        if gone:
            return done({p: FetchedLog(records=b"", is_out_of_range=True) for p in gone})
        return super().fetch(topic, offsets)

    def list_offsets(self, places, at, *, committed_only=None):
        if at == EARLIEST:
            return done(dict.fromkeys(places, self.begin))
        return super().list_offsets(places, at, committed_only=committed_only)


def test_records_that_retention_takes_while_they_are_read_are_left_out():
    log = Deleted(n_partitions=1)
    for offset in range(6):
        log.commit("g", "t", 0, offset)
    log.begin = 4
    with log.connected() as asked:
        reader = TopicReader(asked, "o")
        assert pa.concat_tables(reader.read({0: (1, 6)}))["offset"].to_pylist() == [4, 5]
        assert reader.missing_until == {0: 4}
        assert not list(TopicReader(asked, "o").read({0: (1, 3)}))


def test_a_leader_without_records_ends_the_read(monkeypatch):
    monkeypatch.setattr(offsets_topic, "MOST_EMPTY", 3)
    log = OffsetsLog(n_partitions=1)
    with log.connected() as asked, pytest.raises(SourceError, match="no record from offset 0 on"):
        list(TopicReader(asked, "o").read({0: (0, 2)}))
    assert log.fetched == 4


def test_a_hole_at_the_end_of_a_log_is_stepped_over(monkeypatch):
    monkeypatch.setattr(offsets_topic, "MOST_EMPTY", 3)
    log = OffsetsLog(n_partitions=1)
    for offset in range(3):
        log.commit("g", "t", 0, offset)
    del log.log[0][2]
    fetch = log.fetch
    log.fetch = lambda topic, offsets: done(
        {p: replace(found, end=3) for p, found in fetch(topic, offsets).result().items()}
    )
    reader, rows = read_whole(log)
    assert rows["offset"].to_pylist() == [0, 1] and reader.reached == {0: 3}


# Codecs

PLAIN = b"".join(
    Batch(base=0, last=0, records=[(0, 0, b"k" * n, b"v" * 50)]).encode() for n in range(99)
)


def packed(codec, data=PLAIN):
    if codec == "gzip":
        return gzip.compress(data)
    if codec == "xerial":
        blocks = [data[at : at + 700] for at in range(0, len(data), 700)]
        parts = [bytes(pa.Codec("snappy").compress(block)) for block in blocks]
        head = b"\x82SNAPPY\0" + b"\0\0\0\1" * 2
        return head + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return bytes(pa.Codec(codec).compress(data))


@pytest.mark.parametrize(
    ("number", "codec"), [(1, "gzip"), (2, "snappy"), (2, "xerial"), (3, "lz4"), (4, "zstd")]
)
def test_every_codec(number, codec):
    assert unpack(number, packed(codec)) == PLAIN


@pytest.mark.parametrize(("number", "codec"), [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")])
def test_records_that_unpack_to_far_more_than_their_size_are_refused(number, codec, monkeypatch):
    monkeypatch.setattr(offsets_topic, "_MOST_UNPACKED", 1000)
    monkeypatch.setattr(offsets_topic, "_MOST_FACTOR", 2)
    with pytest.raises(SourceError, match="expected at most"):
        unpack(number, packed(codec, bytes(100_000)))


def spoiled(at, byte):
    """A batch with another byte at a position: 16 is its format, 22 its codec."""
    log = OffsetsLog(n_partitions=1)
    log.commit("g", "t", 0, 1)
    blob = log.log[0][0].batch(0).encode()
    return FetchedLog(records=blob[:at] + bytes([byte]) + blob[at + 1 :])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (FetchedLog(records=b"", is_out_of_range=True), "ends before offset 0"),
        (spoiled(16, 1), r"partition 0 of o .* offset 0"),
        *((spoiled(22, number), "cannot be read from offset 0") for number in (1, 2, 3, 4)),
    ],
)
def test_an_answer_that_no_leader_gives_is_an_error(answer, said):
    """The log is shorter than it was, its records do not parse, or no codec wrote them."""
    log = Deleted(n_partitions=1)
    log.fetch = lambda topic, offsets: done({0: answer})
    with log.connected() as asked, pytest.raises(SourceError, match=said):
        list(TopicReader(asked, "o").read({0: (0, 1)}))


def test_a_codec_that_is_not_there_is_named(monkeypatch):
    with pytest.raises(SourceError, match="packed with codec 5"):
        unpack(5, b"")
    codecs = SimpleNamespace(Codec=SimpleNamespace(is_available=lambda name: False))
    monkeypatch.setattr(offsets_topic, "pa", codecs)
    with pytest.raises(SourceError, match="packed with zstd, which this pyarrow does not have"):
        unpack(4, packed("zstd"))

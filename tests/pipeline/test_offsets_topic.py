"""The offsets topic: what a batch takes of it, how far a folder has read, and its log. No Spark."""

from __future__ import annotations

import ast
import gzip
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from tests.pipeline.topic_in_memory import OffsetsLog, done, read_whole
from tests.source import TREES, trees
from tests.wire.log_twin import Batch as LogBatch

from holdfast.cluster.cluster import PartitionEnds
from holdfast.cluster.lookup import EARLIEST, FetchedLog
from holdfast.errors import SourceError
from holdfast.fleet.pipeline.batches.watch import Stream, follow
from holdfast.fleet.pipeline.ingest import offsets_topic
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.offsets_topic import (
    LogPart,
    TopicReader,
    check_session,
    ends_of_batch,
    next_span,
    unpack,
)
from holdfast.fleet.pipeline.session import reading
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables

ENDS = st.dictionaries(
    st.integers(0, 4),
    st.tuples(st.integers(0, 9), st.integers(0, 90)).map(lambda t: (t[0], sum(t))),
)


@given(ENDS, st.none() | st.integers(1, 40))
def test_batches_follow_each_other_and_take_everything_once(ends, most):
    taken = {p: [] for p in ends}
    done, sizes = {}, []
    while span := next_span(done, ends, most):
        for p, (begin, end) in span.items():
            taken[p] += range(begin, end)
        done = {p: end for p, (_, end) in span.items()}
        sizes.append(sum(end - begin for begin, end in span.values()))
    assert taken == {p: list(range(*span)) for p, span in ends.items()}
    assert all(sizes) and (most is None or max(sizes, default=0) <= most + len(ends))
    assert most is not None or len(sizes) <= 1


def test_records_that_were_deleted_in_the_meantime_are_left_out():
    assert next_span({0: 5}, {0: (7, 9)}, None) == {0: (7, 9)}
    assert next_span({0: 5}, {0: (5, 5)}, None) == {}


def test_another_topic_is_not_followed():
    with pytest.raises(SourceError, match=r"partition 1 .* ends at 4, .* has read up to 5"):
        next_span({0: 1, 1: 5}, {0: (0, 9), 1: (0, 4)}, None)


def test_a_batch_says_where_it_ended():
    assert ends_of_batch(Batch(id=8, notes={"offsets": {"0": 1}})) == {0: 1}
    assert ends_of_batch(Batch(id=8)) is None


class Growing:
    """A feed that has more at the second look, is gone at the third, and then ends the test."""

    session = None

    def __init__(self):
        self.looks = 0

    def ends(self):
        self.looks += 1
        if self.looks == 3:
            raise SourceError("nobody listens")
        if self.looks > 3:
            raise KeyboardInterrupt
        return {0: PartitionEnds(0, self.looks * 10, self.looks * 10)}

    def here(self, span, waiting):
        return LogPart(rows=span, upto={p: end for p, (_, end) in span.items()})


def test_a_stream_looks_again_and_again_and_takes_what_is_new(tmp_path, monkeypatch):
    took, waits, held, seen, told, looked = [], [], [], [], [], []

    def take(self, part, session):
        batch_id = self.tables.next_batch()
        took.append((batch_id, part.rows))
        notes = {"query": "q", "state": {}, "offsets": {str(p): o for p, o in part.upto.items()}}
        self.tables.commit(Batch(id=batch_id, files={}, notes=notes))
        return batch_id

    monkeypatch.setattr(Stream, "process", take)
    monkeypatch.setattr(Stream, "look", lambda self, session: looked.append(len(took)) or True)
    into = Stream(
        Tables(tmp_path / "T"),
        snapshot=None,
        selection=Selection(),
        every_seconds=30,
        max_records=6,
        before_batch=lambda n, n_new: held.append((n, n_new)),
        after_batch=lambda _, batch: seen.append(batch),
        after_look=lambda _, error: told.append(error and str(error)),
    )
    with pytest.raises(KeyboardInterrupt):
        follow(Growing(), into, wait=waits.append)
    spans = [(0, {0: (0, 6)}), (1, {0: (6, 10)}), (2, {0: (10, 16)}), (3, {0: (16, 20)})]
    assert took == spans and held == [(6, 10), (4, 4), (6, 10), (4, 4)] and seen == [0, 1, 2, 3]
    assert len(waits) == 3 and all(0 < seconds <= 30 for seconds in waits)
    # The cluster was away once, which is told; log ends were read where nothing was new.
    assert told == ["nobody listens", None] and looked == [4]


def test_a_session_that_would_read_nothing_is_refused():
    class Conf:
        def get(self, key, default):
            return "false"

    class Session:
        conf = Conf()

    with pytest.raises(SourceError, match="useDeprecatedOffsetFetching must be true"):
        check_session(Session())


def test_a_session_without_the_kafka_connector_learns_how_to_have_it():
    missing = AnalysisException("Failed to find data source: kafka. Please deploy the application.")
    with pytest.raises(SourceError) as caught, reading("__consumer_offsets of a:1"):
        raise missing
    assert "holdfast.spark.get_session(kafka=True)" in str(caught.value)
    assert "spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:" in str(caught.value)


@TREES
def test_no_stream_of_sparks_own_is_started():
    """A Connect server gives the Python of one 10 s to come up, and a busy machine needs more."""
    names = {"writeStream", "readStream", "foreachBatch"}
    nodes = (node for tree in trees().values() for node in ast.walk(tree))
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert "mapInArrow" in used and not used & names


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
    LogBatch(base=0, last=0, records=[(0, 0, b"k" * n, b"v" * 50)]).encode() for n in range(99)
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

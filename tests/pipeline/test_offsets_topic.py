"""What a batch of a stream takes, and where a folder keeps how far it has read. No Spark."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from tests.source import TREES, trees

from holdfast.cluster.cluster import PartitionEnds
from holdfast.errors import SourceError
from holdfast.fleet.pipeline.batches.watch import Stream, follow
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.offsets_topic import (
    LogPart,
    check_session,
    ends_of_batch,
    next_span,
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

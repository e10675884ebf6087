"""Which records of a log count, wherever it is cut: as a slow twin of the coordinator has it."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline import fleet
from tests.wire.log_twin import Batch, end_of_transaction, logs, unpack

from holdfast.cli.histories import report_open
from holdfast.cli.updater import BatchReporter
from holdfast.core.wire.many.record_batches import ABORT, COMMIT, DATA, read_batches
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.source import RECORDS
from holdfast.fleet.pipeline.ingest.transactions import (
    WAITING,
    OpenTransaction,
    OpenTransactions,
    described,
    from_notes,
)
from holdfast.fleet.tables.folder.manifest import Batch as TableBatch
from holdfast.fleet.tables.reading import Tables


def twin(batches):
    """Offsets in the order in which they begin to count, and those that wait, by producer."""
    counts, waiting = [], {}
    for batch in batches:
        for offset, _, producer_id, transactional, marker, *_ in batch.rows():
            if marker == DATA and transactional:
                waiting.setdefault(producer_id, []).append(offset)
            elif marker == DATA:
                counts.append(offset)
            elif marker in (ABORT, COMMIT):
                counts += waiting.pop(producer_id, []) if marker == COMMIT else []
                waiting.pop(producer_id, None)
    return counts, {pid: offsets for pid, offsets in waiting.items() if offsets}


def read(batches, start=0):
    return read_batches(b"".join(batch.encode() for batch in batches), start, unpack)


def offsets(tables):
    return [offset for rows in tables for offset in rows["offset"].to_pylist()]


@given(logs(most=10), st.lists(st.integers(0, 10), max_size=4), st.booleans())
def test_what_counts_and_what_waits_wherever_the_log_is_cut(batches, cuts, kept_between):
    transactions, counted = OpenTransactions(), []
    bounds = [0, *sorted(cuts), len(batches)]
    for low, high in pairwise(bounds):
        if kept_between:  # as a stream does that was stopped here
            transactions = OpenTransactions(transactions.table())
        counted += offsets(transactions.take(7, read(batches[low:high])))
        wanted, waiting = twin(batches[:high])
        assert sorted(counted) == sorted(wanted)
        table = transactions.table()
        assert table.schema == WAITING and set(table["partition"].to_pylist()) <= {7}
        found = {}
        for row in table.to_pylist():
            found.setdefault(row["producer_id"], []).append(row["offset"])
        assert found == waiting


def test_a_record_has_its_own_position_however_late_it_counts():
    log = [
        Batch(base=0, last=0, records=[(0, 1, b"a", b"1")], producer_id=5, transactional=True),
        Batch(base=1, last=1, records=[(1, 2, b"a", None)]),
    ]
    transactions = OpenTransactions()
    (now,) = transactions.take(3, read(log))
    assert now.schema == RECORDS and now["value"].to_pylist() == [None]
    late, nothing = transactions.take(3, read([end_of_transaction(2, 5, COMMIT)], 2))
    assert late.to_pylist()[0]["offset"] == 0 and not nothing.num_rows
    assert not transactions.table().num_rows


def test_times_that_no_table_holds_stay_such():
    log = [Batch(base=0, last=1, records=[(0, 2**62, b"", b""), (1, -(2**62), None, b"")])]
    (rows,) = OpenTransactions().take(0, read(log))
    first, last = rows["timestamp"].cast(pa.int64()).to_pylist()
    assert first > 253_402_300_799_999_999 and last < -62_135_596_800_000_000
    assert rows["key"].to_pylist() == [b"", None]


def test_an_open_transaction_is_named_with_its_groups():
    def commit(offset, group, at):
        return offset, at * 1000, *fleet.commit(group, "t", 0, 1, at=at)

    names = [f"g-{i}" for i in range(7)]
    log = [
        Batch(
            base=0,
            last=6,
            records=[commit(i, name, 100 + i) for i, name in enumerate(names)],
            producer_id=4001,
            transactional=True,
        ),
        Batch(base=7, last=7, records=[commit(7, "é", 90)], producer_id=17, transactional=True),
    ]
    transactions = OpenTransactions()
    assert offsets(transactions.take(2, read(log))) == []
    found = described(transactions.table(), Selection(all_groups=True))
    assert [(one.producer_id, one.first_offset, one.n_records) for one in found] == [
        (4001, 0, 7),
        (17, 7, 1),
    ]
    assert found[0].groups == tuple(names[:5]) and found[1].groups == ("é",)
    assert found[0].since_us == 100_000_000
    assert from_notes([one.as_note() for one in found]) == found
    (chosen,) = described(transactions.table(), Selection(groups=["g-3"]))
    assert (chosen.first_offset, chosen.n_records, chosen.groups) == (3, 1, ("g-3",))


@pytest.mark.parametrize("kind", [ABORT, COMMIT, 2])
def test_a_marker_of_another_kind_ends_nothing(kind):
    log = [Batch(base=0, last=0, records=[(0, 1, b"a", b"1")], producer_id=5, transactional=True)]
    transactions = OpenTransactions()
    found = offsets(transactions.take(0, read([*log, end_of_transaction(1, 5, kind)])))
    assert (found, transactions.table().num_rows) == {
        ABORT: ([], 0),
        COMMIT: ([0], 0),
        2: ([], 1),
    }[kind]


def open_since(seconds, **said):
    known = {"partition": 2, "producer_id": 17, "first_offset": 8, "n_records": 1, "groups": ("g",)}
    return OpenTransaction(**{**known, "since_us": (1_000_000 - seconds) * 1_000_000, **said})


TAKEN = "1970-01-12T13:46:40+00:00"
SAID = (
    "a transaction of producer 17 is open in partition 2 of __consumer_offsets since "
    "1970-01-12T13:46:20Z: 1 record of g counts once it is committed"
)


def test_a_transaction_that_is_open_for_long_is_reported():
    said = []
    report_open([open_since(20), open_since(3)], TAKEN, said.append)
    report_open([open_since(20)], "", said.append)
    assert said == [SAID]
    report_open([open_since(20, groups=("a\n", "b"), n_records=5)], TAKEN, said.append)
    assert said[1].endswith("5 records of a\\u000a, b count once it is committed")


def test_a_stream_reports_each_open_transaction_once(tmp_path):
    tables, said = Tables(tmp_path), []
    reporter = BatchReporter(said.append)
    for batch, found in enumerate(([], [open_since(20)], [open_since(20), open_since(30)])):
        notes = {"open_transactions": [one.as_note() for one in found], "taken_at": TAKEN}
        tables.commit(TableBatch(id=batch, files={}, notes=notes))
        reporter.after_batch(tables, batch)
        reporter.report_open(tables)
    # It is one transaction, whose first record is at one offset.
    assert said == [SAID]

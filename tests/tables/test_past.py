"""Earlier batches are read whole, and a reader keeps the batch that it has opened."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import pytest
from tests.cli.running import run
from tests.tables.test_commits import written

from holdfast.errors import SourceError
from holdfast.tables import commits
from holdfast.tables.manifest import Batch
from holdfast.tables.reading import Tables
from holdfast.tables.upkeep import merge
from holdfast.tables.writing import BatchWriter, files_of


def groups(tables, name="generations"):
    return sorted(tables.table(name)["group"].to_pylist())


def two_tables(root, batch):
    """A batch of two tables with one row each, so that a torn one is seen."""
    out = BatchWriter(str(root), batch)
    for name in ("generations", "rebalances"):
        from tests.tables.test_upkeep import filled

        out.write(name, filled(name, 1, group=[f"g{batch}"]))
    return Batch(id=batch, files=files_of(out.close()))


def test_an_earlier_batch_is_read_whole(tmp_path):
    """Also where upkeep has merged its files since, and where a later batch brought no rows."""
    tables, times = Tables(tmp_path), []
    with tables.writing() as writer:
        for batch in range(6):
            tables.commit(two_tables(tmp_path, batch), writer=writer)
            times.append(time.time_ns() // 1_000_000)
            time.sleep(0.005)
            if batch == 3:
                merge(tables, writer, everything=True)
        tables.commit(Batch(id=6, files={}), writer=writer)
    for batch, at_ms in enumerate(times):
        for old in (tables.at(batch=batch), tables.at(at_ms=at_ms)):
            names = [f"g{i}" for i in range(batch + 1)]
            assert groups(old) == groups(old, "rebalances") == names
            assert old.rows("generations") == batch + 1
            assert old.batches()[-1].id == batch
    assert len(groups(tables)) == 6


def test_what_a_dead_writer_left_belongs_to_no_batch(tmp_path, monkeypatch):
    tables = Tables(tmp_path)
    tables.commit(written(tmp_path, 0, "a"))
    with monkeypatch.context() as patch:

        def dies(*_args, **_kwargs):
            raise KeyboardInterrupt

        patch.setattr(commits, "commit_manifest", dies)
        with pytest.raises(KeyboardInterrupt):
            tables.commit(written(tmp_path, 1, "died"))
        with pytest.raises(KeyboardInterrupt):
            tables.commit(written(tmp_path, 2, "died too"))
    assert groups(Tables(tmp_path)) == ["a"]
    with pytest.raises(SourceError, match="no batch 2 within reach: it goes from batch 0 "):
        Tables(tmp_path).at(batch=2)
    died_ms = time.time_ns() // 1_000_000
    assert groups(Tables(tmp_path).at(at_ms=died_ms)) == ["a"]
    Tables(tmp_path).commit(written(tmp_path, 1, "b"))
    assert groups(Tables(tmp_path).at(batch=0)) == ["a"]
    assert groups(Tables(tmp_path).at(batch=1)) == ["a", "b"]
    assert groups(Tables(tmp_path).at(at_ms=died_ms)) == ["a"]
    with pytest.raises(SourceError, match="no batch 2 within reach"):
        Tables(tmp_path).at(batch=2)


def test_a_pinned_reader_goes_on_while_others_commit_merge_and_tidy(tmp_path, monkeypatch):
    monkeypatch.setattr(commits, "TIDY_EVERY", 1)
    tables = Tables(tmp_path)
    with tables.writing() as writer:
        for batch in range(3):
            tables.commit(two_tables(tmp_path, batch), writer=writer)
        pinned = Tables(tmp_path).pinned()
        for batch in range(3, 8):
            tables.commit(two_tables(tmp_path, batch), writer=writer)
            merge(tables, writer, everything=True)
            assert groups(pinned) == groups(pinned, "rebalances") == ["g0", "g1", "g2"]
            assert groups(pinned.hold()) == ["g0", "g1", "g2"]
            assert pinned.next_batch() == 3
    assert len(groups(tables)) == 8


def test_a_batch_whose_files_are_deleted_is_out_of_reach(tmp_path, monkeypatch):
    monkeypatch.setattr(commits, "TIDY_EVERY", 1)
    monkeypatch.setattr(commits, "KEPT_HOURS", 0)
    tables = Tables(tmp_path)
    with tables.writing() as writer:
        for batch in range(3):
            tables.commit(two_tables(tmp_path, batch), writer=writer)
        merge(tables, writer, everything=True)
        time.sleep(commits.CLOCKS_MS / 1000)
        tables.commit(two_tables(tmp_path, 3), writer=writer)
        tables.commit(two_tables(tmp_path, 4), writer=writer)
    with pytest.raises(SourceError, match="no batch 0 within reach"):
        tables.at(batch=0)
    before = datetime(2001, 1, 1, tzinfo=UTC)
    text = re.escape("no batch at 2001-01-01T00:00:00+00:00 within reach")
    with pytest.raises(SourceError, match=text):
        tables.at(at_ms=int(before.timestamp() * 1000))


def test_commands_show_the_tables_as_they_were(tmp_path):
    tables = Tables(tmp_path)
    for batch in range(2):
        tables.commit(two_tables(tmp_path, batch))

    def shown(at):
        words = ("history", "--input", str(tmp_path), "--table", "generations", "--at", at)
        done = run(*words, "--format", "csv")
        return done.code, [line.split(",")[0] for line in done.out.splitlines()[1:]], done.err

    now = datetime.now(UTC).isoformat()
    assert shown("0")[:2] == (0, ["g0"]) and shown(now)[:2] == (0, ["g0", "g1"])
    code, _, told = shown("7")
    assert code == 3 and "it goes from batch 0 (" in told
    code, _, told = shown("yesterday")
    assert code == 2 and "expected a batch's number or a time" in told
    done = run("doctor", "-b", "localhost:1", "--at", "0")
    assert done.code == 2 and "--at is for tables" in done.err

"""A reader keeps the batch that it has opened, while others commit, merge and tidy."""

from __future__ import annotations

from holdfast.fleet.tables.folder import commits
from holdfast.fleet.tables.folder.files import BatchWriter, files_of
from holdfast.fleet.tables.folder.maintenance import merge
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables


def groups(tables, name="generations"):
    return sorted(tables.table(name)["group"].to_pylist())


def two_tables(root, batch):
    """A batch of two tables with one row each, so that a torn one is seen."""
    out = BatchWriter(str(root), batch)
    for name in ("generations", "rebalances"):
        from tests.tables.test_maintenance import filled

        out.write(name, filled(name, 1, group=[f"g{batch}"]))
    return Batch(id=batch, files=files_of(out.close()))


def test_a_reader_of_a_snapshot_goes_on_while_others_commit_merge_and_tidy(tmp_path, monkeypatch):
    monkeypatch.setattr(commits, "TIDY_EVERY", 1)
    tables = Tables(tmp_path)
    with tables.writing():
        for batch in range(3):
            tables.commit(two_tables(tmp_path, batch))
        at_snapshot = Tables(tmp_path).at_snapshot()
        for batch in range(3, 8):
            tables.commit(two_tables(tmp_path, batch))
            merge(tables.folder, everything=True)
            assert groups(at_snapshot) == groups(at_snapshot, "rebalances") == ["g0", "g1", "g2"]
            assert groups(at_snapshot.load()) == ["g0", "g1", "g2"]
            assert at_snapshot.next_batch() == 3
    assert len(groups(tables)) == 8

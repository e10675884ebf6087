"""Whatever a footer says, its file is read or refused in one sentence, and the process goes on."""

from __future__ import annotations

import resource

import pytest
from tests.pipeline import fleet
from tests.suites import long
from tests.tables.footers import forged
from tests.tables.test_commits import written

from holdfast.errors import HoldfastError, SourceError
from holdfast.fleet.pipeline.ingest.source import Dump, read_pieces
from holdfast.fleet.pipeline.steps import pieces
from holdfast.fleet.tables.reading import Tables, read_tables
from holdfast.fleet.tables.storage.parquet import BoundedParquet

MOST_MIB = 64
"""Of a file of some kB: more than once its size, but no number of a footer."""


def tables_of(folder):
    Tables(folder).commit(written(folder, 0, *(f"g{i}" for i in range(50))))
    (file,) = Tables(folder).files("generations")

    def read():
        read_tables(folder)
        tables = Tables(folder)
        assert tables.groups is not None
        tables.newest_ms("generations")
        tables.table("generations", groups=["g1"])

    return file, read


def records_of(folder):
    commits = [("g", n, fleet.commit("g", "t", 0, n, at=n)) for n in range(50)]
    path = fleet.write_dump(folder, commits, topics=[("t", 1)])

    def read():
        dump = Dump.open(path)
        dump.n_records(), dump.newest_us(), dump.group_names()
        for part in pieces([str(file) for file in dump.record_files()], 1):
            list(read_pieces(part))

    return path / "records" / "0.parquet", read


@pytest.mark.parametrize("of", [tables_of, records_of])
@pytest.mark.parametrize("part", long(range(24)))
def test_no_number_of_a_footer_is_believed(tmp_path, of, part):
    file, read = of(tmp_path / "made")
    read()
    before, n_refused = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    for data in list(forged(file.read_bytes()))[part::24]:
        file.write_bytes(data)
        try:
            read()
        except HoldfastError as error:
            n_refused += 1
            assert "\n" not in str(error)
    assert n_refused > 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MIB << 10


def test_a_file_without_a_footer_is_told_so(tmp_path):
    file, _ = records_of(tmp_path / "made")
    for data in (b"", b"PAR1", b"PAR1\0\0\0\0PAR1", file.read_bytes()[:-1]):
        file.write_bytes(data)
        with pytest.raises(SourceError, match="not readable as Parquet") as told:
            BoundedParquet(file)
        assert "\n" not in str(told.value)

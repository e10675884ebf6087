"""How the files of a batch are written: what bounds they have, and how times are encoded."""

from __future__ import annotations

import pyarrow.parquet as pq
from tests.tables.test_maintenance import filled

from holdfast.fleet.tables.folder.files import BOUNDED, BatchWriter, files_of


def columns_of(file):
    about = pq.read_metadata(file)
    group = about.row_group(0)
    return {group.column(i).path_in_schema: group.column(i) for i in range(about.num_columns)}


def test_a_file_has_bounds_of_what_is_looked_up_and_times_as_differences(tmp_path):
    writer = BatchWriter(str(tmp_path), 0)
    rows = filled("offset_commits", 50)
    writer.write("offset_commits", rows)
    ((name, _),) = files_of(writer.close())["offset_commits"]
    columns = columns_of(tmp_path / name)
    assert {n for n, column in columns.items() if column.is_stats_set} == {
        n for n in BOUNDED if n in rows.column_names
    }
    times = {n for n in rows.column_names if str(rows.schema.field(n).type).startswith("timestamp")}
    assert len(times) == 3
    assert times == {n for n, c in columns.items() if "DELTA_BINARY_PACKED" in c.encodings}
    assert pq.read_table(tmp_path / name).equals(rows)

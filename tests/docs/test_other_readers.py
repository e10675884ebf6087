"""What docs/pipeline.md says of reading tables without holdfast runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
from tests.tables.test_maintenance import committed, filled

from holdfast.fleet.tables.reading import Tables

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"


class PlainSpark:
    """``spark.read.parquet``: the files of a call, read at once and as they are."""

    @property
    def read(self):
        return self

    def parquet(self, *files):
        return pq.ParquetDataset([file.removeprefix("file://") for file in files]).read()


def test_every_snippet_runs_and_finds_the_rows(tmp_path):
    tables = Tables(tmp_path)
    with tables.writing():
        for batch, cause in enumerate(("join", "leave", "join")):
            rows = filled("rebalances", 1, group=["g"], cause=[cause])
            committed(tables, batch, rebalances=rows, lag=filled("lag", 1))
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = {"DIR": str(tmp_path), "spark": PlainSpark()}
    for snippet in snippets:
        exec(snippet, names)
    assert len(names["pandas_frame"]) == names["polars_frame"].height == 3
    assert sorted(names["causes"]) == [("join", 2), ("leave", 1)]
    assert names["spark_frame"].num_rows == 3

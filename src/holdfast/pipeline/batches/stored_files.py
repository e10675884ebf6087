"""Files of tables as a Spark frame: by Spark from a disk, by Arrow in the tasks from a store.

**Rules.** The frame has the columns of a definition, whichever the files have: one that is not
there is null. Spark needs no jar and no credentials for a store
(:mod:`holdfast.pipeline.ingest.pieces`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.pipeline.arrow_types import Batches
from holdfast.pipeline.batches.schemas import ddl_of
from holdfast.pipeline.ingest.pieces import n_parts, named, numbers, pieces
from holdfast.pipeline.ingest.source import plain_reader
from holdfast.tables.storage.clients import telling
from holdfast.tables.storage.parquet import open_parquet
from holdfast.tables.storage.places import Place, StorePath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of_files(spark: SparkSession, files: Sequence[Place], schema: pa.Schema) -> DataFrame:
    """Parquet files as a frame of these columns, in no order."""
    ddl = ddl_of(schema)
    if not files:
        return spark.createDataFrame([], ddl)
    paths = [str(file) for file in files]
    if not isinstance(files[0], StorePath):
        return plain_reader(spark).schema(ddl).parquet(*paths)
    parts = pieces(paths, n_parts(spark, paths))
    if not parts:
        return spark.createDataFrame([], ddl)

    def read(batches: Batches) -> Batches:
        for file, row_group in named(batches, parts):
            with telling(file, "read"):
                rows = open_parquet(file).read_row_group(row_group)
            yield from in_columns(rows, schema).to_batches()

    return numbers(spark, len(parts)).mapInArrow(read, ddl)


def in_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the columns of a schema; one that is not there is null."""
    there = set(rows.column_names)
    return pa.table(
        [
            rows[field.name].cast(field.type)
            if field.name in there
            else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )

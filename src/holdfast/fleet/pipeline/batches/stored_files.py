"""Files of tables as rows of a step, and as a Spark frame.

**Rules.** Rows have the columns of a definition, whichever the files have: one that is not there is
null. Spark needs no jar and no credentials for a store
(:mod:`holdfast.fleet.pipeline.ingest.pieces`).

**Strategy.** A step reads files by Arrow. A frame for people is read by Spark itself where the
files are on a disk, so that a filter and a choice of columns reach the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.fleet.pipeline.arrow_types import Batches
from holdfast.fleet.pipeline.ingest.pieces import FileRows, Pieces
from holdfast.fleet.pipeline.ingest.source import plain_reader
from holdfast.fleet.pipeline.schemas import ddl_of
from holdfast.fleet.pipeline.steps import unchanged
from holdfast.fleet.tables.storage.clients import telling
from holdfast.fleet.tables.storage.parquet import open_parquet
from holdfast.fleet.tables.storage.places import Place, StorePath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows_of_files(files: Sequence[Place], schema: pa.Schema, n_rows: int | None) -> FileRows:
    """Parquet files as rows of these columns, for a step."""
    names = [str(file) for file in files]
    return FileRows(files=names, cost_rows=n_rows, read=partial(_read, schema))


def frame_of_files(spark: SparkSession, files: Sequence[Place], schema: pa.Schema) -> DataFrame:
    """Parquet files as a frame of these columns, in no order."""
    if files and not isinstance(files[0], StorePath):
        names = [str(file) for file in files]
        return plain_reader(spark).schema(ddl_of(schema)).parquet(*names)
    return rows_of_files(files, schema, None).mapped(spark, unchanged, schema)


def _read(schema: pa.Schema, named: Pieces) -> Batches:
    for file, own in groupby(named, key=itemgetter(0)):
        with telling(file, "read"):
            opened = open_parquet(file)
        for _, row_group in own:
            with telling(file, "read"):
                rows = opened.read_row_group(row_group)
            yield from in_columns(rows, schema).to_batches()


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

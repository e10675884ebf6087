"""The tables as Spark frames and views, for SQL.

**Rules.** A table that is stored nested (:mod:`holdfast.fleet.tables.columns.stored`) has a flat
view, one row per partition, with the rows of ``Tables.table``. A view shows the batches that were
committed when the view was made.

**Strategy.** Spark itself reads files on a disk, so that a filter and a choice of columns reach
the files. For remote storage it has no credentials: there its tasks read by Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from holdfast.fleet.pipeline.ingest.source import plain_reader
from holdfast.fleet.pipeline.steps import rows_of_files, unchanged
from holdfast.fleet.tables.columns.schemas import arrow_schema, ddl_of
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.paths import file_system_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, tables: Tables, name: str) -> DataFrame:
    """Return one table as a flat frame, in no order; a SourceError if it is not there."""
    definition, schema = TABLES[name], arrow_schema(name)
    files = tables.files(name)
    if files and file_system_of(tables.root).spark_reads:
        names = [str(file) for file in files]
        rows = plain_reader(spark).schema(ddl_of(schema)).parquet(*names)
    else:
        rows = rows_of_files(files, schema, None).mapped(spark, unchanged, schema)
    if not definition.explode:
        return rows
    opened = F.explode(definition.explode).alias(definition.flat_name)
    return rows.select(*(opened if c == definition.explode else c for c in definition.names))


def register_views(spark: SparkSession, tables: Tables) -> tuple[str, ...]:
    """Give every table its name in this session's SQL; return the names."""
    for name in TABLES:
        frame(spark, tables, name).createOrReplaceTempView(name)
    return tuple(TABLES)

"""The tables as Spark frames and views, for SQL.

**Rules.** A table that is stored nested (:mod:`holdfast.fleet.tables.columns.stored`) has a flat
view, one row per partition, with the rows of ``Tables.table``. A view shows the batches that were
committed when the view was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from holdfast.fleet.pipeline.batches.stored_files import frame_of_files
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stored(spark: SparkSession, name: str, files: Sequence[Place]) -> DataFrame:
    """Files of a table as they are, nested where it is."""
    return frame_of_files(spark, files, arrow_schema(name))


def frame(spark: SparkSession, tables: Tables, name: str) -> DataFrame:
    """One table as a flat frame, in no order.

    Raises
    ------
    SourceError
        There is no such table, or nothing was committed.
    """
    rows, definition = stored(spark, name, tables.files(name)), TABLES[name]
    if not definition.explode:
        return rows
    opened = F.explode(definition.explode).alias(definition.flat_name)
    return rows.select(*(opened if c == definition.explode else c for c in definition.names))


def register_views(spark: SparkSession, tables: Tables) -> tuple[str, ...]:
    """Give every table its name in this session's SQL; return the names."""
    for name in TABLES:
        frame(spark, tables, name).createOrReplaceTempView(name)
    return tuple(TABLES)

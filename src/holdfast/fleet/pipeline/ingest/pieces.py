"""Parts of Parquet files, and the tasks that read them: Spark names a part, Arrow opens it.

**Rules.** A task opens a file by its place (:mod:`holdfast.fleet.tables.storage.places`), so Spark
needs no jar and no credentials for the storage: what the driver can read, a worker with the same
means can.

**Strategy.** Arrow reads a file in a task at a fifth of what the way through the JVM costs. A part
is some row groups; parts are of about equal size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.arrow_types import Batches, BatchTask
from holdfast.fleet.pipeline.ingest.arrow_columns import filled_table
from holdfast.fleet.tables.columns.schemas import arrow_schema, ddl_of
from holdfast.fleet.tables.storage.parquet import BoundedParquet, batches_of
from holdfast.fleet.tables.storage.places import Place, store_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Pieces = list[tuple[str, int]]
"""Files, and a row group of each."""

RECORDS: Final = arrow_schema("records")

PIECE_BYTES: Final = 16 << 20
"""A task reads about so much of files, or less: every core has as many tasks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileRows:
    """Rows of Parquet files, for a step (:class:`holdfast.fleet.pipeline.steps.Rows`).

    Parameters
    ----------
    files : sequence of str
        As places are written.
    cost_rows : int or None
        Their rows.
    read : callable
        Reads row groups.
    """

    files: Sequence[str]
    cost_rows: int | None
    read: Callable[[Pieces], Batches]

    def here(self) -> Batches | None:
        """All rows, in the order of the files; None where the files are large."""
        if sum(store_of(file).size() for file in self.files) > PIECE_BYTES:
            return None
        return self.read([piece for part in pieces(self.files, 1) for piece in part])

    def mapped(self, spark: SparkSession, task: BatchTask, schema: pa.Schema) -> DataFrame:
        """What a task makes of the rows, which it reads itself."""
        parts = pieces(self.files, n_parts(spark, self.files)) if self.files else []
        if not parts:
            return spark.createDataFrame([], ddl_of(schema))
        read = self.read

        def run(batches: Batches) -> Batches:
            yield from task(read(named(batches, parts)))

        return numbers(spark, len(parts)).mapInArrow(run, ddl_of(schema))


def rows_of_files(files: Sequence[Place], schema: pa.Schema, n_rows: int | None) -> FileRows:
    """Files of tables as rows of these columns, for a step; one that a file lacks is null."""
    names = [str(file) for file in files]
    return FileRows(files=names, cost_rows=n_rows, read=partial(_read_stored, schema))


def named(batches: Batches, parts: Sequence[Pieces]) -> Pieces:
    """Pieces of the parts that rows of :func:`numbers` name."""
    return [piece for rows in batches for n in rows["id"].to_pylist() for piece in parts[n]]


def numbers(spark: SparkSession, n_parts: int) -> DataFrame:
    """A frame with one row, and so one task, for each part.

    A frame of data from the driver would have at most as many tasks as there are cores.
    """
    return spark.range(0, n_parts, 1, n_parts)


def pieces(files: Sequence[str], n_parts: int) -> list[Pieces]:
    """Row groups of Parquet files in parts of about equal size, in order.

    Parameters
    ----------
    n_parts : int
        As many parts as tasks are wanted; fewer where there are fewer row groups.
    """
    found = [piece for file in files for piece in _row_groups(file)]
    total = np.cumsum([0, *(size for _, _, size in found)])
    part = (total[:-1] * n_parts // max(int(total[-1]), 1)).tolist()
    listed: dict[int, Pieces] = {}
    for number, (file, i, _) in zip(part, found, strict=True):
        listed.setdefault(number, []).append((file, i))
    return list(listed.values())


def n_parts(spark: SparkSession, files: Sequence[str | Place]) -> int:
    """Parts to read files in: as many for every core, each of about PIECE_BYTES or less."""
    from holdfast.fleet.pipeline.session import local_cores

    size = sum(store_of(file).size() for file in files)
    master = spark.conf.get("spark.master") or ""
    cores = local_cores(master) if master.startswith("local") else 1
    return cores * max(1, -(-size // (cores * PIECE_BYTES)))


def _row_groups(file: str) -> list[tuple[str, int, int]]:
    about = BoundedParquet(file).metadata
    return [(file, i, about.row_group(i).total_byte_size) for i in range(about.num_row_groups)]


def read_pieces(named: Pieces) -> Batches:
    """Records of row groups of a dump's files, as :data:`RECORDS`.

    Raises
    ------
    SourceError
        A file cannot be read, or unpacks to far more than its size.
    """
    for file, own in groupby(named, key=itemgetter(0)):
        try:
            for rows in batches_of(file, RECORDS.names, [row_group for _, row_group in own]):
                yield to_records(rows)
        except (OSError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise SourceError(f"{file} cannot be read: {reason}") from error


def to_records(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Cast records of another writer to our types; a time without a zone is UTC."""
    columns = [rows.column(field.name).cast(field.type, safe=False) for field in RECORDS]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


def _read_stored(schema: pa.Schema, named: Pieces) -> Batches:
    for file, own in groupby(named, key=itemgetter(0)):
        opened = BoundedParquet(file)
        for _, row_group in own:
            rows = opened.read_row_group(row_group)
            there = dict(zip(rows.column_names, rows.columns, strict=True))
            yield from filled_table(there, schema, rows.num_rows).to_batches()

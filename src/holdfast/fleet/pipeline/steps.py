"""A step of the pipeline: rows in, rows out, by group; in this process or on Spark.

**Rules.** A step is written once, as a function over record batches. :func:`run` decides by size
where it runs, and nothing else does. The rows are the same. Neither RDDs nor the JVM are used.

**Strategy.** An :class:`Input` is some rows and what makes rows of the step of them, where they are
read. Then all rows of a group come to one task, in order. In this process that is a sort; on Spark
it is a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.columnar import Batches, BatchTask
from holdfast.fleet.pipeline.session import reading
from holdfast.fleet.tables.columns.schemas import arrow_schema, ddl_of, filled_table
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.files import FILES_SCHEMA, BatchWriter
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.parquet import BATCH_ROWS, BoundedParquet
from holdfast.fleet.tables.storage.paths import StoragePath, file_system_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

Session: TypeAlias = "Callable[[], SparkSession] | None"
"""Returns the session, and may start it; None: every step runs in this process."""
OfGroups: TypeAlias = Callable[[pa.Table], Mapping[str, pa.Table]]
"""Makes rows of some tables, by name, of the rows of whole groups."""
Pieces = list[tuple[str, int]]
"""Files, and a row group of each."""
Rows: TypeAlias = "InMemoryRows | FrameRows | FileRows"
"""Rows that a step reads, here or in tasks; None as ``cost_rows``: nobody has counted them."""

PIECE_BYTES: Final = 16 << 20
"""A task reads about so much of files, or less: every core has as many tasks."""
HERE_ROWS = 1_000_000
"""Rows up to which this process reads and runs a step: a million take it 6 CPU s and 670 MB."""
HERE_BYTES: Final = 256 << 20
"""Bytes, unpacked, up to which this process reads files if there is a session for more."""

WHOLE_GROUPS_ROWS: Final = 500_000
"""Rows that :func:`whole_groups` waits for."""


def unchanged(batches: Batches) -> Batches:
    """Return rows unchanged."""
    return batches


def by_table(make: Callable[[pa.Table], pa.Table]) -> BatchTask:
    """Return a task that applies a function of tables to each batch."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            yield from make(pa.Table.from_batches([batch])).to_batches()

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Some rows, and the task that turns them into rows of a step."""

    rows: Rows
    into: BatchTask = unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Work on the rows of groups.

    ``task`` gets whole groups, one behind the other, sorted by ``order``, whose first column is
    ``group``. It gets the ``columns``, or all of them if they are empty.
    """

    task: BatchTask
    out: pa.Schema
    order: tuple[str, ...] = ("group",)
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step; ``what`` names its input in an error of Spark.

    If ``grouped`` is None, the input rows are the result.
    """

    what: str
    inputs: Sequence[Input]
    schema: pa.Schema
    grouped: Grouping | None = None


def run(session: Session, step: Step, on_spark: Callable[[], Step] | None = None) -> pa.Table:
    """Run a step where it costs less; call the session only if that is Spark.

    ``on_spark`` makes the step that runs on Spark, if the tasks of ``step`` need this process.
    Raises SourceError if Spark could not read the rows.
    """
    rows = [one.rows for one in step.inputs]
    if session is None or (
        runs_here([one.cost_rows for one in rows]) and all(one.fits_here for one in rows)
    ):
        return run_here(step)
    return run_on_spark(session(), step if on_spark is None else on_spark())


def runs_here(costs: Iterable[int | None]) -> bool:
    """Return whether rows of these costs are processed in this process."""
    total = 0
    for cost in costs:
        if cost is None:
            return False
        total += cost
    return total <= HERE_ROWS


def run_here(step: Step, *, batch_rows: int = BATCH_ROWS) -> pa.Table:
    """Run a step in this process."""
    pool = pa.default_memory_pool()
    pool.release_unused()  # the freed memory of the reading or the step before
    made = [rows for one in step.inputs for rows in one.into(one.rows.here())]
    whole = pa.Table.from_batches(made, step.schema)
    del made
    pool.release_unused()
    if step.grouped is None:
        return whole
    grouped = step.grouped
    ordered = whole.sort_by([(name, "ascending") for name in grouped.order])
    given = ordered.select(list(grouped.columns or step.schema.names)).combine_chunks()
    batches = grouped.task(iter(given.to_batches(max_chunksize=batch_rows)))
    return pa.Table.from_batches(list(batches), grouped.out)


def run_on_spark(spark: SparkSession, step: Step) -> pa.Table:
    """Run a step in tasks of Spark; raises as :func:`run`."""
    made = [one.rows.mapped(spark, one.into, step.schema) for one in step.inputs]
    frame: DataFrame = reduce(lambda first, second: first.unionByName(second), made)
    out = step.schema
    if step.grouped is not None:
        grouped, out = step.grouped, step.grouped.out
        ordered = frame.repartition("group").sortWithinPartitions(*grouped.order)
        given = ordered.select(*(grouped.columns or step.schema.names))
        frame = given.mapInArrow(grouped.task, ddl_of(out))
    with reading(step.what):
        return frame.toArrow().cast(out)


def whole_groups(batches: Batches, schema: pa.Schema) -> Iterator[pa.Table]:
    """Join batches that are sorted by ``group`` into tables of whole groups.

    A table has about WHOLE_GROUPS_ROWS rows, or more if one group has more.
    """
    waiting: list[pa.Table] = []
    for batch in batches:
        waiting.append(pa.Table.from_batches([batch]).cast(schema))
        if sum(part.num_rows for part in waiting) >= WHOLE_GROUPS_ROWS:
            rows = pa.concat_tables(waiting)
            # The next batch may go on with the last group, so that group waits.
            is_last = pc.equal(rows["group"], rows["group"][rows.num_rows - 1])
            yield rows.filter(pc.invert(is_last))
            waiting = [rows.filter(is_last)]
    if waiting:
        yield pa.concat_tables(waiting)


def writing_groups(root: str, batch: int, schema: pa.Schema, made: OfGroups) -> Grouping:
    """Return a grouping that makes tables of whole groups and writes them as files of a batch."""

    def task(batches: Batches) -> Batches:
        writer = BatchWriter(root, batch)
        for rows in whole_groups(batches, schema):
            for name, table in made(rows).items():
                writer.write(name, table)
        yield from writer.close().to_batches()

    return Grouping(task=task, out=FILES_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InMemoryRows:
    """Rows of this process.

    ``task_rows`` are a task on Spark, which makes each batch of rows one; ``here_rows`` are a batch
    in this process. ``track`` passes on the batches of this process, for a progress bar.
    """

    rows: pa.Table
    cost_rows: int | None
    task_rows: int = BATCH_ROWS
    here_rows: int = BATCH_ROWS
    track: Callable[[Sequence[pa.RecordBatch]], Batches] = iter
    fits_here: ClassVar[bool] = True

    def here(self) -> Batches:
        """Return all rows as batches."""
        return self.track(self.rows.combine_chunks().to_batches(max_chunksize=self.here_rows))

    def mapped(self, spark: SparkSession, task: BatchTask, schema: pa.Schema) -> DataFrame:
        """Read the rows in tasks, and return the rows that ``task`` makes of them."""
        batches = self.rows.combine_chunks().to_batches(max_chunksize=self.task_rows)
        frame = spark.createDataFrame(pa.Table.from_batches(batches, self.rows.schema))
        return frame.mapInArrow(task, ddl_of(schema))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameRows:
    """Rows of a frame, which only tasks read; ``schema`` is that of its columns."""

    frame: DataFrame
    schema: pa.Schema
    cost_rows: int | None
    fits_here: ClassVar[bool] = False

    def here(self) -> Batches:
        """Collect the rows."""
        rows: pa.Table = self.frame.toArrow().cast(self.schema)
        yield from rows.combine_chunks().to_batches()

    def mapped(self, spark: SparkSession, task: BatchTask, schema: pa.Schema) -> DataFrame:
        """Read the rows in tasks, and return the rows that ``task`` makes of them."""
        return self.frame.mapInArrow(task, ddl_of(schema))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileRows:
    """Rows of Parquet files: Spark names a part of them, and Arrow opens it in the task.

    Reading a file by Arrow in a task costs a fifth of reading it through the JVM. A task opens a
    file by its path, so Spark needs no jar and no credentials for the storage: a file that the
    driver can read, a worker with the same credentials can.
    """

    files: Sequence[str]
    cost_rows: int | None
    read: Callable[[Pieces], Batches]

    @property
    def fits_here(self) -> bool:
        """Return whether the files are small, unpacked."""
        sizes = (size for file in self.files for _, _, size in _row_groups(file))
        return sum(sizes) <= HERE_BYTES

    def here(self) -> Batches:
        """Return all rows, in the order of the files."""
        return self.read([piece for part in pieces(self.files, 1) for piece in part])

    def mapped(self, spark: SparkSession, task: BatchTask, schema: pa.Schema) -> DataFrame:
        """Return the frame of a task over rows, which the task reads itself."""
        parts = pieces(self.files, n_parts(spark, self.files)) if self.files else []
        if not parts:
            return spark.createDataFrame([], ddl_of(schema))
        read = self.read

        def run(batches: Batches) -> Batches:
            yield from task(read(named(batches, parts)))

        return numbers(spark, len(parts)).mapInArrow(run, ddl_of(schema))


def rows_of_files(files: Sequence[StoragePath], schema: pa.Schema, n_rows: int | None) -> FileRows:
    """Return files of tables as rows with the given columns; a missing column is null."""
    names = [str(file) for file in files]
    return FileRows(files=names, cost_rows=n_rows, read=partial(_read_stored, schema))


def frame(spark: SparkSession, tables: Tables, name: str) -> DataFrame:
    """Return one table as a flat frame, one row per partition, in no order.

    Spark itself reads files on a disk, so that a filter and a choice of columns reach the files.
    For remote storage it has no credentials: there its tasks read by Arrow. Raises SourceError if
    the table is not there.
    """
    from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

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


def plain_reader(spark: SparkSession) -> DataFrameReader:
    """Return a reader that does not treat a path as a pattern, whatever characters it has."""
    return spark.read.option("__globPaths__", "false")


def named(batches: Batches, parts: Sequence[Pieces]) -> Pieces:
    """Return the pieces of the parts that rows of :func:`numbers` name."""
    return [piece for rows in batches for n in rows["id"].to_pylist() for piece in parts[n]]


def numbers(spark: SparkSession, n_parts: int) -> DataFrame:
    """Return a frame with one row, and so one task, for each part.

    A frame of data from the driver would have at most as many tasks as cores.
    """
    return spark.range(0, n_parts, 1, n_parts)


def pieces(files: Sequence[str], n_parts: int) -> list[Pieces]:
    """Split row groups of files into at most ``n_parts`` parts of about equal size, in order."""
    found = [piece for file in files for piece in _row_groups(file)]
    total = np.cumsum([0, *(size for _, _, size in found)])
    part = (total[:-1] * n_parts // max(int(total[-1]), 1)).tolist()
    listed: dict[int, Pieces] = {}
    for number, (file, i, _) in zip(part, found, strict=True):
        listed.setdefault(number, []).append((file, i))
    return list(listed.values())


def n_parts(spark: SparkSession, files: Sequence[str | StoragePath]) -> int:
    """Return the number of parts of files: as many for every core, each of about PIECE_BYTES."""
    from holdfast.fleet.pipeline.session import local_cores

    size = sum(file_system_of(file).size() for file in files)
    cores = local_cores(spark.conf.get("spark.master") or "")
    return cores * max(1, -(-size // (cores * PIECE_BYTES)))


def _row_groups(file: str) -> list[tuple[str, int, int]]:
    about = BoundedParquet(file).metadata
    return [(file, i, about.row_group(i).total_byte_size) for i in range(about.num_row_groups)]


def _read_stored(schema: pa.Schema, named: Pieces) -> Batches:
    for file, own in groupby(named, key=itemgetter(0)):
        opened = BoundedParquet(file)
        for _, row_group in own:
            rows = opened.read_row_groups([row_group])
            there = dict(zip(rows.column_names, rows.columns, strict=True))
            yield from filled_table(there, schema, rows.num_rows).to_batches()

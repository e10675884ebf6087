"""History of every group: records in, tables out, as a few Spark jobs.

**Rules.** Functions take ``spark`` and frames, and touch neither RDDs nor the JVM. A group's
records come to one task in the order of the log. Names are values: they choose no path and stand
in no query text.

**Strategy.**

=========  ======================================================  ================================
job        reads                                                   writes
=========  ======================================================  ================================
commits    records of types 0 and 1, no shuffle                    offset_commits, bad_records
groups     all other records, by group                             generations, members, assignments
                                                                   movements, anomalies, bad_records
pauses     pauses by the records, and commits of those groups      pauses
=========  ======================================================  ================================

``rebalances`` comes from the second and gets its sums of pauses from the third. The first two are
one action. The tasks write their files themselves (:mod:`holdfast.pipeline.storage`); one rename
makes all of them count.
"""

# mypy: disable-error-code="arg-type, assignment, call-overload, index, type-var, union-attr"
# (The stubs inside pyarrow 26 refuse calls that pyarrow takes.)

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from holdfast.errors import SourceError
from holdfast.pipeline.dump import write_dump
from holdfast.pipeline.generations import make_lists
from holdfast.pipeline.pauses import COMMIT, pauses_task
from holdfast.pipeline.schemas import arrow_schema, spark_ddl
from holdfast.pipeline.source import Cluster, Dump, plain_reader
from holdfast.pipeline.storage import (
    FILES_DDL,
    FILES_SCHEMA,
    Batch,
    BatchWriter,
    Tables,
    files_of,
    read_parquet,
    remove_tree,
)
from holdfast.pipeline.tasks import UNKNOWN, commits_task, groups_task

Note = Callable[[str], None]

Files = list[tuple[str, int]]

DUMP_FOLDER: Final = "_dump"
DRIVER_ROWS: Final = 200_000
"""Below so many rows a job is done where the driver is: starting it would cost more."""
SPARK_GROUPS: Final = ("spark-kafka-relation-", "spark-kafka-source-")
"""Groups that Spark's own connector makes when it subscribes: left out unless asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which groups to look at.

    Parameters
    ----------
    groups : sequence of str
        Names, or patterns with ``*`` and ``?``; empty: all.
    all_groups : bool
        Those of Spark's connector too.
    """

    groups: Sequence[str] = ()
    all_groups: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Tables that were written, to be read without Spark.

    Parameters
    ----------
    tables : Tables
        ``tables.table(name)`` is an Arrow table.
    dump : Dump
        What they were made from.
    n_records, n_unknown : int
        Records read, and how many of them had a type that nobody knows.
    """

    tables: Tables
    dump: Dump
    n_records: int
    n_unknown: int

    def table(
        self, name: str, *, flat: bool = True, groups: Sequence[str] | None = None
    ) -> pa.Table:
        """One table; see :meth:`holdfast.pipeline.storage.Tables.table`."""
        return self.tables.table(name, flat=flat, groups=groups)


def run(
    spark: Any,
    source: Dump | Cluster | Path | str,
    out_dir: Path | str,
    *,
    selection: Selection | None = None,
    note: Note | None = None,
) -> History:
    """Write the history of every group to a folder of tables, in place of what it held.

    Parameters
    ----------
    spark : SparkSession
        With the Kafka connector where ``source`` is a live cluster.
    source : Dump, path of one, or Cluster
        A live cluster is dumped first, into ``out_dir``.
    out_dir : Path
        Folder of the tables; made if it is not there. Workers write to it too.

    Raises
    ------
    SourceError
        The source cannot be read, or nothing was read though it holds records.
    """
    tables = Tables(Path(out_dir).absolute())
    dump = _open(spark, source, tables.root, note)
    dump.check_read()
    tables.root.mkdir(parents=True, exist_ok=True)
    return history_of(spark, dump, tables, selection or Selection())


def history_of(spark: Any, dump: Dump, tables: Tables, selection: Selection) -> History:
    """Write the tables of one dump as one new batch that replaces all others."""
    job = Job(spark=spark, tables=tables, batch=tables.next_batch())
    records = select_groups(dump.records(spark), selection)
    job.read(records, topic_names(dump))
    job.pauses()
    notes = {
        "cluster_id": dump.cluster_id,
        "taken_at": dump.taken_at,
        "n_records": dump.n_records(),
        "n_unknown": job.n_unknown,
    }
    tables.commit(Batch(id=job.batch, files=job.files, notes=notes), replace=True)
    return History(tables=tables, dump=dump, n_records=notes["n_records"], n_unknown=job.n_unknown)


def _open(spark: Any, source: Dump | Cluster | Path | str, root: Path, note: Note | None) -> Dump:
    if isinstance(source, Dump):
        return source
    if isinstance(source, (str, Path)):
        return Dump.open(source)
    remove_tree(root / DUMP_FOLDER)
    return write_dump(spark, source, root / DUMP_FOLDER, note=note)


def topic_names(dump: Dump) -> dict[str, str]:
    """Topic id to name, as KIP-848 records need it."""
    topics = dump.topics()
    return dict(zip(topics["topic_id"].to_pylist(), topics["topic"].to_pylist(), strict=True))


def is_commit() -> Any:
    """Whether a record is an offset commit by its key's type; False for a key without one."""
    head = F.substring("key", 1, 2)
    commit = head.isin(F.lit(b"\x00\x00"), F.lit(b"\x00\x01"))
    return F.coalesce(commit, F.lit(False))


def group_bytes() -> Any:
    """The group of a record as bytes: every key has it behind its type; what is odd gives some."""
    size = F.conv(F.hex(F.substring("key", 3, 2)), 16, 10).cast("int")
    return F.coalesce(F.substring(F.col("key"), F.lit(5), size), F.lit(b""))


def select_groups(records: Any, selection: Selection) -> Any:
    """Records of the groups asked for."""
    if selection.groups:
        wanted = [name for name in selection.groups if not is_pattern(name)]
        patterns = [name for name in selection.groups if is_pattern(name)]
        condition = group_bytes().isin(*[F.lit(name.encode()) for name in wanted])
        if patterns:
            anywhere = "|".join(f"(?:{to_regex(pattern)})" for pattern in patterns)
            text = F.decode(group_bytes(), "UTF-8")
            condition = (
                condition | text.rlike(f"\\A(?:{anywhere})\\z")
                if wanted
                else text.rlike(f"\\A(?:{anywhere})\\z")
            )
        return records.where(condition)
    if selection.all_groups:
        return records
    ours = [F.substring("key", 5, len(prefix)) == F.lit(prefix.encode()) for prefix in SPARK_GROUPS]
    return records.where(~F.coalesce(ours[0] | ours[1], F.lit(False)))


def is_pattern(name: str) -> bool:
    """Whether a ``--group`` is a pattern rather than a name."""
    return any(char in name for char in "*?[")


def to_regex(pattern: str) -> str:
    """A shell pattern as a regular expression that Java reads alike."""
    translated = fnmatch.translate(pattern)
    return re.sub(r"\\Z$", "", translated)


@dataclass(slots=True)
class Job:
    """One batch in the making."""

    spark: Any
    tables: Tables
    batch: int
    files: dict[str, Files] = field(default_factory=dict)
    n_unknown: int = 0

    def read(self, records: Any, names: dict[str, str]) -> None:
        """Run the commits job and the groups job; they are one action, so they run side by side."""
        root = str(self.tables.root)
        commits = records.where(is_commit()).mapInArrow(commits_task(root, self.batch), FILES_DDL)
        keyed = records.where(~is_commit()).withColumn("_group", group_bytes())
        ordered = keyed.repartition("_group").sortWithinPartitions("_group", "partition", "offset")
        others = ordered.drop("_group")
        groups = others.mapInArrow(groups_task(root, self.batch, names), FILES_DDL)
        self._collect(commits.union(groups).toArrow())

    def pauses(self) -> None:
        """Run the pauses job, and put its sums into ``rebalances``."""
        staged = self.files.pop("pauses", [])
        commits = self.files.get("offset_commits", [])
        task = pauses_task(str(self.tables.root), self.batch)
        if sum(rows for _, rows in (*staged, *commits)) <= DRIVER_ROWS:
            self._collect(pa.Table.from_batches(task(self._here(staged, commits)), FILES_SCHEMA))
        else:
            frame = self._with_commits(self._frame("pauses", staged), commits)
            ordered = frame.repartition("group").sortWithinPartitions("group")
            self._collect(ordered.mapInArrow(task, FILES_DDL).toArrow())
        rebalances = self.files.pop("rebalances", [])
        if rebalances:
            self._fill(rebalances)

    def _here(self, staged: Files, commits: Files) -> Iterator[pa.RecordBatch]:
        """What the pauses job reads, in this process."""
        parts = [arrow_schema("pauses").empty_table(), *self._tables(staged)]
        pauses = pa.concat_tables(parts)
        rows = [pauses.drop_columns(["pause_upper_seconds"])]
        groups = pc.unique(pauses["group"])
        for part in self._tables(commits):
            found = part.filter(pc.invert(part["is_tombstone"]))
            found = found.filter(pc.is_in(found["group"], groups))
            rows.append(as_pauses(found, rows[0].schema))
        yield from pa.concat_tables(rows).sort_by("group").to_batches()

    def _tables(self, files: Files) -> list[pa.Table]:
        return [read_parquet(self.tables.root / name) for name, _ in files]

    def _with_commits(self, pauses: Any, files: Files) -> Any:
        rows = pauses.drop("pause_upper_seconds")
        if not files:
            return rows
        commits = self._frame("offset_commits", files).where(~F.col("is_tombstone"))
        time = F.coalesce("commit_timestamp", "timestamp")
        found = commits.select(
            "group", "topic", F.array("partition").alias("partitions"), time.alias("timestamp")
        )
        groups = F.broadcast(pauses.select("group").distinct())
        found = found.join(groups, "group", "left_semi").withColumn("basis", F.lit(COMMIT))
        return rows.unionByName(found, allowMissingColumns=True)

    def _fill(self, rebalances: Files) -> None:
        """Rewrite ``rebalances`` with the sums of its pauses; small, so done on the driver."""
        schema = arrow_schema("rebalances")
        whole = pa.concat_tables(self._tables(rebalances))
        parts = self._tables(self.files.get("pauses", []))
        writer = BatchWriter(str(self.tables.root), self.batch)
        writer.write("rebalances", fill_pauses(whole, parts).cast(schema))
        self.files.update(files_of(writer.close()))

    def _frame(self, name: str, files: Files) -> Any:
        reader = plain_reader(self.spark).schema(spark_ddl(name))
        return reader.parquet(*[str(self.tables.root / file) for file, _ in files])

    def _collect(self, rows: pa.Table) -> None:
        """Take in the names of files that tasks handed back."""
        unknown = pc.equal(rows["table"], UNKNOWN)
        self.n_unknown += int(pc.sum(rows.filter(unknown)["rows"]).as_py() or 0)
        for table, files in files_of(rows.filter(pc.invert(unknown))).items():
            self.files.setdefault(table, []).extend(files)


def as_pauses(commits: pa.Table, schema: pa.Schema) -> pa.Table:
    """Commits in the shape in which the pauses job takes them."""
    n = commits.num_rows
    columns = {field.name: pa.nulls(n, field.type) for field in schema}
    time = pc.coalesce(commits["commit_timestamp"], commits["timestamp"])
    columns |= {"group": commits["group"], "topic": commits["topic"], "timestamp": time}
    columns["partitions"] = make_lists(commits["partition"].to_numpy(), np.arange(n))
    columns["basis"] = pa.repeat(COMMIT, n)
    return pa.table(columns, schema=schema)


def fill_pauses(rebalances: pa.Table, pauses: Sequence[pa.Table]) -> pa.Table:
    """Sums of the pauses of each rebalance, in partition-seconds."""
    if not pauses:
        return rebalances
    rows = pa.concat_tables(pauses)
    size = pc.list_value_length(rows["partitions"]).cast(pa.float64())
    names = ("pause_lower_seconds", "pause_upper_seconds")
    weighted = pa.table(
        {
            "group": rows["group"],
            "generation": rows["generation"],
            **{name: pc.multiply(rows[name], size) for name in names},
        }
    )
    keys = ["group", "generation"]
    sums = weighted.group_by(keys).aggregate([(name, "sum") for name in names])
    plain = rebalances.drop_columns(list(names)).join(sums, keys, join_type="left outer")
    for name in names:
        plain = plain.append_column(name, pc.fill_null(plain[f"{name}_sum"], 0.0))
    result: pa.Table = plain.select(rebalances.column_names)
    return result


def open_tables(path: Path | str) -> Tables:
    """Tables that an earlier run wrote.

    Raises
    ------
    SourceError
        There are none.
    """
    tables = Tables(Path(path).absolute())
    if not tables.batches():
        raise SourceError(f"{path} holds no committed batch")
    return tables

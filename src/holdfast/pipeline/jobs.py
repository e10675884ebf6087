"""The Spark jobs of one batch: records of some groups to every table.

**Rules.** Neither RDDs nor the JVM are touched. A group's records come to one task in the order
of the log. Where a job has little to do it is done in the driver, by the same task.

**Strategy.**

=========  ======================================================  ================================
job        reads                                                   writes
=========  ======================================================  ================================
commits    records of types 0 and 1, no shuffle                    offset_commits, bad_records
groups     all other records, by group                             generations, members, assignments
                                                                   movements, anomalies, bad_records
lag        owners by the records, commits and end offsets          lag
pauses     pauses by the records, and commits of those groups      pauses
=========  ======================================================  ================================

``rebalances`` comes from the second and gets its sums of pauses from the last. The first two are
one action. The tasks write their files themselves (:mod:`holdfast.pipeline.storage`).
"""

# mypy: disable-error-code="arg-type, assignment, call-overload, index, type-var, union-attr"
# (The stubs inside pyarrow 26 refuse calls that pyarrow takes.)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from holdfast.pipeline.generations import make_lists
from holdfast.pipeline.lag import INPUT, INPUT_DDL, OWNERS, Ends, commits_input, lag_task
from holdfast.pipeline.pauses import COMMIT, pauses_task
from holdfast.pipeline.schemas import arrow_schema, spark_ddl
from holdfast.pipeline.source import plain_reader, reading
from holdfast.pipeline.storage import (
    FILES_DDL,
    FILES_SCHEMA,
    BatchWriter,
    Tables,
    files_of,
    read_parquet,
)
from holdfast.pipeline.tasks import UNKNOWN, commits_task, groups_task

Files = list[tuple[str, int]]

DRIVER_ROWS: Final = 200_000
"""Below so many rows a job is done where the driver is: starting it would cost more."""


def is_commit() -> Any:
    """Whether a record is an offset commit by its key's type; False for a key without one."""
    head = F.substring("key", 1, 2)
    commit = head.isin(F.lit(b"\x00\x00"), F.lit(b"\x00\x01"))
    return F.coalesce(commit, F.lit(False))


def group_bytes() -> Any:
    """The group of a record as bytes: every key has it behind its type; what is odd gives some."""
    size = F.conv(F.hex(F.substring("key", 3, 2)), 16, 10).cast("int")
    return F.coalesce(F.substring(F.col("key"), F.lit(5), size), F.lit(b""))


@dataclass(slots=True)
class Job:
    """One batch in the making."""

    spark: Any
    tables: Tables
    batch: int
    keep_state: bool = False
    files: dict[str, Files] = field(default_factory=dict)
    n_unknown: int = 0

    def read(self, records: Any, names: dict[str, str]) -> None:
        """Run the commits job and the groups job; they are one action, so they run side by side."""
        root = str(self.tables.root)
        commits = records.where(is_commit()).mapInArrow(commits_task(root, self.batch), FILES_DDL)
        keyed = records.where(~is_commit()).withColumn("_group", group_bytes())
        ordered = keyed.repartition("_group").sortWithinPartitions("_group", "partition", "offset")
        others = ordered.drop("_group")
        task = groups_task(root, self.batch, names, keep_state=self.keep_state)
        groups = others.mapInArrow(task, FILES_DDL)
        with reading("the records"):
            rows = commits.union(groups).toArrow()
        self.collect(rows)

    def lag(self, ends: Ends) -> None:
        """Run the lag job."""
        owners, commits = self.files.pop(OWNERS, []), self.files.get("offset_commits", [])
        task = lag_task(str(self.tables.root), self.batch, ends)
        if sum(rows for _, rows in (*owners, *commits)) <= DRIVER_ROWS:
            found = [commits_input(part) for part in self._tables(commits)]
            rows = pa.concat_tables([INPUT.empty_table(), *self._tables(owners), *found])
            batches = iter(rows.sort_by("group").to_batches())
            self.collect(pa.Table.from_batches(task(batches), FILES_SCHEMA))
            return
        frame = self._lag_input(owners, commits)
        ordered = frame.repartition("group").sortWithinPartitions("group")
        self.collect(ordered.mapInArrow(task, FILES_DDL).toArrow())

    def _lag_input(self, owners: Files, commits: Files) -> Any:
        names = [str(self.tables.root / file) for file, _ in owners]
        frame = self.spark.createDataFrame([], INPUT_DDL)
        if owners:
            frame = plain_reader(self.spark).schema(INPUT_DDL).parquet(*names)
        if not commits:
            return frame
        time = F.coalesce("commit_timestamp", "timestamp").alias("commit_timestamp")
        plain = ["group", "topic", "offset", "expire_timestamp", "log_partition", "log_offset"]
        rows = self._frame("offset_commits", commits)
        rows = rows.select(*plain, F.array("partition").alias("partitions"), time)
        return frame.unionByName(rows, allowMissingColumns=True)

    def pauses(self, earlier: Files | None = None) -> None:
        """Run the pauses job, and put its sums into ``rebalances``.

        Parameters
        ----------
        earlier : list of (file, rows), optional
            ``offset_commits`` of batches before this one: a pause may begin in them.
        """
        staged = self.files.pop("pauses", [])
        commits = [*(earlier or []), *self.files.get("offset_commits", [])]
        task = pauses_task(str(self.tables.root), self.batch)
        if sum(rows for _, rows in (*staged, *commits)) <= DRIVER_ROWS:
            self.collect(pa.Table.from_batches(task(self._here(staged, commits)), FILES_SCHEMA))
        else:
            frame = self._with_commits(self._frame("pauses", staged), commits)
            ordered = frame.repartition("group").sortWithinPartitions("group")
            self.collect(ordered.mapInArrow(task, FILES_DDL).toArrow())
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

    def collect(self, rows: pa.Table) -> None:
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

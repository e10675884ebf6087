"""holdfast for users of Spark: functions on a session of your own, classic or Connect.

::

    import holdfast.spark as hs

    tables = hs.history(spark, hs.dump("s3://bucket/dump"), "s3://bucket/tables")
    tables["rebalances"].where("cause = 'leave'").groupBy("group").count().show()

**Rules.** A function takes the session, or tables with a session. No setting of the session is
changed, no group is joined, and nothing is written to a cluster. Neither an RDD nor the JVM is
touched. holdfast must be installed on the workers as on the driver.

**Strategy.** ``history`` and ``watch`` write a folder of tables, and every other function reads
it. Spark reads their Parquet itself, so a filter or a choice of columns never passes through
Python. Names, dtypes and units of all columns are in docs/metrics.md, the keys in docs/tables.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.errors import ConfigError
from holdfast.extras import needed

with needed("spark"):
    import pyarrow.parquet as pq
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from holdfast.fleet.pipeline.batches import watch as _watch
from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.pipeline.ingest.decode import JSON_RECORDS, Selection, json_records
from holdfast.fleet.pipeline.ingest.offsets_topic import (
    OFFSETS_TOPIC,
    KafkaFeed,
    check_session,
    kafka_records,
)
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.pipeline.plan import plan as _plan
from holdfast.fleet.pipeline.plan import topics_of
from holdfast.fleet.pipeline.replay.run import Request
from holdfast.fleet.pipeline.replay.run import replay as _replay
from holdfast.fleet.pipeline.replay.session import ReplaySettings, supported_assignors
from holdfast.fleet.pipeline.replay.trace_builder import traces
from holdfast.fleet.pipeline.session import get_session
from holdfast.fleet.pipeline.steps import frame
from holdfast.fleet.tables.columns.schemas import ddl_of
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.reading import open_tables as _open_tables
from holdfast.fleet.tables.storage.paths import file_system_of, storage_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.cluster.cluster import LiveCluster

__all__ = [
    "TableFrames",
    "cluster",
    "decode",
    "dump",
    "get_session",
    "history",
    "lag",
    "open_tables",
    "plan",
    "records",
    "replay",
    "save",
    "watch",
]

Source: TypeAlias = "Dump | LiveCluster"
"""What :func:`dump` and :func:`cluster` return."""


def dump(path: str | Path) -> Dump:
    """Open a dump: a folder that ``holdfast dump``, or another program, has written.

    Parameters
    ----------
    path : path or URL
        A folder, or ``s3://``, ``gs://``, ``abfs://``, ``hdfs://`` (docs/stores.md).

    Raises
    ------
    ConfigError
        The URL has an unknown scheme.
    SourceError
        The folder is missing, is not a dump, or a part of it cannot be read.
    """
    return Dump.open(path)


def cluster(
    bootstrap: str,
    config: Mapping[str, str] | None = None,
    *,
    command_config: str | Path | None = None,
) -> LiveCluster:
    """Return a live cluster; no request is sent yet.

    Parameters
    ----------
    bootstrap : str
        ``HOST:PORT``, or several with commas.
    config : mapping, optional
        Kafka's client properties; Spark's executors get the properties that they need.
    command_config : path, optional
        A file of such properties; ``config`` wins.

    Raises
    ------
    ConfigError
        A property is unknown, or the file cannot be read.
    """
    from holdfast.cluster.cluster import LiveCluster  # a dump needs no client
    from holdfast.cluster.settings import read_properties

    found = read_properties(Path(command_config)) if command_config else {}
    return LiveCluster(bootstrap=bootstrap, config={**found, **(config or {})})


def records(spark: SparkSession, source: Source) -> DataFrame:
    """Return the records of the offsets topic.

    Parameters
    ----------
    source : Dump or LiveCluster
        A cluster is read up to its present end offsets, and needs Spark's Kafka connector.

    Returns
    -------
    DataFrame
        Key: ``partition`` (int), ``offset`` (bigint). Also ``timestamp`` (timestamp), ``key`` and
        ``value`` (binary; null: a tombstone).

    Raises
    ------
    SourceError
        The cluster cannot be read, or the session would read nothing (docs/spark.md).
    """
    if isinstance(source, Dump):
        return source.records(spark)
    check_session(spark)
    ends = source.partition_ends(OFFSETS_TOPIC)
    return kafka_records(spark, source, {p: (one.begin, one.stable) for p, one in ends.items()})


def decode(records: DataFrame) -> DataFrame:
    """Decode records to JSON with Kafka's field names; for inspection, not for statistics.

    Parameters
    ----------
    records : DataFrame
        With the columns of :func:`records`.

    Returns
    -------
    DataFrame
        Key: ``partition`` (int), ``offset`` (bigint). Also ``timestamp`` (timestamp),
        ``record_type`` and ``value_version`` (int), ``name`` and ``group`` (string), ``key`` and
        ``value`` (string, JSON; null: a tombstone), and ``error`` (string), which says why a record
        does not parse; the columns of a record are null then.

    Notes
    -----
    Cost: one record at a time in Python. Commits as columns are the table ``offset_commits``.
    """
    return records.mapInArrow(json_records, ddl_of(JSON_RECORDS))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TableFrames(Mapping[str, "DataFrame"]):
    """A folder of tables as frames: ``tables["rebalances"]`` is a flat DataFrame, in no order.

    A frame shows the batches that were committed when it was created. An unknown name is a
    KeyError.

    Parameters
    ----------
    spark : SparkSession
        The session of the frames.
    tables : Tables
        The folder, to be read without Spark: ``tables.table(name)`` is an Arrow table.

    References: the folder follows the Delta Lake protocol.
    """

    spark: SparkSession
    tables: Tables

    def __repr__(self) -> str:
        """Name the folder, its span of time, the rows of each table and ways to read them."""
        *listed, _ = repr(self.tables).splitlines()
        folder = f"{self.tables.root}/rebalances"
        ways = (
            'tables["rebalances"] is a DataFrame; tables.register() names all of them in SQL;',
            f'spark.read.format("delta").load("{folder}") reads one as Delta',
        )
        return "\n".join((*listed, *ways))

    def __getitem__(self, name: str) -> DataFrame:
        if name not in TABLES:
            raise KeyError(name)
        return frame(self.spark, self.tables, name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the tables."""
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)

    def key(self, name: str) -> tuple[str, ...]:
        """Return columns that together are unique in a table; KeyError for an unknown table."""
        table = TABLES[name]
        order = [table.flat_name if column == table.explode else column for column in table.order]
        opened = table.explode and table.flat_name not in order
        return (*order, table.flat_name) if opened else tuple(order)

    def rows(self, name: str) -> int:
        """Return the number of stored rows of a table; no Spark job runs."""
        return self.tables.rows(name)

    def register(self) -> tuple[str, ...]:
        """Give every table its name in SQL, as a temporary view; return the names."""
        for name in self:
            self[name].createOrReplaceTempView(name)
        return tuple(self)


def open_tables(spark: SparkSession, path: str | Path) -> TableFrames:
    """Open tables that ``history``, ``watch`` or the commands of the same names have written.

    Parameters
    ----------
    spark : SparkSession
        The session of the frames.
    path : path or URL
        The folder.

    Raises
    ------
    ConfigError
        The URL has an unknown scheme.
    SourceError
        The folder has no tables.
    """
    return TableFrames(spark, _open_tables(path))


def history(
    spark: SparkSession,
    source: Source,
    out: str | Path,
    *,
    groups: Sequence[str] = (),
    auto_offset_reset: str = "latest",
    broker_logs: Sequence[str | Path] = (),
    overwrite: bool = False,
) -> TableFrames:
    """Write the history of every group to a folder of tables, replacing an earlier history.

    Parameters
    ----------
    source : Dump or LiveCluster
        A cluster is dumped into ``out`` first, and needs Spark's Kafka connector.
    out : path or URL
        The folder; created if missing. Workers write to it too.
    groups : sequence of str
        Names or patterns (``etl-*``); empty: all groups but those of Spark's own.
    auto_offset_reset : str
        Lag of a partition without a commit: 0 for ``latest``, else the whole log.
    broker_logs : sequence of path
        ``server.log`` of coordinators: their stated causes replace inferred ones.
    overwrite : bool
        Replace tables that a stream (``watch``) wrote to the folder, too.

    Returns
    -------
    TableFrames
        The twelve tables.

    Raises
    ------
    ConfigError
        A stream writes to the folder, and ``overwrite`` is false.
    SourceError
        The source or a log cannot be read, or no record was read though it has some; or the folder
        contains files that are not ours, or another process writes to it.
    """
    if isinstance(source, Dump):
        records: Dump | KafkaFeed = source
    else:
        check_session(spark)
        records = KafkaFeed(cluster=source, session=lambda: spark, most_here=0)
    made = run(
        lambda: spark,
        records,
        out,
        selection=Selection(groups=groups),
        auto_offset_reset=auto_offset_reset,
        broker_logs=[Path(log) for log in broker_logs],
        overwrite=overwrite,
    )
    return TableFrames(spark, made.tables)


def watch(
    spark: SparkSession,
    source: LiveCluster,
    out: str | Path,
    *,
    every_seconds: float | None = None,
    groups: Sequence[str] = (),
    auto_offset_reset: str = "latest",
) -> TableFrames:
    """Follow the offsets topic of a cluster into a folder of tables; a restart continues there.

    Parameters
    ----------
    source : LiveCluster
        The cluster.
    out : path or URL
        The folder; workers write to it too.
    every_seconds : float, optional
        Poll interval, without end; by default the present records are read once.
    groups, auto_offset_reset
        As in :func:`history`.

    Returns
    -------
    TableFrames
        The twelve tables; ``lag`` is as of the last poll.

    Raises
    ------
    SourceError
        The cluster cannot be read, or its topic ends before the folder's last batch; or another
        process writes to the folder; or the session would read nothing (docs/spark.md).
    """
    folder = storage_path(out)  # a wrong address is an error before anything is asked
    check_session(spark)
    kept = _watch.watch(
        KafkaFeed(cluster=source, session=lambda: spark),
        folder,
        selection=Selection(groups=groups),
        every_seconds=every_seconds,
        auto_offset_reset=auto_offset_reset,
    )
    return TableFrames(spark, kept)


def lag(tables: TableFrames) -> DataFrame:
    """Return the lag of each group; the table ``lag`` has it by partition.

    Returns
    -------
    DataFrame
        Key: ``group`` (string). Also ``n_partitions`` and ``n_unknown`` (bigint): partitions with
        a commit or an owner, and those with an unknown lag; ``lag`` (bigint, records; null:
        unknown for all); ``lag_seconds`` (double, seconds): of the partition that is longest
        behind.
    """
    unknown = F.col("lag").isNull().cast("bigint")
    return (
        tables["lag"]
        .groupBy("group")
        .agg(
            F.count("*").alias("n_partitions"),
            F.sum(unknown).alias("n_unknown"),
            F.sum("lag").alias("lag"),
            F.max("lag_seconds").alias("lag_seconds"),
        )
    )


def plan(
    tables: TableFrames,
    assignor: str,
    source: Source | None = None,
    *,
    groups: Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """Compute another assignment for every group, from its last generation; apply nothing.

    Parameters
    ----------
    assignor : str
        A name of docs/assignors.md, such as ``sticky``.
    source : Dump or LiveCluster, optional
        Source of the number of partitions of each topic; by default the table ``lag``.
    groups : sequence of str, optional
        Groups to plan; by default all.
    **options
        Options of the assignor.

    Returns
    -------
    DataFrame
        Key: ``group`` (string). Also ``n_moved``, ``balance_score``, ``cost_lower_seconds``,
        ``moves`` (JSON), ``refused`` (why there is no plan) and others: docs/metrics.md, "plan".

    Raises
    ------
    ConfigError
        The assignor is unknown, or has no such option.
    """
    topics = _topics(tables, source)
    found = _plan(lambda: tables.spark, tables.tables, topics, assignor, groups=groups, **options)
    return tables.spark.createDataFrame(found)


def replay(
    tables: TableFrames,
    settings: Sequence[str],
    source: Source | None = None,
    *,
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> DataFrame:
    """Compute costs of every group's history under other settings, and under its own.

    Parameters
    ----------
    settings : sequence of str
        ``POLICY:ASSIGNOR`` or ``POLICY:ASSIGNOR:DELAY_MS``, such as
        ``deferred:cooperative-sticky:30000``.
    source, groups
        As in :func:`plan`.
    seed : int
        Seed of all random numbers.

    Returns
    -------
    DataFrame
        Key: ``group``, ``policy``, ``assignor`` (string), ``delay_ms`` (int, milliseconds; null:
        the policy does not defer) and ``actual`` (boolean: the group's own setting). Also
        ``revocations``, ``moved``, ``fidelity`` and others: docs/replay.md.

    Raises
    ------
    ConfigError
        A setting has another form, or an unknown name.
    """
    topics = _topics(tables, source)
    requested = tuple(_setting(text) for text in settings)
    recorded = list(traces(tables.tables, topics, groups=groups, lags=True))
    request = Request(settings=requested, seed=seed)
    return tables.spark.createDataFrame(_replay(lambda: tables.spark, recorded, request))


def save(rows: DataFrame, file: str | Path) -> None:
    """Write a frame that fits the driver's memory as one Parquet file.

    Spark then needs no jar and no credentials for the storage.

    Parameters
    ----------
    rows : DataFrame
        Any frame.
    file : path or URL
        The file, with its name; replaced if it exists.

    Raises
    ------
    ConfigError
        The URL has an unknown scheme.
    SourceError
        The file cannot be written.
    """
    with file_system_of(file).writable() as sink:
        pq.write_table(rows.toArrow(), sink)


def _topics(tables: TableFrames, source: Source | None) -> Mapping[str, int]:
    if source is None:
        return topics_of(tables.tables)
    if isinstance(source, Dump):
        return source.partition_counts()
    return {topic: count for _, topic, count in source.snapshot().topics}


def _setting(text: str) -> ReplaySettings:
    policy, *rest = text.split(":")
    if not (len(rest) == 1 or (len(rest) == 2 and rest[1].isdigit())):
        raise ConfigError(f"{text}: expected POLICY:ASSIGNOR or POLICY:ASSIGNOR:DELAY_MS")
    delay_ms = int(rest[1]) if len(rest) == 2 else 0
    made = ReplaySettings(policy=policy, assignor=rest[0], delay_ms=delay_ms)
    supported_assignors(made)
    return made

"""The history as a stream: batch after batch from the offsets topic, killed and resumed at will.

**Rules.** A batch has the id that Spark gives it and becomes visible by one rename; a batch that
is there already is not done again, one that is half done is done anew from the same offsets. So
the tables are those of one run over the whole topic, row for row. Checkpoint and tables
live in one folder and belong together.

**Strategy.** ``foreachBatch`` runs the jobs of :mod:`holdfast.pipeline.jobs` over the new records
and the state rows of the batch before (:mod:`holdfast.pipeline.state`). ``lag`` is a snapshot and
no history: it is what ``holdfast lag`` prints, and not among the tables of a stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import SourceError
from holdfast.pipeline.history import Selection, select_groups
from holdfast.pipeline.jobs import Job
from holdfast.pipeline.lag import OWNERS
from holdfast.pipeline.schemas import spark_ddl
from holdfast.pipeline.source import (
    OFFSETS_TOPIC,
    Cluster,
    kafka_options,
    plain_reader,
    reading,
)
from holdfast.pipeline.state import STATE
from holdfast.pipeline.storage import Batch, Tables, batch_folder, remove_tree

CHECKPOINT: Final = "_checkpoint"


@dataclass(slots=True)
class Stream:
    """Takes the batches of a stream into a folder of tables.

    Parameters
    ----------
    tables : Tables
        The folder.
    query : str
        Which stream this is; a folder belongs to one.
    topic_names : callable
        Topic id to name, asked anew for every batch.
    """

    tables: Tables
    query: str
    topic_names: Callable[[], Mapping[str, str]]
    selection: Selection

    def process(self, records: Any, batch_id: int) -> None:
        """Take one batch in; do nothing if it is there already.

        Parameters
        ----------
        records : DataFrame
            partition, offset, timestamp, key, value.

        Raises
        ------
        SourceError
            The folder belongs to another stream, or the batch before this one is missing.
        """
        before = self._before(batch_id)
        if before is not None and before.id >= batch_id:
            return
        spark = records.sparkSession
        job = Job(spark=spark, tables=self.tables, batch=batch_id, keep_state=True)
        chosen = select_groups(records, self.selection)
        state = before.notes["state"] if before else []
        if state:
            files = [str(self.tables.root / name) for name in state]
            past = plain_reader(spark).schema(spark_ddl("records")).parquet(*files)
            chosen = chosen.unionByName(past)
        job.read(chosen, dict(self.topic_names()))
        earlier = [f for b in self._committed() for f in b.files.get("offset_commits", [])]
        job.pauses(earlier)
        job.files.pop(OWNERS, None)
        kept = [name for name, _ in job.files.pop(STATE, [])]
        notes = {"query": self.query, "state": kept, "n_unknown": job.n_unknown}
        self.tables.commit(Batch(id=batch_id, files=job.files, notes=notes))
        self._sweep(batch_id)

    def _committed(self) -> list[Batch]:
        try:
            return self.tables.batches()
        except SourceError:
            if (self.tables.root / "_manifest.json").exists():
                raise
            return []

    def _before(self, batch_id: int) -> Batch | None:
        batches = self._committed()
        if not batches:
            if batch_id:
                raise SourceError(
                    f"{self.tables.root} has a checkpoint at batch {batch_id} but no tables: they "
                    "belong together; start with an empty folder"
                )
            return None
        last = batches[-1]
        if last.notes.get("query") != self.query:
            raise SourceError(
                f"{self.tables.root} holds the tables of another run (`history`, or a stream whose "
                "checkpoint is gone); start with an empty folder"
            )
        if last.id < batch_id - 1:
            raise SourceError(f"batch {batch_id - 1} of {self.tables.root} is missing")
        return last

    def _sweep(self, batch_id: int) -> None:
        """Delete the state of earlier batches, and what was only staged."""
        remove_tree(self.tables.root / OWNERS)
        keep = batch_folder(batch_id)
        for folder in sorted((self.tables.root / STATE).glob("batch-*")):
            if folder.name != keep:
                remove_tree(folder)


def watch(
    spark: Any,
    cluster: Cluster,
    out_dir: Path | str,
    *,
    selection: Selection | None = None,
    every_seconds: float | None = None,
    max_records: int | None = None,
    after_batch: Callable[[Tables, int], None] | None = None,
) -> Tables:
    """Follow the offsets topic of a live cluster into a folder of tables.

    Parameters
    ----------
    every_seconds : float, optional
        Look so often, until stopped; by default take what is there, and end.
    max_records : int, optional
        At most so many records in a batch.
    after_batch : callable, optional
        Called with the tables and the batch id after each batch (metrics, a progress line).

    Raises
    ------
    SourceError
        The cluster cannot be read, or Spark read nothing though the topic holds records.
    """
    tables = Tables(Path(out_dir).absolute())
    tables.root.mkdir(parents=True, exist_ok=True)
    ends = cluster.partition_ends(OFFSETS_TOPIC)
    stream = spark.readStream.format("kafka").option("startingOffsets", "earliest")
    for key, value in kafka_options(cluster, sorted(ends)).items():
        stream = stream.option(key, value)
    if max_records is not None:
        stream = stream.option("maxOffsetsPerTrigger", str(max_records))
    checkpoint = tables.root / CHECKPOINT
    names = _TopicNames(cluster)

    def take(records: Any, batch_id: int) -> None:
        query = json.loads((checkpoint / "metadata").read_text())["id"]
        into = Stream(
            tables=tables, query=query, topic_names=names, selection=selection or Selection()
        )
        into.process(records, batch_id)
        if after_batch is not None:
            after_batch(tables, batch_id)

    frame = stream.load().select("partition", "offset", "timestamp", "key", "value")
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    trigger: dict[str, Any] = {"availableNow": True}
    if every_seconds is not None:
        trigger = {"processingTime": f"{round(every_seconds * 1000)} milliseconds"}
    with reading(f"{OFFSETS_TOPIC} of {cluster.bootstrap}"):
        query = writer.trigger(**trigger).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
    if (
        any(end > begin for begin, end in ends.values())
        and not (tables.root / "_manifest.json").exists()
    ):
        raise SourceError(
            f"Spark read no record, but {OFFSETS_TOPIC} of {cluster.bootstrap} holds some"
        )
    return tables


@dataclass(frozen=True, slots=True)
class _TopicNames:
    """Topic id to name, as the cluster says it now."""

    cluster: Cluster

    def __call__(self) -> Mapping[str, str]:
        return {topic_id: topic for topic_id, topic, _ in self.cluster.snapshot().topics}

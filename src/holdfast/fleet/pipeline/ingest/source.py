"""The source of a history's records: a dump folder.

**Rules.** A folder that is not a dump, and a topic of which Spark read nothing though it has
records, are errors and not an empty report.

**Strategy.** A live cluster is dumped first (:mod:`holdfast.fleet.pipeline.ingest.dump`), up to
its present end offsets. So there is one kind of input, every job reads the same snapshot, and the
number of records that Spark read can be compared with the broker's end offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.core.command_lines import FOLDER, SERVERS, holdfast_line
from holdfast.errors import SourceError
from holdfast.fleet.columnar import Batches
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC
from holdfast.fleet.pipeline.ingest.transactions import OpenTransaction, from_notes
from holdfast.fleet.pipeline.steps import FileRows, Pieces, unchanged
from holdfast.fleet.tables.columns.schemas import TIMESTAMP, arrow_schema, holdable_times
from holdfast.fleet.tables.columns.steps import DUMP_TABLES
from holdfast.fleet.tables.folder.files import checked_files, parsed
from holdfast.fleet.tables.folder.manifest import COMPLETE_AT, N_REFUSED, POLLED, REFUSED
from holdfast.fleet.tables.storage.parquet import BoundedParquet, batches_of
from holdfast.fleet.tables.storage.paths import (
    StoragePath,
    file_system_of,
    parquet_files,
    storage_path,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS: Final = arrow_schema("records")
DUMP_FILE = "dump.json"
DUMP_VERSION = 1
MOST_OFFSET: Final = 2**63 - 1
MOST_OF_A_TOPIC = 2**20
"""Partitions that a topic may have by the word of a dump alone."""


_POLL_KEYS: Final = (POLLED, REFUSED, N_REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """A dump folder that was checked and found complete."""

    path: StoragePath
    # ``cluster_id``, ``taken_at``: from ``dump.json``; empty if unknown.
    cluster_id: str
    taken_at: str
    # Files of the records, from ``dump.json``: additional files of a task that ran twice are not
    # read. Empty if unknown.
    named: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()  # names and patterns of the requested groups; empty for all
    complete_at: str = ""  # the moment up to which every record was read; empty if unknown
    # Partition -> span of the log that was read; None if unknown.
    read: Mapping[int, tuple[int, int]] | None = None
    # Open transactions at the time of the dump, whose records are not in it.
    open_transactions: tuple[OpenTransaction, ...] = ()
    # What a batch says about a poll of coordinators; empty for records of the offsets topic.
    poll_notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_polled(self) -> bool:
        """Whether the records come from a poll of coordinators, not from the offsets topic."""
        return bool(self.poll_notes)

    @classmethod
    def open(cls, path: StoragePath | str) -> Dump:
        """Check and open a dump folder.

        Raises
        ------
        ConfigError
            The URL has an unknown scheme.
        SourceError
            The folder is missing, not a dump, of another version, or a part cannot be read.
        """
        folder = storage_path(path).absolute()
        document = _read_document(folder)
        for name in DUMP_TABLES:
            _check_part(folder, name, needed=name == "records")
        return cls(
            path=folder,
            cluster_id=str(document.get("cluster_id") or ""),
            taken_at=str(document.get("taken_at") or ""),
            named=frozenset(map(str, document.get("records") or ())),
            groups=tuple(str(name) for name in document.get("groups") or ()),
            complete_at=str(document.get(COMPLETE_AT) or ""),
            read=_read_spans(folder, document.get("read")),
            open_transactions=_read_transactions(folder, document.get("open_transactions")),
            poll_notes={key: document[key] for key in _POLL_KEYS if key in document},
        )

    def records(self, spark: SparkSession) -> DataFrame:
        """Return the records as a Spark frame: partition, offset, timestamp, key, value."""
        return self.rows().mapped(spark, unchanged, RECORDS)

    def rows(self) -> FileRows:
        """Return the records, for a step, and before them the tombstones of :meth:`deleted`."""
        files = [str(file) for file in (*_files(self.path, "deleted"), *self.record_files())]
        return FileRows(files=files, cost_rows=self.n_records(), read=read_pieces)

    def record_files(self) -> list[StoragePath]:
        """Return the files of the records that ``dump.json`` names, or all if it names none."""
        found = _files(self.path, "records")
        return [file for file in found if not self.named or file.name in self.named]

    def deleted(self) -> pa.Table:
        """Return tombstones that a merge has found, as RECORDS; empty if it found none."""
        return _read_part(self.path, "deleted")

    def group_names(self) -> set[str]:
        """Return the groups of all records, by their keys: the name is behind type and length."""
        return {
            key[4 : 4 + int.from_bytes(key[2:4], "big")].decode("utf-8", "replace")
            for file in self.record_files()
            for batch in batches_of(file, ["key"])
            for key in batch.column(0).unique().to_pylist()
            if key and len(key) > 3
        }

    def topics(self) -> pa.Table:
        """Return topic ids, names and partition counts; empty if the dump has none."""
        return _read_part(self.path, "topics")

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic of the cluster.

        Raises SourceError if a number is impossible and contradicts the offsets.
        """
        topics, listed = self.topics(), self.offsets()["topic"].value_counts()
        seen = dict(zip(*(listed.field(i).to_pylist() for i in (0, 1)), strict=True))
        columns = (topics[name].to_pylist() for name in ("topic", "partitions"))
        counts: dict[str, int | None] = dict(zip(*columns, strict=True))
        for topic, count in counts.items():
            if count is None or not 0 <= count <= max(MOST_OF_A_TOPIC, 4 * seen.get(topic, 0)):
                raise SourceError(
                    f"{self.path / 'topics'}: topic {topic!r} has {count} partitions, expected at "
                    f"most {MOST_OF_A_TOPIC}, or offsets of a quarter of them"
                )
        return {topic: int(count or 0) for topic, count in counts.items()}

    def share_state(self) -> pa.Table:
        """Return records of ``__share_group_state``; empty if the dump has none."""
        return _read_part(self.path, "share_state").sort_by(
            [("partition", "ascending"), ("offset", "ascending")]
        )

    def offsets(self) -> pa.Table:
        """Return begin and end offsets; empty if the dump has none."""
        return _read_part(self.path, "offsets")

    def n_records(self) -> int:
        """Return the number of records in the dump, from the files' footers."""
        return sum(BoundedParquet(f).metadata.num_rows for f in self.record_files())

    def newest_us(self) -> int:
        """Return the time of the newest record in microseconds; 0 without one."""
        newest = 0
        for file in self.record_files():
            times = BoundedParquet(file).read(columns=["timestamp"])["timestamp"]
            micros = times.cast(TIMESTAMP, safe=False)
            held = micros.filter(pa.array(holdable_times(micros))).cast(pa.int64())
            newest = max(newest, int(held.to_numpy().max(initial=0)))
        return newest

    def check_read(self) -> None:
        """Refuse a dump without a record of an offsets topic that was not empty by its offsets."""
        if self.n_records() or self.groups:  # a group may have no record
            return
        rows = self.offsets().to_pylist()
        held = sum(r["end_offset"] - r["begin_offset"] for r in rows if r["topic"] == OFFSETS_TOPIC)
        if held > 0:
            raise SourceError(
                f"no record was read, but by the broker's end offsets {OFFSETS_TOPIC} has "
                f"up to {held}: an empty report would be wrong. Is "
                "spark.sql.streaming.kafka.useDeprecatedOffsetFetching=true for this session, and "
                "may this principal read the topic?"
            )


def _read_document(folder: StoragePath) -> dict[str, Any]:
    if not folder.exists():
        raise SourceError(f"no dump at {folder}: no such folder")
    if not folder.is_dir():
        raise SourceError(f"no dump at {folder}: it is not a folder")
    path = folder / DUMP_FILE
    try:
        text = file_system_of(folder).read(DUMP_FILE)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error}") from error
    if text is None:
        line = holdfast_line("dump", "-b", SERVERS, "-o", FOLDER)
        raise SourceError(
            f"{folder} is not a dump: it has no {DUMP_FILE} (`{line}` writes it last, so a dump "
            "that was interrupted has none either)"
        )
    try:
        document = parsed(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != DUMP_VERSION:
        raise SourceError(f"{path} has schema_version {version!r}, expected {DUMP_VERSION}")
    result: dict[str, Any] = document
    return result


def _read_spans(folder: StoragePath, noted: Any) -> dict[int, tuple[int, int]] | None:
    if noted is None:
        return None
    try:
        found = {int(p): (int(begin), int(end)) for p, (begin, end) in noted.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise SourceError(f"{folder / DUMP_FILE}: `read` has no offsets: {error}") from error
    wrong = [p for p, (begin, end) in found.items() if not 0 <= begin <= end <= MOST_OFFSET]
    if wrong:
        raise SourceError(f"{folder / DUMP_FILE}: `read` has no such offsets of {wrong[0]}")
    return found


def _read_transactions(folder: StoragePath, noted: Any) -> tuple[OpenTransaction, ...]:
    try:
        return tuple(from_notes(noted or ()))
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(
            f"{folder / DUMP_FILE}: `open_transactions` has none: {error!r}"
        ) from error


def _files(folder: StoragePath, name: str) -> list[StoragePath]:
    return checked_files(folder, [f"{name}/{file.name}" for file in parquet_files(folder / name)])


def _check_part(folder: StoragePath, name: str, *, needed: bool) -> None:
    files = _files(folder, name)
    if needed and not files:
        raise SourceError(f"{folder} is not a dump: it has no {name}/*.parquet")
    wanted = set(DUMP_TABLES[name].names)
    for file in files:
        missing = sorted(wanted - set(BoundedParquet(file).schema_arrow.names))
        if missing:
            raise SourceError(f"{file} lacks the column(s) {', '.join(missing)}")


def _read_part(folder: StoragePath, name: str) -> pa.Table:
    schema = arrow_schema(name)
    files = _files(folder, name)
    if not files:
        return schema.empty_table()
    try:
        rows = [rows for file in files for rows in batches_of(file, schema.names)]
        whole = [pa.Table.from_batches([part]).cast(schema) for part in rows]
        found = pa.concat_tables([schema.empty_table(), *whole])
        found.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(f"{folder / name} cannot be read: {reason}") from error
    return found


def read_pieces(named: Pieces) -> Batches:
    """Yield records of row groups of a dump's files, as :data:`RECORDS`.

    Raises SourceError if a file cannot be read, or unpacks to far more than its size.
    """
    for file, own in groupby(named, key=itemgetter(0)):
        try:
            for rows in batches_of(file, RECORDS.names, [row_group for _, row_group in own]):
                yield _to_records(rows)
        except (OSError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise SourceError(f"{file} cannot be read: {reason}") from error


def _to_records(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Cast records of another writer to our types; a time without a zone is UTC."""
    columns = [
        rows.column(field.name).cast(field.type, safe=not pa.types.is_timestamp(field.type))
        for field in RECORDS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)

"""What users of Spark see: the tables as frames and views, and records as JSON.

**Rules.** A table that is stored nested (:mod:`holdfast.fleet.tables.columns.stored`) has a flat
view, one row per partition, with the rows of ``Tables.table``. A view shows the batches that were
committed when the view was made. Every record becomes a row of JSON_RECORDS: Kafka's field names as
JSON. One that does not parse has its reason in ``error``, and one of an unknown type too.

**Strategy.** Spark itself reads files on a disk, so that a filter and a choice of columns reach
the files. For remote storage it has no credentials: there its tasks read by Arrow. The scalar
reader of :mod:`holdfast.core.wire.one` reads a record at a time: about 50 CPU seconds for a million
commits. The tables are made by the readers of columns, in less than a hundredth of that.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.errors import WireError
from holdfast.fleet.columnar import Batches
from holdfast.fleet.pipeline.ingest.source import plain_reader
from holdfast.fleet.pipeline.steps import rows_of_files, unchanged
from holdfast.fleet.tables.columns.schemas import TIMESTAMP, arrow_schema, ddl_of, filled_batch
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.paths import file_system_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, tables: Tables, name: str) -> DataFrame:
    """Return one table as a flat frame, in no order; a SourceError if it is not there."""
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


def register_views(spark: SparkSession, tables: Tables) -> tuple[str, ...]:
    """Give every table its name in this session's SQL; return the names."""
    for name in TABLES:
        frame(spark, tables, name).createOrReplaceTempView(name)
    return tuple(TABLES)


JSON_RECORDS: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("record_type", pa.int32()),
        ("name", pa.string()),
        ("value_version", pa.int32()),
        ("group", pa.string()),
        ("key", pa.string()),
        ("value", pa.string()),
        ("error", pa.string()),
    ]
)
_LOG_POSITION: Final = ("partition", "offset", "timestamp")
_READ: Final = tuple(name for name in JSON_RECORDS.names if name not in _LOG_POSITION)


def json_records(batches: Batches) -> Batches:
    """Turn records into rows of :data:`JSON_RECORDS`; a task for ``mapInArrow``."""
    for batch in batches:
        pairs = zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
        read = [_row(key, value) for key, value in pairs]
        columns = {name: batch[name] for name in _LOG_POSITION}
        columns |= {name: [row.get(name) for row in read] for name in _READ}
        yield filled_batch(columns, JSON_RECORDS, batch.num_rows)


def _row(key: bytes | None, value: bytes | None) -> dict[str, object]:
    try:
        record = decode_record(key, value).to_dict()
    except WireError as error:
        return {"error": str(error)}
    names = record["key"]
    return {
        **record,
        "group": names.get("group", names.get("groupId")),
        "key": json.dumps(names),
        "value": None if record["value"] is None else json.dumps(record["value"]),
    }

"""Records of the offsets topic as text: Kafka's field names as JSON, one row a record.

**Rules.** Every record becomes a row. One that does not parse has its reason in ``error``, and one
of an unknown type too.

**Strategy.** The scalar reader of :mod:`holdfast.core.wire.one` reads a record at a time, as
``holdfast decode record`` does: about 50 CPU seconds for a million commits. The tables are made by
the readers of columns, which need less than a hundredth of that.
"""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa

from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.errors import WireError
from holdfast.fleet.columnar import Batches
from holdfast.fleet.tables.columns.schemas import TIMESTAMP, filled_batch

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

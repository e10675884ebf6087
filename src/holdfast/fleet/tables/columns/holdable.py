"""Values that the columns of a table accept, beside their types.

**Rules.** A time is in the years 1 to 9999, as in Python and ISO 8601. A partition is not
negative; in tables of a Connect member's assignment it may be -1, the connector itself. A name has
at most as many bytes as a string of Kafka's protocol. A column that is not nullable has no null,
and no list has one. Readers of tables rely on this.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import Mask
from holdfast.errors import SourceError
from holdfast.fleet.tables.columns.definition import Column, DType, Table

FIRST_US: Final = -62_135_596_800_000_000
"""First microsecond of year 1, UTC."""
LAST_US: Final = 253_402_300_799_999_999
"""Last microsecond of year 9999, UTC."""
MOST_NAME_BYTES: Final = 32_767
CONNECTOR: Final = -1
"""What a member of Connect can own beside its tasks: the connector itself."""

_NAMES: Final = frozenset(
    {"group", "topic", "member_id", "client_id", "client_host", "group_instance_id"}
)
_PARTITIONS: Final = frozenset({"partition", "partitions"})
_OWNED: Final = frozenset({"assignments", "movements", "ownership_gaps", "anomalies"})
"""Tables of assignments, in which a task of Connect is a partition."""
_LISTS: Final = frozenset({DType.INT32_LIST, DType.INT64_LIST, DType.STRING_LIST})


def refuse_values(rows: pa.Table, definition: Table, path: str) -> None:
    """Refuse rows with a value that a column cannot have; the SourceError names the column."""
    least = CONNECTOR if definition.name in _OWNED else 0
    for column in definition.columns:
        reason = next(_faults(column, rows[column.name], least), None)
        if reason:
            raise SourceError(f"{path}: column {column.name} of {definition.name} {reason}")


def holdable_times(times: Any) -> Mask:
    """Return which of some times, in microseconds, a table accepts, bool[n]; False for null."""
    us = pc.fill_null(times.cast(pa.int64()), LAST_US + 1)
    found: Mask = np.asarray(pc.and_(pc.greater_equal(us, FIRST_US), pc.less_equal(us, LAST_US)))
    return found


def to_us(text: str) -> int | None:
    """Return ISO 8601 as microseconds since 1970, UTC without a zone; None for a wrong text."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000)


def moment_text(us: int) -> str:
    """Format microseconds since 1970 as ISO 8601 in UTC, which :func:`to_us` reads."""
    held = min(max(us, FIRST_US), LAST_US)
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=held)).isoformat()


def _faults(column: Column, values: Any, least: int) -> Iterator[str]:
    if values.null_count and not column.nullable:
        yield f"has no value in {values.null_count} rows"
    if column.dtype in _LISTS:
        values = pc.list_flatten(values)
        if values.null_count:
            yield "has a list with no value in it"
    if column.dtype is DType.TIMESTAMP:
        low, high = _bounds(values.cast(pa.int64()))
        if low < FIRST_US or high > LAST_US:
            yield "has a time outside of the years 1 to 9999"
    if column.name in _PARTITIONS and (found := _bounds(values)[0]) < least:
        yield f"has partition {found}, expected {least} or more"
    if column.name in _NAMES and (size := _bounds(pc.binary_length(values))[1]) > MOST_NAME_BYTES:
        yield f"has a name of {size} bytes, expected at most {MOST_NAME_BYTES}"


def _bounds(numbers: Any) -> tuple[int, int]:
    """Return the least and the greatest of some numbers; zeros if there is none."""
    found = pc.min_max(numbers).as_py()
    return found["min"] or 0, found["max"] or 0

"""Columns back to values, row by row: the slow and obvious twin of the batch decoder."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
from hypothesis import strategies as st

from holdfast.core.wire.layouts.offsets_records import Record, decode_record
from holdfast.core.wire.layouts.offsets_schemas import (
    RECORD_SCHEMAS,
    Field,
    Kind,
    layout,
    schema_layout,
)
from holdfast.core.wire.many.columns import (
    NULL,
    Column,
    Columns,
    Ids,
    Items,
    Numbers,
    Optional,
    Slices,
    Text,
)
from holdfast.core.wire.many.offsets_batch import REASONS, Binary, decode_batch
from holdfast.errors import WireError

Pair = tuple[bytes | None, bytes | None]


def values_of(column: Column) -> list[Any]:
    """The column's rows as :func:`decode_record` gives them."""
    match column:
        case Numbers():
            return column.values.tolist()
        case Ids():
            return [UUID(bytes=row.tobytes()) for row in column.values]
        case Text():
            blobs = _cut(column.data, column.start)
            return _nulls([blob.decode("utf-8") for blob in blobs], column.valid)
        case Slices():
            return _nulls(_cut(*column.gather()), column.valid)
        case Items():
            elements = rows_of(column.columns)
            if set(column.columns) == {""}:
                elements = [element[""] for element in elements]
            pairs = zip(column.start[:-1].tolist(), column.start[1:].tolist(), strict=True)
            return _nulls([tuple(elements[low:high]) for low, high in pairs], column.valid)
        case Optional():
            structs = rows_of(column.columns)
            zero = {name: () if isinstance(c, Items) else 0 for name, c in column.columns.items()}
            return [
                structs[i] if i >= 0 else None if i == NULL else zero for i in column.index.tolist()
            ]


def rows_of(columns: Columns) -> list[dict[str, Any]]:
    """One dict a row."""
    lists = {name: values_of(column) for name, column in columns.items()}
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _cut(data: np.ndarray, start: np.ndarray) -> list[bytes]:
    blob = data.tobytes()
    return [blob[a:b] for a, b in zip(start[:-1].tolist(), start[1:].tolist(), strict=True)]


def _nulls(values: list[Any], valid: np.ndarray | None) -> list[Any]:
    if valid is None:
        return values
    assert all(not value for value, here in zip(values, valid.tolist(), strict=True) if not here), (
        "null rows are empty"
    )
    return [value if here else None for value, here in zip(values, valid.tolist(), strict=True)]


def binary(rows: list[bytes | None], *, offset_dtype: type = np.int32) -> Binary:
    """A column as Arrow lays it out, with bytes before and behind it."""
    size = [len(row or b"") for row in rows]
    data = b"\xff\x00" + b"".join(row or b"" for row in rows) + b"\x7f"
    start = np.cumsum([2, *size]).astype(offset_dtype)
    valid = None if None not in rows else np.array([row is not None for row in rows])
    return Binary(data=np.frombuffer(data, np.uint8), start=start, valid=valid)


def scalar(pairs: list[Pair]) -> list[Record | tuple[str, int, bool]]:
    """Each record, or (reason, position, whether in the key)."""
    out: list[Record | tuple[str, int, bool]] = []
    for key, value in pairs:
        try:
            out.append(decode_record(key, value))
        except WireError as error:
            out.append((str(error.reason), error.position, error.schema.endswith("Key")))
    return out


def batch(pairs: list[Pair], **options: Any) -> list[Record | tuple[str, int, bool] | None]:
    """The same from the batch form; None for a row that no chunk mentions."""
    keys = binary([key for key, _ in pairs], **options)
    values = binary([value for _, value in pairs], **options)
    out: list[Record | tuple[str, int, bool] | None] = [None] * len(pairs)
    for chunk in decode_batch(keys, values):
        for row in chunk.unknown.tolist():
            out[row] = ("unknown-type", 0, True)
        bad = chunk.bad
        for row, reason, position, in_key in zip(
            bad.rows.tolist(), bad.reason, bad.position.tolist(), bad.in_key.tolist(), strict=True
        ):
            out[row] = (str(REASONS[reason]), position, in_key)
        for family in chunk.families:
            fields = rows_of(family.value) or [None] * len(family)
            for index, (row, key, value) in enumerate(
                zip(family.rows.tolist(), rows_of(family.key), fields, strict=True)
            ):
                n_tags = family.n_unknown_tags
                assert out[row] is None, "a row is told once"
                out[row] = Record(
                    record_type=family.record_type,
                    name=RECORD_SCHEMAS[family.record_type].name,
                    key=key,
                    value_version=family.value_version,
                    value=value,
                    n_unknown_tags=0 if n_tags is None else int(n_tags[index]),
                )
    return out


# Records by the table

_INTS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
_TEXT = st.text(max_size=6) | st.sampled_from(["orders", "é", "漢字", "\U0001f600", "a" * 300])


def _one(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    if field.kind in _INTS:
        bits = _INTS[field.kind] - 1
        return st.integers(-(1 << bits), (1 << bits) - 1)
    if field.kind is Kind.UINT16:
        return st.integers(0, 0xFFFF)
    if field.kind is Kind.UUID:
        return st.just(UUID(int=0)) | st.uuids()
    if field.kind is Kind.STRING:
        return _TEXT
    if field.kind is Kind.BYTES:
        return st.binary(max_size=8)
    return structs(field.fields, version, flexible)


def structs(fields: tuple[Field, ...], version: int, flexible: bool) -> st.SearchStrategy[Any]:
    """Values of a struct in one version."""
    here = layout(fields, version, flexible)
    return st.fixed_dictionaries(
        {field.name: _field(field, version, flexible) for field in (*here.plain, *here.tagged)}
    )


def _field(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    value = _one(field, version, flexible)
    if field.is_array:
        value = st.lists(value, max_size=4).map(tuple)
    return st.none() | value if field.nullable else value


@st.composite
def records(draw: st.DrawFn, numbers: tuple[int, ...] = tuple(RECORD_SCHEMAS)) -> Record:
    """Any record of the types given, tombstones too."""
    schemas = RECORD_SCHEMAS[draw(st.sampled_from(numbers))]
    key = draw(structs(schemas.key.fields, 0, False))
    version = draw(st.none() | st.integers(0, schemas.value.max_version))
    value = None
    if version is not None:
        flexible = schema_layout(schemas.value, version).flexible
        value = draw(structs(schemas.value.fields, version, flexible))
    return Record(
        record_type=schemas.record_type,
        name=schemas.name,
        key=key,
        value_version=version,
        value=value,
    )

"""The footer of a Parquet file, looked at before Arrow makes objects of its columns.

**Rules.** Arrow ends the whole process where it finds one of these in what a footer says of a
column: another type than that of the schema, a compression that is none, histograms of levels of
another size than the column has levels, sizes of texts where it has none, encryption. Such a
footer is refused. What Arrow then reads are the bytes that were looked at here.

References: Apache Parquet, "parquet.thrift" (``FileMetaData``, ``SizeStatistics``).
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.fleet.tables.storage.pages import BadPageError, Compact, Header

_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8
_ROW_GROUPS, _COLUMNS, _ABOUT = 4, 1, 3
_TYPE, _COMPRESSION, _SIZES = 1, 4, 16
_TYPES: Final = (
    "BOOLEAN",
    "INT32",
    "INT64",
    "INT96",
    "FLOAT",
    "DOUBLE",
    "BYTE_ARRAY",
    "FIXED_LEN_BYTE_ARRAY",
)
_COMPRESSIONS: Final = frozenset({0, 1, 2, 4, 5, 6, 7})
_ENCRYPTION: Final = (8, 9)
_TEXT_BYTES, _REPETITIONS, _DEFINITIONS = 1, 2, 3


def read_footer(file: Any, size: int) -> Any:
    """The footer of a file of some bytes: a FileMetaData of which every column can be asked for.

    Raises
    ------
    ValueError
        It is none, or says what Arrow ends the process over.
    """
    file.seek(max(size - _TAIL_BYTES, 0))
    tail = file.read(_TAIL_BYTES)
    n_bytes = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or n_bytes + _TAIL_BYTES > size:
        raise ValueError("it has no footer of Parquet: another kind of file, or cut")
    file.seek(size - _TAIL_BYTES - n_bytes)
    footer = file.read(n_bytes)
    found = pq.read_metadata(pa.BufferReader(_MAGIC + footer + tail))
    try:
        _refuse_fatal(Compact(footer).struct(), found.schema)
    except (IndexError, AttributeError, TypeError) as error:
        raise BadPageError("its footer has a field that no footer has") from error
    return found


def _refuse_fatal(footer: Header, schema: Any) -> None:
    columns = [schema.column(i) for i in range(len(schema))]
    for row_group in footer.get(_ROW_GROUPS, ()):
        chunks = row_group.get(_COLUMNS, ())
        if len(chunks) != len(columns):
            raise BadPageError(f"a row group has {len(chunks)} of {len(columns)} columns")
        for chunk, column in zip(chunks, columns, strict=True):
            if reason := _fatal(chunk, column):
                raise BadPageError(f"column {column.path} of a row group {reason}")


def _fatal(chunk: Header, column: Any) -> str:
    """Why Arrow would end the process over a column of a row group; empty where it would not."""
    about = chunk.get(_ABOUT, {})
    sizes = about.get(_SIZES, {})
    levels = (column.max_repetition_level, column.max_definition_level)
    counts = [len(sizes.get(i, ())) for i in (_REPETITIONS, _DEFINITIONS)]
    if about.get(_TYPE) != _TYPES.index(column.physical_type):
        return f"is of type {about.get(_TYPE)}, expected {column.physical_type}"
    if about.get(_COMPRESSION) not in _COMPRESSIONS:
        return f"has compression {about.get(_COMPRESSION)}, which is none"
    if any(n not in {0, most + 1} for n, most in zip(counts, levels, strict=True)):
        return f"has histograms of {counts} levels, expected {[most + 1 for most in levels]}"
    if _TEXT_BYTES in sizes and column.physical_type != "BYTE_ARRAY":
        return "has no texts, and a size of them"
    return "is encrypted" if any(field in chunk for field in _ENCRYPTION) else ""

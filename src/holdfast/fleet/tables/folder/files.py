"""Files of a table as Arrow: read, in the columns of their table.

**Rules.** Where groups are named, only row groups are read whose bounds admit one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from holdfast.errors import SourceError
from holdfast.fleet.tables.columns.definition import Table
from holdfast.fleet.tables.columns.rows import conform, of_groups
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.storage.parquet import open_parquet, row_groups_of
from holdfast.fleet.tables.storage.places import Place, store_of


def read_parquet(
    path: Place, groups: Sequence[str] | None = None, footers: dict[Place, Any] | None = None
) -> pa.Table:
    """Read one of our files as it is; ``groups`` keeps rows of these groups only.

    Parameters
    ----------
    footers : dict of Path to FileMetaData, optional
        Footers of files that were read already; where groups are named, others are added.

    Raises
    ------
    OSError, ArrowException
        It cannot be read; a store's error is a SourceError.
    """
    with store_of(path).telling("read"):
        if groups is None:
            return open_parquet(path).read()
        opened = opened_parquet(path, {} if footers is None else footers)
        return of_groups(opened.read_row_groups(row_groups(opened, groups)), groups)


def opened_parquet(path: Place, footers: dict[Place, Any]) -> Any:
    """A file of ours, open; its footer, which is not small, is read once."""
    opened = open_parquet(path, metadata=footers.get(path))
    footers[path] = opened.metadata
    return opened


def row_groups(opened: Any, groups: Sequence[str] | None) -> list[int]:
    """Row groups of an open file that may hold one of these groups; all without them."""
    if groups is None:
        return list(range(opened.num_row_groups))
    return row_groups_of(opened.metadata, "group", sorted(set(groups)))


@contextmanager
def reading(file: Place) -> Iterator[None]:
    """Say in one sentence that a file is no Parquet; FileNotFoundError stays what it is."""
    try:
        with store_of(file).telling("read"):
            yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise SourceError(f"{file}: not readable as Parquet: {reason}") from error


def read_files(
    root: Place,
    files: Sequence[Place],
    definition: Table,
    groups: Sequence[str] | None = None,
    footers: dict[Place, Any] | None = None,
) -> pa.Table:
    """The rows of some files of one table below a folder, in the columns of its definition.

    Raises
    ------
    SourceError
        A file is no Parquet, or as :func:`conform`; FileNotFoundError if one is gone.
    """

    def read(file: Place) -> pa.Table:
        with reading(file):
            rows = read_parquet(file, groups, footers)
            rows.validate(full=True)
        return conform(rows, definition, str(file))

    parts = store_of(root).each(read, files)
    return pa.concat_tables([arrow_schema(definition.name).empty_table(), *parts])

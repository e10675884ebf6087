"""Definitions of tables and columns: plain data, without Arrow and without Spark.

**Rules.** Names are Kafka's words. Times are UTC timestamps. Durations end in ``_ms`` or
``_seconds``; counts start with ``n_``. Positions in the offsets topic are ``log_partition`` and
``log_offset``, because ``partition`` and ``offset`` belong to the consumed topic. A name from a
cluster is always a value in a column, never part of a path.

**Strategy.** A type is a word of :class:`DType`; :mod:`holdfast.fleet.tables.columns.schemas` turns
it into an Arrow type and into Spark's word. ``assignments`` and ``ownership_gaps`` are
stored nested (a list of partitions per row) because flat rows repeat every string;
``Table.explode`` names the list that their flat view opens.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from functools import partial


class DType(StrEnum):
    """Types that a column can have."""

    STRING = "string"
    BINARY = "binary"
    BOOL = "bool"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    TIMESTAMP = "timestamp"
    INT32_LIST = "list<int32>"
    INT64_LIST = "list<int64>"
    STRING_LIST = "list<string>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column, written as one row of a definition."""

    name: str  # also its heading in CSV and on a terminal
    dtype: DType
    doc: str  # meaning of a value
    unit: str = ""  # empty if name and type suffice
    _: KW_ONLY
    # Whether null has a meaning, which ``doc`` gives; a file without the column is read as nulls.
    nullable: bool = False
    # Heading in the report. A count (``n_``) of ``rebalances`` with a heading is a column of the
    # report's table of rebalances; one without a heading is not.
    heading: str = ""
    behind: str = ""  # the column before this one in the report, if not the one above it

    @property
    def is_number(self) -> bool:
        """Whether its values are counts or amounts."""
        return self.dtype in (DType.INT32, DType.INT64, DType.FLOAT64)


Nullable = partial(Column, nullable=True)
"""One column in which null has a meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table."""

    name: str
    doc: str
    columns: tuple[Column, ...]  # in the order in which they are stored and printed
    order: tuple[str, ...] = ()  # they sort the rows; together they are unique in the flat view
    explode: str = ""  # a list column that the flat view opens into one row per element
    flat_name: str = ""  # name of the opened column
    first: tuple[str, ...] = ()  # people see them first on a terminal, from the left

    @property
    def names(self) -> tuple[str, ...]:
        """Stored column names."""
        return tuple(column.name for column in self.columns)

    @property
    def flat_names(self) -> tuple[str, ...]:
        """Column names of the flat view."""
        return tuple(self.flat_name if n == self.explode else n for n in self.names)

    @property
    def counts(self) -> tuple[Column, ...]:
        """Columns that count something: their names start with ``n_``."""
        return tuple(column for column in self.columns if column.name.startswith("n_"))

    @property
    def headed_counts(self) -> tuple[Column, ...]:
        """Counts with a heading, in the order of the report."""
        shown: list[Column] = []
        for column in self.counts:
            if column.heading:
                names = [one.name for one in shown]
                at = names.index(column.behind) + 1 if column.behind else len(shown)
                shown.insert(at, column)
        return tuple(shown)

    def column(self, name: str) -> Column:
        """Return the column called ``name``; raise KeyError if it is unknown."""
        return {column.name: column for column in self.columns}[name]

    def pick(self, *names: str) -> tuple[Column, ...]:
        """Return columns by name, in the given order; raise KeyError if one is unknown."""
        return tuple(map(self.column, names))

    def headings(self, *names: str) -> list[tuple[str, bool]]:
        """Return the heading of each column, and whether its values are numbers."""
        return [(column.heading, column.is_number) for column in self.pick(*names)]

"""Names: files of tables below their folder, and the groups that ``--group`` matches.

**Rules.** A name from a cluster is never part of the name of a file. A file whose name is not ours
is neither read nor deleted. A group matches by name, even if its name looks like a pattern
(``etl*``), or by pattern.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Final

_FILE: Final = re.compile(r"([a-z_]+)/(?:batch-\d{9,18}|merged)/[0-9a-f]{32}\.parquet")
_RUN: Final = 24
MERGED: Final = "merged"
"""Folder of files that contain rows of several batches."""


def batch_folder(batch: int) -> str:
    """Return the folder name of a batch."""
    return f"batch-{batch:09d}"


def file_name(table: str, batch: int, unique: str) -> str:
    """Return the name of a file of a table; ``unique`` is 32 hexadecimal digits."""
    return f"{table}/{batch_folder(batch)}/{unique}.parquet"


def merged_names(table: str, unique: str, n_files: int) -> list[str]:
    """Return the names of a merge's files; ``unique`` as in :func:`file_name`."""
    return [f"{table}/{MERGED}/{unique[:_RUN]}{i:08x}.parquet" for i in range(n_files)]


def run_of(name: str) -> str:
    """Return the common part of one merge's file names; another file's own name."""
    folder, _, file = name.rpartition("/")
    return f"{folder}/{file[:_RUN]}" if folder.endswith(MERGED) else name


def is_file_name(name: object, table: str) -> bool:
    """Return whether this module can have given a table's file the name."""
    match = _FILE.fullmatch(name) if isinstance(name, str) else None
    return match is not None and match.group(1) == table


SPARK_GROUPS: Final = ("spark-kafka-relation-", "spark-kafka-source-")
"""Groups of Spark's own connector, one a subscription: omitted unless requested."""


def is_pattern(wanted: str) -> bool:
    """Return whether a ``--group`` is a pattern rather than a name."""
    return any(char in wanted for char in "*?[")


def means(wanted: str, group: str) -> bool:
    """Return whether a name or a pattern matches a group."""
    return group == wanted or fnmatchcase(group, wanted)

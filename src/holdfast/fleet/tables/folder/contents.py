"""The content of a folder of tables: names of files, allowed files, deletion of unused ones.

**Rules.** A name from a cluster is never part of the name of a file. Files outside of the folder
are never read, written or deleted. Links are refused where tables are written or read, and stay
where files are deleted. A file whose name is not ours is neither read nor deleted. A sweep keeps
files that a reader may still read, and files that were written after the commit before: they may
belong to a batch that is not committed yet.

A JSON document of another program is checked: a value of another kind is a ValueError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from holdfast.errors import SourceError
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.storage.paths import StoragePath, file_system_of

_FILE: Final = re.compile(r"([a-z_]+)/(?:batch-\d{9,18}|merged)/[0-9a-f]{32}\.parquet")
_RUN: Final = 24
MERGED: Final = "merged"
"""Folder of files that contain rows of several batches."""
_PART: Final = re.compile(rf"batch-\d{{9,18}}|{MERGED}")
_OF_NOBODY: Final = ("lost+found",)


def check_folder(root: StoragePath) -> None:
    """Refuse to write tables to a folder with anything else in it, or a link instead of our file.

    A table's name and a name that begins with ``_`` are ours. Hidden files are ignored.
    """
    for path in contents_of(root, "tables"):
        if path.name.startswith(".") or path.name in _OF_NOBODY:
            continue
        if path.name == "_delta_log":
            raise SourceError(
                f"cannot write tables to {root}: it is a Delta table; name an empty or a new folder"
            )
        if path.name not in TABLES and path.name[0] != "_":
            raise SourceError(
                f"cannot write tables to {root}: it holds {path.name!r}, which is not a table; "
                "name an empty or a new folder"
            )
        if path.is_symlink():
            raise SourceError(f"{path} is a link: tables are not written through links")
        if path.name in TABLES:  # the first commit writes to it, and deletes drafts in its log
            file_system_of(root).refuse_links_in(f"{path.name}/_delta_log")


def contents_of(root: StoragePath, what: str) -> list[StoragePath]:
    """Return the sorted entries of a folder to which ``what`` is to be written; refuse a file."""
    if not root.exists():
        return []
    if not root.is_dir():
        raise SourceError(f"cannot write {what} to {root}: it is not a folder")
    return [root / name for name in file_system_of(root).names("")]


def checked_files(root: StoragePath, names: Iterable[str]) -> list[StoragePath]:
    """Return paths of files below a folder; raise a SourceError if a link is on the way."""
    named = list(names)
    file_system_of(root).refuse_links(named)
    return [root / name for name in named]


def sweep(
    root: StoragePath,
    retained: Collection[str],
    until_ns: int,
    *,
    only: Collection[str] | None = None,
) -> None:
    """Delete unused files of tables (of tasks that died, of replaced batches).

    Files that were written after ``until_ns`` stay. ``only`` names the folders to search, such as
    ``lag/batch-000000017``.
    """
    for table in TABLES:
        parts = None if only is None else {name.removeprefix(f"{table}/") for name in only}
        if parts is None or any(map(_PART.fullmatch, parts)):
            _clear(root, table, parts, lambda name, at: name not in retained and at <= until_ns)


def remove_table(root: StoragePath, table: str, *, but: str = "") -> None:
    """Delete every file of a table, except those of one batch folder."""
    _clear(root, table, None, lambda name, _: not name.startswith(f"{table}/{but}/"))


def _clear(
    root: StoragePath, table: str, parts: Collection[str] | None, is_due: Callable[[str, int], bool]
) -> None:
    """Delete files of a table in some of its folders, by default in all of ours."""
    file_system_of(root).clear(
        table,
        lambda part: bool(_PART.fullmatch(part)) and (parts is None or part in parts),
        lambda name, written_ns: is_file_name(name, table) and is_due(name, written_ns),
    )


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


_MOST: Final = 2**63 - 1


def parsed(text: bytes) -> Any:
    """Parse a document; raise ValueError for wrong JSON, and for numbers that JSON lacks (NaN)."""
    return json.loads(text, parse_constant=_refused)


def whole(value: object, least: int = 0) -> int:
    """Check a whole number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise ValueError(f"{_shown(value)}, expected a whole number from {least} to 2**63 - 1")
    return value


def seconds(value: object) -> float:
    """Check seconds, whole or not, and finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise ValueError(f"{_shown(value)}, expected seconds from 0 to 2**63 - 1")
    return float(value)


def truth(value: object) -> bool:
    """Check a truth value."""
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)}, expected true or false")
    return value


def text_of(value: object) -> str:
    """Check a text that can be written again."""
    if not isinstance(value, str) or (not value.isascii() and _has_surrogates(value)):
        raise ValueError(f"{_shown(value)}, expected a text")
    return value


def fields_of(value: object) -> Mapping[str, Any]:
    """Check an object of JSON."""
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)}, expected an object")
    return value


def _has_surrogates(value: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in value)


def _refused(word: str) -> None:
    raise ValueError(f"{word} is not a number")


def _shown(value: object) -> str:
    return repr(value)[:60]

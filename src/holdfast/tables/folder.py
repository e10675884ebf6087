"""A folder of tables as a place: what may stand in it, and what is deleted from it.

**Rules.** Nothing outside of the folder is read, written or deleted. Links are refused where tables
are written or read, and are left alone where files are deleted. Only files with names of ours are
deleted. A sweep spares what a reader may have been told to read, and what was written after the
commit before: it may belong to a batch that is not committed yet.

**Strategy.** Folders are opened without following a link, and files are deleted below that open
folder. So a folder that somebody replaces by a link in the meantime is not followed either. A store
has no links; there a table is listed at once, and what goes is deleted by many requests at a time.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from holdfast.errors import SourceError
from holdfast.tables.names import MERGED, is_file_name
from holdfast.tables.places import Place, StorePath
from holdfast.tables.remote_store import each
from holdfast.tables.stored import TABLES

_BATCH: Final = re.compile(rf"batch-\d{{9,18}}|{MERGED}")
_OF_NOBODY: Final = ("lost+found",)


def check_folder(root: Place) -> None:
    """Refuse to write tables to a folder that holds anything else, or a link in place of ours.

    A table's name and a name that begins with ``_`` are ours. Hidden files are nobody's.

    Raises
    ------
    SourceError
        Naming what is in the way.
    """
    if root.exists() and not root.is_dir():
        raise SourceError(f"cannot write tables to {root}: it is not a folder")
    held: list[Place] = list(root.iterdir()) if root.exists() else []
    for path in sorted(held, key=str):
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


def checked_files(root: Place, names: Iterable[str]) -> list[Place]:
    """Places of files below a folder.

    Raises
    ------
    SourceError
        A file, or a folder on the way to it, is a link.
    """
    if isinstance(root, StorePath):
        return [root / name for name in names]
    inside = os.path.realpath(root)
    files = [root / name for name in names]
    for folder in dict.fromkeys(file.parent for file in files):
        expected = os.path.join(inside, *folder.relative_to(root).parts)  # noqa: PTH118
        if os.path.realpath(folder) != expected:
            raise SourceError(f"{folder} is a link, which may lead outside of the folder {root}")
    for file in files:
        if file.is_symlink():
            raise SourceError(f"{file} is a link, which may lead outside of the folder {root}")
    return list(files)


def refuse_links(root: Place, files: Iterable[Place]) -> None:
    """Refuse files that are not plainly there, below a folder that anybody may have written.

    Raises
    ------
    SourceError
        A file, or a folder on the way to it, is a link.
    """
    if isinstance(root, Path):
        checked_files(root, [str(Path(str(file)).relative_to(root)) for file in files])


def sweep(
    root: Place,
    tables: Sequence[str],
    kept: Collection[str],
    until_ns: int,
    *,
    only: Collection[str] | None = None,
) -> None:
    """Delete files of these tables that nobody reads (tasks that died, batches replaced).

    Parameters
    ----------
    kept : collection of str
        Names of the files that stay.
    until_ns : int
        Files that were written after this moment stay; nanoseconds since 1970.
    only : collection of str, optional
        Look into these folders alone, such as ``lag/batch-000000017``.
    """
    named = frozenset(kept)
    folders = {table: None if only is None else set[str]() for table in tables}
    for folder in only or ():
        table, _, batch = folder.partition("/")
        if (wanted := folders.get(table)) is not None and _BATCH.fullmatch(batch):
            wanted.add(batch)
    for table, wanted in folders.items():
        if wanted is None or wanted:
            _sweep_table(root, table, named, until_ns, only=wanted)


def remove_table(root: Place, table: str, *, but: str = "") -> None:
    """Delete every file of a table, but those of one batch folder."""
    _sweep_table(root, table, frozenset(), None, but=but)


def remove_tree(path: Place) -> None:
    """Delete a folder of ours if it is there; a link stays, and what it leads to."""
    if isinstance(path, StorePath):
        path.remove_tree()
    elif not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)


def _sweep_table(
    root: Place,
    table: str,
    kept: frozenset[str],
    until_ns: int | None,
    *,
    but: str = "",
    only: Collection[str] | None = None,
) -> None:
    if isinstance(root, StorePath):
        _sweep_stored(root, table, kept, until_ns, but=but)  # one listing tells of all folders
        return
    with _opened(root / table) as folder:
        if folder is None:
            return
        there = os.listdir(folder) if only is None else only  # noqa: PTH208
        for batch in sorted(name for name in there if _BATCH.fullmatch(name)):
            if batch != but:
                _sweep_batch(folder, f"{table}/{batch}", kept, until_ns)
        if until_ns is None:
            with suppress(OSError):  # it is not empty
                os.rmdir(root / table)  # noqa: PTH106


def _sweep_stored(
    root: StorePath, table: str, kept: frozenset[str], until_ns: int | None, *, but: str
) -> None:
    due = []
    for file, written_ns in (root / table).files_below():
        name = str(file).removeprefix(f"{root}/")
        if is_file_name(name, table) and name not in kept and file.parent.name != but:
            due += [file] if until_ns is None or written_ns <= until_ns else []
    for _ in each(lambda file: file.unlink(missing_ok=True), due):
        pass


def _sweep_batch(table_fd: int, name: str, kept: frozenset[str], until_ns: int | None) -> None:
    table, batch = name.split("/")
    with _opened(Path(batch), table_fd) as folder:
        if folder is None:
            return
        for file in sorted(os.listdir(folder)):  # noqa: PTH208
            whole = f"{name}/{file}"
            if is_file_name(whole, table) and whole not in kept and _is_due(folder, file, until_ns):
                with suppress(FileNotFoundError):
                    os.unlink(file, dir_fd=folder)
    with suppress(OSError):  # it is not empty
        os.rmdir(batch, dir_fd=table_fd)


def _is_due(folder: int, file: str, until_ns: int | None) -> bool:
    """Whether a file is a file, and old enough."""
    status = os.stat(file, dir_fd=folder, follow_symlinks=False)
    return stat.S_ISREG(status.st_mode) and (until_ns is None or status.st_mtime_ns <= until_ns)


@contextmanager
def _opened(path: Path, folder: int | None = None) -> Iterator[int | None]:
    """A folder, open; None where it is not there, not a folder, or a link."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)

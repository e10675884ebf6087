"""A file of a folder of tables, as anybody may have written it; the first byte says which file."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest import mock

from tests.tables.test_commits import written

from holdfast.errors import HoldfastError
from holdfast.fleet.tables.folder import commits
from holdfast.fleet.tables.folder.delta_log import checkpoint_name, entry_name
from holdfast.fleet.tables.folder.manifest import MANIFEST
from holdfast.fleet.tables.reading import Tables, read_tables

KINDS = ("manifest", "entry", "checkpoint", "file")
_TABLE = "generations"
_COMMIT = "_commits/000000001.json"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of one batch, and its files as they are in order."""

    root: Path
    kept: dict[Path, bytes]

    def files(self, kind: str) -> list[Path]:
        """The files that hold what is of a kind; a manifest is kept twice."""
        if kind == "manifest":
            return [self.root / MANIFEST, self.root / _COMMIT]
        if kind == "file":
            return [path for path in self.kept if path.suffix == ".parquet" and self._is_rows(path)]
        name = entry_name if kind == "entry" else checkpoint_name
        return [self.root / name(_TABLE, 0)]

    def _is_rows(self, path: Path) -> bool:
        return path.relative_to(self.root).parts[0] == _TABLE and "_delta_log" not in path.parts

    def with_file(self, kind: str, data: bytes) -> None:
        """Every file as it was, but for those of a kind."""
        for path in self.root.rglob("*"):
            if path.is_file() and path not in self.kept:
                path.unlink()
        for path, good in self.kept.items():
            path.parent.mkdir(parents=True, exist_ok=True)  # a commit removes what no batch names
            path.write_bytes(good)
        if kind == "entry":  # or the checkpoint behind it would be read
            for path in self.files("manifest"):
                path.write_bytes(path.read_bytes().replace(b'"checkpoint": 0', b'"checkpoint": -1'))
        for path in self.files(kind):
            path.write_bytes(data)


@cache
def folder_of_tables() -> Folder:
    """The folder of this process."""
    in_memory = Path("/dev/shm")  # a commit waits for the disk
    base = Path(
        tempfile.mkdtemp(prefix="holdfast-fuzz-", dir=in_memory if in_memory.is_dir() else None)
    )
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    root = base / "tables"
    with mock.patch.object(commits, "CHECKPOINT_EVERY", 1):
        Tables(root).commit(written(root, 0, "a"))
    kept = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return Folder(root, kept)


def read_and_written(kind: str, data: bytes, *, writes: bool = True) -> bool:
    """Whether a folder with this file is read and written to.

    If not, an error of ours says why, in one line. Rows are not looked at for a commit.
    """
    folder = folder_of_tables()
    folder.with_file(kind, data)
    tables = Tables(folder.root)
    try:
        assert tables.groups is not None
        for name in (_TABLE, "lag"):
            tables.table(name, groups=["a"])
            tables.newest_ms(name)
        read_tables(folder.root)
        if writes and kind != "file":
            tables.commit(written(folder.root, 1, "b"))
    except HoldfastError as error:
        assert "\n" not in str(error)
        return False
    return True


def folder_seeds() -> list[bytes]:
    """Each file as it is."""
    folder = folder_of_tables()
    good = [(number, folder.kept[folder.files(kind)[0]]) for number, kind in enumerate(KINDS)]
    return [bytes([number]) + data for number, data in good]

"""The manifest of a folder of tables: which files count, batch by batch.

**Rules.** A file counts when the manifest names it. The manifest changes by one rename, so a reader
sees a batch whole or not at all, even if a process is killed. A manifest names files of its own
folder only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.errors import SourceError

MANIFEST: Final = "_manifest.json"
SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One committed batch.

    Parameters
    ----------
    id : int
        Batches stand in the order of their ids.
    files : dict of str to list of (str, int)
        Files of each table, below the folder, with their rows.
    notes : dict
        What the job of the batch wants to remember.
    """

    id: int
    files: dict[str, list[tuple[str, int]]]
    notes: dict[str, Any] = field(default_factory=dict)


def has_manifest(root: Path) -> bool:
    """Whether a batch was ever committed to a folder."""
    return (root / MANIFEST).is_file()


def read_batches(root: Path) -> list[Batch]:
    """Committed batches of a folder, oldest first.

    Raises
    ------
    SourceError
        The folder has no manifest, one of another schema version, or one that names a file outside
        of the folder.
    """
    path = root / MANIFEST
    if not path.is_file():
        raise SourceError(f"{root} holds no tables: {MANIFEST} is missing")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version, batches = manifest["schema_version"], manifest["batches"]
        if version != SCHEMA_VERSION:
            raise SourceError(f"{path} has schema_version {version}, expected {SCHEMA_VERSION}")
        listed = [_batch(entry) for entry in batches]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{path}: not a manifest: {error!r}") from error
    for name in _names(listed):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise SourceError(f"{path}: names {name!r}, which is outside of the folder")
    return listed


def commit_batches(root: Path, batches: Sequence[Batch]) -> None:
    """Make these batches the ones that count, by one rename."""
    root.mkdir(parents=True, exist_ok=True)
    listed = [
        {"id": batch.id, "files": batch.files, "notes": batch.notes}
        for batch in sorted(batches, key=lambda batch: batch.id)
    ]
    path = root / MANIFEST
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    with draft.open("w", encoding="utf-8") as file:
        json.dump({"schema_version": SCHEMA_VERSION, "batches": listed}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def sweep(root: Path, tables: Sequence[str]) -> None:
    """Delete files of these tables that no batch names (tasks that died, batches replaced)."""
    named = set(_names(read_batches(root)))
    for table in tables:
        for folder in sorted((root / table).glob("batch-*")):
            for file in sorted(folder.iterdir()):
                if str(file.relative_to(root)) not in named:
                    file.unlink()
            if not any(folder.iterdir()):
                folder.rmdir()


def stamp(root: Path) -> object:
    """What differs once the folder holds something else; without a manifest, all Parquet files."""
    path = root / MANIFEST
    if path.is_file():
        status = path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino
    return tuple((str(file), file.stat().st_mtime_ns) for file in sorted(root.rglob("*.parquet")))


def _names(batches: Sequence[Batch]) -> list[str]:
    return [name for batch in batches for files in batch.files.values() for name, _ in files]


def _batch(entry: dict[str, Any]) -> Batch:
    files = {t: [(str(f), int(n)) for f, n in fs] for t, fs in entry["files"].items()}
    return Batch(id=int(entry["id"]), files=files, notes=dict(entry.get("notes", {})))

"""The manifest of a folder of tables: which files count, batch by batch.

**Rules.** A file counts when the manifest names it. The manifest changes at once, so a reader sees
a batch whole or not at all, even if a process is killed. Each version of it is made from the one
before and by one writer: a commit that was made from an older version is refused. A manifest names
files of its own folder only, by the names that :func:`file_name` gives.

**Strategy.** Version N is decided when ``_commits/<N>.json`` is created, which one process can do;
then ``_manifest.json`` becomes the same. A writer that stops between the two and goes on much later
puts an old version there, so whoever reads ``_manifest.json`` looks for a higher one as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast.errors import SourceError
from holdfast.tables.lease import COMMITS, WriterLease
from holdfast.tables.store import FolderStore, Store, is_draft

MANIFEST: Final = "_manifest.json"
SCHEMA_VERSION: Final = 1

Files = Sequence[tuple[str, int]]
"""Files below the folder, with their rows."""

_FILE: Final = re.compile(r"([a-z_]+)/batch-\d{9,18}/[0-9a-f]{32}\.parquet")
_VERSION: Final = re.compile(r"(\d{9,18})\.json")
_TRIES: Final = 5
DRAFT_NS: Final = 3_600 * 10**9
"""A draft that is older may be deleted: a second process writes one while it asks for the lease."""


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
        What the job of the batch wants to remember; ``state`` names files, as ``files`` does.
    """

    id: int
    files: dict[str, list[tuple[str, int]]]
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One version of a manifest.

    Parameters
    ----------
    version : int
        0 where nothing was committed yet.
    writer : int
        Token of the writer that committed it.
    batches : tuple of Batch
        Oldest first.
    """

    version: int = 0
    writer: int = 0
    batches: tuple[Batch, ...] = ()


def batch_folder(batch: int) -> str:
    """Folder name of a batch."""
    return f"batch-{batch:09d}"


def file_name(table: str, batch: int, unique: str) -> str:
    """Name of a file of a table, below the folder; ``unique`` is 32 hexadecimal digits."""
    return f"{table}/{batch_folder(batch)}/{unique}.parquet"


def is_file_name(name: object, table: str) -> bool:
    """Whether a name is one that :func:`file_name` gives for a table."""
    match = _FILE.fullmatch(name) if isinstance(name, str) else None
    return match is not None and match.group(1) == table


def has_manifest(root: Path) -> bool:
    """Whether a batch was ever committed to a folder."""
    return (root / MANIFEST).is_file() or bool(_versions(FolderStore(root)))


def read_manifest(root: Path) -> Manifest:
    """The newest version of a folder's manifest; an empty one where nothing was committed.

    Raises
    ------
    SourceError
        It is not a manifest, has another schema version, or names a file as we do not.
    """
    store = FolderStore(root)
    for _ in range(_TRIES):
        found = _parsed(store, MANIFEST)
        newest = max(_versions(store), default=0)
        if found is not None and (found.version >= newest or not found.version):
            # Without a version it is somebody's own, and counts as it stands.
            return replace(found, version=max(found.version, newest))
        if not newest:
            return Manifest()
        found = _parsed(store, _version_name(newest))
        if found is not None:
            return found
    raise SourceError(f"{root}: its manifest changes faster than it can be read; try again")


def read_batches(root: Path) -> list[Batch]:
    """Committed batches of a folder, oldest first.

    Raises
    ------
    SourceError
        The folder has no manifest, or one that cannot be read; see :func:`read_manifest`.
    """
    found = read_manifest(root)
    if not found.version and not has_manifest(root):
        raise SourceError(f"{root} holds no tables: {MANIFEST} is missing")
    return list(found.batches)


def commit_batches(
    root: Path, batches: Iterable[Batch], *, made_from: Manifest, writer: WriterLease
) -> Manifest:
    """Make these batches the ones that count, at once.

    Parameters
    ----------
    made_from : Manifest
        The version that these batches were made from.
    writer : WriterLease
        The right to write.

    Raises
    ------
    SourceError
        The lease is gone, or another version was committed since; nothing is changed then.
    """
    store = FolderStore(root)
    listed = tuple(sorted(batches, key=lambda batch: batch.id))
    made = Manifest(version=made_from.version + 1, writer=writer.token, batches=listed)
    writer.check(store)
    if read_manifest(root).version != made_from.version:
        raise _overtaken(root, made)
    name, data = _version_name(made.version), _text(made)
    if not store.create(name, data):
        raise _overtaken(root, made)
    if max(_versions(store)) > made.version:
        # Ours was deleted as an old one before: it decides nothing.
        store.delete(name)
        raise _overtaken(root, made)
    store.replace(MANIFEST, data)
    return made


def forget_versions(root: Path, newest: Manifest) -> None:
    """Delete the versions before this one, and old drafts of writers that died."""
    store = FolderStore(root)
    until_ns = commit_time_ns(root, newest) - DRAFT_NS
    for folder in (COMMITS, ""):
        for name in filter(is_draft, store.names(folder)):
            draft = root / folder / name
            with suppress(FileNotFoundError):  # its writer lives, and has finished it
                if draft.stat().st_mtime_ns < until_ns:
                    draft.unlink()
    for version in _versions(store):
        if version < newest.version:
            store.delete(_version_name(version))


def commit_time_ns(root: Path, manifest: Manifest) -> int:
    """When a version was committed, by the clock of the file system; 0 where that is not known."""
    for name in (_version_name(manifest.version), MANIFEST):
        try:
            return (root / name).stat().st_mtime_ns
        except FileNotFoundError:
            continue
    return 0


def stamp(root: Path) -> object:
    """What differs once the folder holds something else; without a manifest, all Parquet files."""
    path = root / MANIFEST
    if path.is_file():
        status = path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino
    return tuple((str(file), file.stat().st_mtime_ns) for file in sorted(root.rglob("*.parquet")))


def named_files(batches: Iterable[Batch]) -> set[str]:
    """Every file that batches name, in their notes too."""
    return {name for batch in batches for files in _lists(batch).values() for name, _ in files}


def _overtaken(root: Path, made: Manifest) -> SourceError:
    return SourceError(
        f"{root}: another process has committed version {made.version} since this one began; "
        "nothing was committed: start again"
    )


def _lists(batch: Batch) -> Mapping[str, Files]:
    return {**batch.files, **(batch.notes.get("state") or {})}


def _version_name(version: int) -> str:
    return f"{COMMITS}/{version:09d}.json"


def _versions(store: Store) -> list[int]:
    found = (_VERSION.fullmatch(name) for name in store.names(COMMITS))
    return sorted(int(match.group(1)) for match in found if match)


def _text(manifest: Manifest) -> bytes:
    listed = [{"id": b.id, "files": b.files, "notes": b.notes} for b in manifest.batches]
    head = {"schema_version": SCHEMA_VERSION, "version": manifest.version}
    return json.dumps({**head, "writer": manifest.writer, "batches": listed}, indent=1).encode()


def _parsed(store: FolderStore, name: str) -> Manifest | None:
    path = store.root / name
    try:
        text = store.read(name)
        if text is None:
            return None
        document = json.loads(text)
        schema, batches = document["schema_version"], document["batches"]
        if schema != SCHEMA_VERSION:
            raise SourceError(f"{path} has schema_version {schema}, expected {SCHEMA_VERSION}")
        found = Manifest(
            version=int(document.get("version", 0)),
            writer=int(document.get("writer", 0)),
            batches=tuple(_batch(entry) for entry in batches),
        )
        lists = [(table, files) for b in found.batches for table, files in _lists(b).items()]
        bad = [name for table, files in lists for name, _ in files if not is_file_name(name, table)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(f"{path}: not a manifest: {error!r}") from error
    if bad:
        raise SourceError(
            f"{path}: names {bad[0]!r}, which may be outside of the folder: a file of a table is "
            "TABLE/batch-NUMBER/32 hexadecimal digits.parquet"
        )
    return found


def _batch(entry: dict[str, Any]) -> Batch:
    files = {t: [(str(f), int(n)) for f, n in fs] for t, fs in entry["files"].items()}
    return Batch(id=int(entry["id"]), files=files, notes=dict(entry.get("notes", {})))

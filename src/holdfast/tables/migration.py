"""A folder of an earlier version of holdfast, brought up to date where it is.

**Rules.** No file of a table is read whole, written or moved: the logs of the tables name the files
that the old manifest named. A migration that is killed is done anew by the next one, from a copy of
the old manifest that stays until all of it is committed.

**Strategy.** The manifest of version 1 listed every file of every batch. Its newest version is
copied to ``_manifest-1.json``; then the old ones go, and one commit takes all files over, under the
number and with the notes of the newest batch. So a stream goes on where it was.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from holdfast.errors import SourceError
from holdfast.tables.lease import COMMITS
from holdfast.tables.manifest import MANIFEST, Batch, Manifest
from holdfast.tables.names import is_file_name
from holdfast.tables.places import Place
from holdfast.tables.reading import Tables
from holdfast.tables.remote_store import store_of
from holdfast.tables.store import Store
from holdfast.tables.stored import TABLES

OLD: Final = "_manifest-1.json"
_VERSION: Final = re.compile(r"\d{9,18}\.json")


def migrate(root: Place) -> int:
    """Bring a folder of tables up to date; returns how many batches it had, 0 if it is up to date.

    Raises
    ------
    SourceError
        There are no tables, their manifest cannot be read, a file is gone, or another process
        writes to the folder.
    """
    tables, store = Tables(root), store_of(root)
    if not root.is_dir():
        raise SourceError(f"{root}: no such folder")
    with tables.writing() as writer:
        document = _oldest_kept(store)
        if document is None:
            if not tables.manifest().version:
                raise SourceError(f"{root} holds no tables: {MANIFEST} is missing")
            return 0
        batch, n_batches = _as_one(root, document)
        store.replace(OLD, json.dumps(document).encode())
        for name in (*_old_versions(store), MANIFEST):
            store.delete(name)
        tables.commit(batch, made_from=Manifest(), writer=writer)
        store.delete(OLD)
    return n_batches


def _oldest_kept(store: Store) -> dict[str, Any] | None:
    """The manifest of version 1 that counts; None where there is none."""
    found: list[dict[str, Any]] = []
    for name in (OLD, MANIFEST, *_old_versions(store)):
        text = store.read(name)
        if text is None:
            continue
        try:
            document = json.loads(text)
            if document["schema_version"] == 1:
                found.append(document)
            elif name == MANIFEST:
                store.delete(OLD)
                return None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SourceError(f"{store.name_of(name)}: not a manifest: {error!r}") from error
    return max(found, key=lambda one: int(one.get("version", 0)), default=None)


def _old_versions(store: Store) -> list[str]:
    return [f"{COMMITS}/{name}" for name in store.names(COMMITS) if _VERSION.fullmatch(name)]


def _as_one(root: Place, document: dict[str, Any]) -> tuple[Batch, int]:
    """All batches of a manifest of version 1 as one, with the notes of the newest."""
    files: dict[str, list[tuple[str, int]]] = {}
    try:
        batches = sorted(document["batches"], key=lambda one: int(one["id"]))
        for one in batches:
            for table, named in one["files"].items():
                files.setdefault(str(table), []).extend((str(f), int(n)) for f, n in named)
        last: dict[str, Any] = batches[-1] if batches else {"id": 0, "notes": {}}
        number, notes = int(last["id"]), dict(last.get("notes", {}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{root / MANIFEST}: not a manifest: {error!r}") from error
    bad = [f for table, named in files.items() for f, _ in named if not is_file_name(f, table)]
    if bad or set(files) - set(TABLES):
        raise SourceError(
            f"{root / MANIFEST}: names {(bad or sorted(set(files) - set(TABLES)))[0]!r}, which may "
            "be outside of the folder: a file of a table is TABLE/batch-NUMBER/32 hexadecimal "
            "digits.parquet"
        )
    return Batch(id=number, files=files, notes=notes), len(batches)

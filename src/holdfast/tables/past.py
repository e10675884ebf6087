"""Time travel: what the manifest of a folder named when an earlier batch was the newest one.

**Rules.** Nothing but committed batches is found, whole and in all tables. What upkeep did under a
batch's number belongs to that batch. A batch goes out of reach with its files, which stay for
KEPT_HOURS after they left a table, or for KEPT_VERSIONS commits where those are sooner.

**Strategy.** Each entry of a table's log says for which version of the manifest it was made. Of
every table the newest entry counts that was made for the version wanted or for an earlier one: a
writer that died left entries for a version that the next writer decided, and that writer's entry
takes them back.

References: Delta Lake, "Delta Transaction Log Protocol", ``commitInfo``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from holdfast.errors import SourceError
from holdfast.tables.commits import KEPT_VERSIONS, Versions
from holdfast.tables.delta_log import (
    KEPT_HOURS,
    entries_and_checkpoints,
    entry_name,
)
from holdfast.tables.folder import checked_files
from holdfast.tables.manifest import Batch, Manifest, TableVersion, read_manifest
from holdfast.tables.places import Place
from holdfast.tables.remote_store import each, store_of
from holdfast.tables.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What an entry says of itself.

    Parameters
    ----------
    version : int
        Of the table.
    manifest : int
        Version of the manifest that it was made for.
    batch, at_ms : int
        Batch, and when it was made, UTC.
    """

    version: int
    manifest: int
    batch: int
    at_ms: int


def manifest_at(root: Place, *, batch: int | None = None, at_ms: int | None = None) -> Manifest:
    """The manifest as it was when a batch was the newest one, or at a time.

    Parameters
    ----------
    batch : int, optional
        Number of the batch.
    at_ms : int, optional
        Time, UTC; without a batch.

    Raises
    ------
    SourceError
        There is no such batch within reach.
    """
    newest, store = read_manifest(root), store_of(root)
    made = {table: _made(store, table, newest) for table in newest.tables}
    commits: dict[int, Made] = {}
    for one in (entry for found in made.values() for entry in found):
        known = commits.get(one.manifest)
        commits[one.manifest] = max(known or one, one, key=lambda entry: entry.at_ms)
    hits = [
        one
        for one in commits.values()
        if (one.at_ms <= at_ms if batch is None and at_ms is not None else one.batch == batch)
    ]
    asked = f"batch {batch}" if batch is not None else f"batch at {_moment(at_ms or 0)}"
    if not hits:
        raise SourceError(f"{root} has no {asked} within reach: {_reach(list(commits.values()))}")
    wanted = max(hits, key=lambda one: one.manifest)
    tables = {}
    for table, found in made.items():
        versions = [one.version for one in found if one.manifest <= wanted.manifest]
        if versions:
            tables[table] = _version(store, table, max(versions))
        elif not found or found[-1].version > 0:
            raise SourceError(f"{root} has no {asked} within reach: {_reach([wanted])}")
    batches = tuple(one for one in newest.batches if one.id <= wanted.batch)
    batches = batches or (Batch(id=wanted.batch),)
    return _counted(
        root, replace(newest, version=wanted.manifest, batches=batches, tables=tables), asked
    )


def _counted(root: Place, manifest: Manifest, asked: str) -> Manifest:
    """The manifest with the rows of each table, whose files are all there."""
    versions, tables = Versions(root), {}
    for table, one in manifest.tables.items():
        try:
            state = versions.state(table, manifest)
            files = checked_files(root, state.files)
            there = each(lambda file: file.exists(), files, root=root)
            gone = [str(file) for file, is_there in zip(files, there, strict=True) if not is_there]
        except FileNotFoundError as error:
            gone = [str(error)]
        if gone:
            raise SourceError(
                f"{root} has no {asked} within reach: {gone[0]} is deleted; files stay for "
                f"{KEPT_HOURS} h after they left a table, and for {KEPT_VERSIONS} commits at most"
            )
        tables[table] = replace(one, rows=state.rows)
    return replace(manifest, tables=tables)


def _made(store: Store, table: str, newest: Manifest) -> list[Made]:
    """What the entries of a table say, newest first, as far back as they say it."""
    found = []
    for version in range(newest.tables[table].version, -1, -1):
        text = store.read(entry_name(table, version))
        if text is None:
            break
        try:
            said = json.loads(text.split(b"\n", 1)[0])["commitInfo"]
            one = Made(
                version=version,
                manifest=int(said["manifest"]),
                batch=int(said["batch"]),
                at_ms=int(said["timestamp"]),
            )
        except (ValueError, KeyError, TypeError):
            break  # an earlier holdfast wrote it
        found.append(one)
    return found


def _version(store: Store, table: str, version: int) -> TableVersion:
    _, checkpoints = entries_and_checkpoints(store, table)
    before = max((one for one in checkpoints if one <= version), default=-1)
    return TableVersion(version=version, checkpoint=before)


def _reach(commits: list[Made]) -> str:
    if not commits:
        return "an earlier holdfast wrote its batches"
    first, last = (end(commits, key=lambda one: one.manifest) for end in (min, max))
    return (
        f"it goes from batch {first.batch} ({_moment(first.at_ms)}) to batch {last.batch} "
        f"({_moment(last.at_ms)})"
    )


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")

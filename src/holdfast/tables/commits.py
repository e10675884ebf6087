"""Committing a batch to a folder of tables: an entry in the log of each table, then the manifest.

**Rules.** Every file is there and is Parquet before an entry names it; every entry is there before
the manifest names its version. Nothing that the commit did counts until the manifest does. What a
writer left that died before, or came too late, is taken back by the next commit, in the same entry.

**Strategy.** The state of each table is kept from one commit to the next (:class:`Versions`), so a
commit reads as much as it writes, however many batches there are. A file that no version names
which a reader may have been told of is deleted by :func:`tidy`, every TIDY_EVERY commits, in the
folders where the log says that there is one. All folders are looked through by the first commit of
a writer, and every SWEEP_EVERY commits: there are as many as files that can be read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import SourceError
from holdfast.tables.delta_log import (
    BOUNDED,
    CHECKPOINT_EVERY,
    KEPT_HOURS,
    Change,
    DataFile,
    TableState,
    after,
    checkpoint_name,
    entries_and_checkpoints,
    entry_name,
    log_folder,
    read_on,
    read_past,
    read_state,
    write_checkpoint,
)
from holdfast.tables.folder import checked_files, sweep
from holdfast.tables.last_writer import LastWriter
from holdfast.tables.manifest import (
    Batch,
    Manifest,
    TableVersion,
    commit_manifest,
    commit_time_ns,
    forget_drafts,
    forget_versions,
    overtaken,
)
from holdfast.tables.names import batch_folder
from holdfast.tables.places import Place, readable, size_of, written_ns_of
from holdfast.tables.remote_store import each, store_of
from holdfast.tables.store import Store
from holdfast.tables.stored import TABLES

TIDY_EVERY: Final = 100
"""Commits after which files that count no more are deleted."""
SWEEP_EVERY: Final = 10 * TIDY_EVERY
"""Commits after which all folders are looked through for files that never counted."""
CLOCKS_MS: Final = 2_000
"""By so much the clock of a store may differ from that of the writer before it."""
KEPT_VERSIONS: Final = 1_000
"""Versions of a table that can be read, at most; see also KEPT_HOURS."""


@dataclass(slots=True)
class Versions:
    """States of the tables of a folder, kept from one reading to the next.

    Parameters
    ----------
    root : path or URL
        Folder of the tables.
    is_tidied : bool
        This process has looked through all folders.
    committed : int
        The version of the manifest that was committed last through these; -1 for none.
    """

    root: Place
    folder: str = ""
    is_tidied: bool = False
    committed: int = -1
    states: dict[str, TableState] = field(default_factory=dict)

    def state(self, table: str, manifest: Manifest) -> TableState:
        """The state of a table that a manifest names; an empty one where there is none yet.

        Raises
        ------
        FileNotFoundError
            The log does not go back so far: the manifest is an old one.
        SourceError
            The log cannot be read.
        """
        wanted = manifest.tables.get(table)
        if wanted is None:
            return TableState()
        if manifest.folder != self.folder:
            self.folder, self.states = manifest.folder, {}
        known = self.states.get(table)
        if known is not None and known.version == wanted.version:
            return known
        checked_files(self.root, [f"{log_folder(table)}/_last_checkpoint"])
        store = store_of(self.root)
        if known is not None and wanted.checkpoint <= known.version < wanted.version:
            found = read_on(store, table, known, wanted.version)
        else:
            found = read_state(store, table, wanted.version, wanted.checkpoint)
        self.states[table] = found
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What counts no more after a commit.

    Parameters
    ----------
    everything : bool
        All files of all tables.
    tables : collection of str
        All files of these tables.
    files : collection of str
        These files.
    batch : bool
        Files of an earlier batch with the same number.
    """

    everything: bool = False
    tables: Collection[str] = ()
    files: Collection[str] = ()
    batch: bool = True

    def of(self, table: str, state: TableState, batch: int) -> set[str]:
        """Names of the files of a table that go."""
        if self.everything or table in self.tables:
            return set(state.files)
        before = f"{table}/{batch_folder(batch)}/"
        return {n for n in state.files if (self.batch and n.startswith(before)) or n in self.files}


def commit_batch(
    versions: Versions,
    batch: Batch,
    gone: Gone,
    *,
    made_from: Manifest,
    writer: LastWriter,
    operation: str = "WRITE",
) -> Manifest:
    """Make a batch visible at once, in all tables.

    Parameters
    ----------
    made_from : Manifest
        As :func:`~holdfast.tables.manifest.newest_manifest` has just given it.

    Raises
    ------
    SourceError
        A file of the batch is gone, or another process has committed since; then nothing counts of
        what was done.
    """
    root, store = versions.root, store_of(versions.root)
    added = {table: data_files(root, files) for table, files in batch.files.items()}
    now_ms = time.time_ns() // 1_000_000

    def advanced(table: str) -> tuple[TableState, TableVersion]:
        """The next version of a table, its entry made."""
        state = versions.state(table, made_from)
        past = read_past(store, table, state)
        left = gone.of(table, state, batch.id)
        target = {n: f for n, f in state.files.items() if n not in left}
        target |= {file.name: file for file in added.get(table, ())}
        change = Change(
            added=[file for name, file in target.items() if name not in past.files],
            removed=[name for name in past.files if name not in target],
            operation=operation,
            same_rows=operation == "OPTIMIZE",
            batch=batch.id,
            writer=str(batch.notes.get("query", "")),
        )
        if change.added or change.removed or past.version < 0:
            past, text = after(table, past, change, now_ms)
            if not store.create(entry_name(table, past.version), text):
                raise overtaken(root)
        known = made_from.tables.get(table, TableVersion(version=-1))
        checkpoint = known.checkpoint
        if past.version - checkpoint >= CHECKPOINT_EVERY:
            write_checkpoint(store, table, past)
            checkpoint = past.version
        return past, TableVersion(version=past.version, checkpoint=checkpoint, rows=past.rows)

    found = dict(zip(TABLES, each(advanced, TABLES, root=root), strict=True))
    states = {table: state for table, (state, _) in found.items()}
    tables = {table: version for table, (_, version) in found.items()}
    rows = dict(batch.rows)  # files that upkeep or a look puts in place of others bring no rows
    if operation == "WRITE":
        rows = {table: sum(file.rows for file in files) for table, files in added.items()}
    listed = [one for one in made_from.batches if one.id != batch.id and not gone.everything]
    listed.append(Batch(id=batch.id, notes=batch.notes, rows=rows))
    until_ns = commit_time_ns(root, made_from)
    made = commit_manifest(root, listed, tables, made_from=made_from, writer=writer)
    versions.folder, versions.states, versions.committed = made.folder, states, made.version
    is_whole = not versions.is_tidied or made.version % SWEEP_EVERY == 0
    if is_whole or made.version % TIDY_EVERY == 0:
        tidy(versions, made, until_ns, now_ms, is_whole=is_whole)
        versions.is_tidied = True
    forget_versions(root, made)
    return made


def data_files(root: Place, files: Sequence[tuple[str, int]]) -> list[DataFile]:
    """Files as an entry names them, with the bounds that their footers say.

    Raises
    ------
    SourceError
        A file is not there, is reached through a link, or is not Parquet.
    """
    names = [name for name, _ in files]
    found = zip(names, checked_files(root, names), strict=True)
    return list(each(lambda one: _data_file(*one), found, root=root))


def _data_file(name: str, path: Place) -> DataFile:
    try:
        about = pq.read_metadata(readable(path))
        size, written_ns = size_of(path), written_ns_of(path)
    except FileNotFoundError as error:
        raise SourceError(f"{path} is gone: it was to be committed; start again") from error
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{path}: not readable as Parquet: {error}") from error
    lowest, highest = _bounds(about)
    return DataFile(
        name=name,
        rows=about.num_rows,
        size=size,
        written_ms=written_ns // 1_000_000,
        lowest=lowest,
        highest=highest,
    )


def _bounds(about: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Bounds of the columns of :data:`BOUNDED` that every row group says."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    at = {about.schema.column(i).path: i for i in range(about.num_columns)}
    for name in (one for one in BOUNDED if one in at):
        groups = [about.row_group(i).column(at[name]) for i in range(about.num_row_groups)]
        said = [one.statistics for one in groups]
        if said and all(one is not None and one.has_min_max for one in said):
            lowest[name] = _as_json(min(one.min for one in said), up=False)
            highest[name] = _as_json(max(one.max for one in said), up=True)
    return lowest, highest


def _as_json(value: Any, *, up: bool) -> Any:
    """A bound as Delta writes it: a time has milliseconds, so it is moved outwards."""
    if not isinstance(value, datetime):
        return value
    found = value.astimezone(UTC)
    millis = found.microsecond // 1000 + (1 if up and found.microsecond % 1000 else 0)
    whole = found.replace(microsecond=0).timestamp() * 1000 + millis
    return datetime.fromtimestamp(whole / 1000, UTC).isoformat(timespec="milliseconds")


def tidy(
    versions: Versions, manifest: Manifest, until_ns: int, now_ms: int, *, is_whole: bool = True
) -> None:
    """Delete what nobody can have been told to read: old entries, and files that no version names.

    Parameters
    ----------
    until_ns : int
        Files that were written after this moment stay: they may belong to a batch in the making.
    now_ms : int
        Present time.
    is_whole : bool
        Look into all folders, for files of tasks that died, too.
    """
    store = store_of(versions.root)
    kept: set[str] = set()
    left: set[str] = set()
    for table, state in list(versions.states.items()):
        if state.version < 0:
            continue
        since_ms = _forget_entries(store, table, manifest.tables[table], now_ms)
        removed = {name: at for name, at in state.removed.items() if at >= since_ms}
        versions.states[table] = replace(state, removed=removed)
        kept |= {*state.files, *removed}
        left |= {name.rpartition("/")[0] for name in state.removed if name not in removed}
    sweep(versions.root, tuple(TABLES), kept, until_ns, only=None if is_whole else left)
    forget_drafts(versions.root, manifest)


def _forget_entries(store: Store, table: str, known: TableVersion, now_ms: int) -> int:
    """Delete entries and checkpoints that are not needed; returns when the first one left was made.

    The newest checkpoint stays that all versions can be read from which are to be readable.
    """
    entries, checkpoints = entries_and_checkpoints(store, table)
    until_ms = now_ms - KEPT_HOURS * 3_600_000
    first = max(known.version - KEPT_VERSIONS, 0)
    for version in entries:
        if version < first:
            continue
        if version >= known.version or store.written_ms(entry_name(table, version)) > until_ms:
            first = version
            break
    base = max((c for c in checkpoints if c <= min(first, known.checkpoint)), default=-1)
    for version in entries:
        if version < base:
            store.delete(entry_name(table, version))
    for version in checkpoints:
        if version < base:
            store.delete(checkpoint_name(table, version))
    return store.written_ms(entry_name(table, first)) - CLOCKS_MS

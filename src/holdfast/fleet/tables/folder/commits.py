"""The present folder of tables: its newest snapshot, and commits to it.

**Rules.** Every file exists and is Parquet before an entry names it; every entry exists before the
manifest names its version. A commit does not count until the manifest names it. Files of a writer
that died before, or came too late, are removed by the next commit, in the same entry.

**Strategy.** The state of each table is kept from one commit to the next, so a commit reads as
much as it writes, however many batches exist. A file that no version names and that a reader may
know is deleted by :func:`tidy`, every TIDY_EVERY commits, in the folders in which the log has one.
All folders are searched by the first commit of a writer, and every SWEEP_EVERY commits: there are
as many folders as files that can be read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.errors import SourceError
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.delta_log import (
    CHECKPOINT_EVERY,
    KEPT_HOURS,
    DataFile,
    TableSnapshot,
    after,
    checkpoint_name,
    entries_and_checkpoints,
    entry_name,
    read_on,
    write_checkpoint,
)
from holdfast.fleet.tables.folder.files import (
    BOUNDED,
    batch_folder,
    check_folder,
    checked_files,
    sweep,
)
from holdfast.fleet.tables.folder.manifest import (
    COMMITS,
    Batch,
    Files,
    LastWriter,
    Manifest,
    TableVersion,
    commit_manifest,
    commit_time_ns,
    forget_drafts,
    overtaken,
    read_manifest,
    refuse_second,
    this_process,
)
from holdfast.fleet.tables.folder.snapshot import FolderSnapshot, SnapshotCache
from holdfast.fleet.tables.storage.file_system import FileSystem
from holdfast.fleet.tables.storage.parquet import BoundedParquet, statistics_of
from holdfast.fleet.tables.storage.paths import StoragePath, file_system_of

TIDY_EVERY: Final = 100
"""Commits after which files that count no more are deleted."""
SWEEP_EVERY: Final = 10 * TIDY_EVERY
"""Commits after which all folders are searched for files that never counted."""
CLOCKS_MS: Final = 2_000
"""Assumed difference between the clocks of the storage and of the previous writer."""
KEPT_VERSIONS: Final = 1_000
"""Versions of a table that can be read, at most; see also KEPT_HOURS."""


class Folder:
    """A folder of tables."""

    def __init__(self, root: StoragePath):
        self.root = root
        self.known = SnapshotCache(root)
        self._own: LastWriter | None = None
        self._last = Manifest()
        self._is_tidied = False

    def newest(self) -> FolderSnapshot:
        """Return the newest snapshot.

        A writer gets the snapshot that it began with or committed last, and the folder is not
        read: if another process has committed since, this one is refused when it commits.
        """
        return FolderSnapshot(self.known, self._last if self._own else read_manifest(self.root))

    @contextmanager
    def writing(self, again_seconds: float | None = None) -> Iterator[None]:
        """Write to this folder, as long as the block runs; refuse a folder with files of others.

        An error in the block that comes from another process's commit names that process.

        Parameters
        ----------
        again_seconds : float, optional
            Of a stream: seconds from one commit to the next. A second writer is refused when it
            begins.
        """
        check_folder(self.root)
        own, began = this_process(again_seconds), read_manifest(self.root)
        refuse_second(self.root, began.writer, own)
        file_system_of(self.root).check_creates(COMMITS)
        self._own, self._last = own, began
        try:
            yield
        except (SourceError, OSError) as error:
            if self._is_overtaken():
                raise overtaken(self.root) from error
            raise
        finally:
            self._own = None
            if again_seconds is not None and self._last is not began:
                with suppress(SourceError, OSError):
                    self._end()

    def _is_overtaken(self) -> bool:
        """Return whether another process has committed since this one began."""
        with suppress(SourceError, OSError):
            return read_manifest(self.root).version > self._last.version
        return False

    def _end(self) -> None:
        """Record that this process has stopped writing."""
        last = self._last
        commit_manifest(self.root, last.batches, last.tables, made_from=last, writer=this_process())

    def commit(
        self,
        batch: Batch,
        *,
        replace: bool = False,
        anew: Collection[str] = (),
        without: Collection[str] = (),
        made_from: Manifest | None = None,
        operation: str = "WRITE",
    ) -> None:
        """Make a batch visible at once, in all tables; regularly delete unused files.

        Parameters
        ----------
        batch : Batch
            Replaces the batch with its id.
        replace : bool
            Whether it replaces all batches.
        anew : collection of str
            Tables whose rows it replaces completely.
        without : collection of str
            Files of earlier batches that it replaces.
        made_from : Manifest, optional
            Base of the batch; by default the present manifest.
        operation : str
            Any operation but ``WRITE`` is not a new batch, but a change under the number of the
            newest one, in Delta's words: ``OPTIMIZE`` (other files, the same rows), ``DELETE``,
            ``UPDATE``.

        Raises
        ------
        SourceError
            A file of the batch is missing, another process keeps writing to the folder, or one has
            committed since; then nothing is changed.
        """
        is_new = operation == "WRITE"

        def goes(table: str, name: str) -> bool:
            is_its_own = is_new and name.startswith(f"{table}/{batch_folder(batch.id)}/")
            return replace or table in anew or name in without or is_its_own

        with self.writing() if self._own is None else nullcontext():
            newest = self._last
            if made_from is not None and newest.version != made_from.version:
                raise overtaken(self.root)
            added = {table: data_files(self.root, files) for table, files in batch.files.items()}
            rows = dict(batch.rows)  # files that replace others bring no rows
            if is_new:
                rows = {table: sum(file.rows for file in files) for table, files in added.items()}
            others = [b for b in newest.batches if b.id != batch.id and not replace]
            listed = [*others, Batch(id=batch.id, notes=batch.notes, rows=rows)]
            self._commit(newest, added, goes, listed, operation)

    def _commit(
        self,
        newest: Manifest,
        added: Mapping[str, Sequence[DataFile]],
        goes: Callable[[str, str], bool],
        batches: Sequence[Batch],
        operation: str,
    ) -> None:
        """Write an entry to the log of each table, then the manifest."""
        root, fs, now_ms = self.root, file_system_of(self.root), time.time_ns() // 1_000_000

        def advanced(table: str) -> tuple[TableSnapshot, TableVersion]:
            """Return the next version of a table after writing its entry."""
            snapshot = self.known.snapshot(table, newest)
            past = read_on(fs, table, snapshot)
            target = {n: file for n, file in snapshot.files.items() if not goes(table, n)}
            target |= {file.name: file for file in added.get(table, ())}
            new = [file for name, file in target.items() if name not in past.files]
            removed = [name for name in past.files if name not in target]
            if new or removed or past.version < 0:
                past, text = after(
                    table,
                    past,
                    new,
                    removed,
                    now_ms,
                    operation=operation,
                    batch=batches[-1].id,
                )
                if not fs.create(entry_name(table, past.version), text):
                    raise overtaken(root)
            known = newest.tables.get(table, TableVersion(version=-1))
            checkpoint = known.checkpoint
            if past.version - checkpoint >= CHECKPOINT_EVERY:
                write_checkpoint(fs, table, past)
                checkpoint = past.version
            return past, TableVersion(version=past.version, checkpoint=checkpoint, rows=past.rows)

        found = dict(zip(TABLES, fs.each(advanced, TABLES), strict=True))
        tables = {table: version for table, (_, version) in found.items()}
        version = newest.version + 1
        is_whole = not self._is_tidied or version % SWEEP_EVERY == 0
        is_due = is_whole or version % TIDY_EVERY == 0
        until_ns = commit_time_ns(root, newest) if is_due else 0
        own = this_process(self._own.again_seconds if self._own else None)
        made = commit_manifest(root, batches, tables, made_from=newest, writer=own)
        self.known.folder = made.folder
        self.known.snapshots = {table: snapshot for table, (snapshot, _) in found.items()}
        self._last = made
        if is_due:
            tidy(self.known, made, until_ns, now_ms, is_whole=is_whole)
            self._is_tidied = True


def data_files(root: StoragePath, files: Files, *, is_timed: bool = True) -> list[DataFile]:
    """Return files as an entry names them, with the bounds of their footers.

    Parameters
    ----------
    is_timed : bool
        Ask when each file was written: a request on remote storage, which the commit sends.
    """

    def read(found: tuple[str, StoragePath]) -> DataFile:
        name, path = found
        try:
            opened = BoundedParquet(path)
        except FileNotFoundError as error:
            raise _gone(path) from error
        written_ns = file_system_of(path).written_ns() if is_timed else 0
        if is_timed and not written_ns:
            raise _gone(path)
        lowest, highest = _bounds(opened.metadata)
        return DataFile(
            name=name,
            rows=opened.metadata.num_rows,
            size=opened.size,
            written_ms=written_ns // 1_000_000,
            lowest=lowest,
            highest=highest,
        )

    names = [name for name, _ in files]
    return file_system_of(root).each(read, zip(names, checked_files(root, names), strict=True))


def _gone(path: StoragePath) -> SourceError:
    return SourceError(f"{path} is missing: it was to be committed; start again")


def _bounds(about: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return bounds of the columns of :data:`BOUNDED` that every row group has, as JSON allows."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    for name in BOUNDED:
        said = statistics_of(about, name)
        if said and all(one is not None for one in said):
            with suppress(OverflowError, ValueError, TypeError):  # a time of no year that has one
                low = _as_json(min(one.min for one in said), up=False)
                lowest[name], highest[name] = low, _as_json(max(one.max for one in said), up=True)
    return lowest, highest


def _as_json(value: Any, *, up: bool) -> Any:
    """Return a bound in Delta's form: a time has milliseconds, so it is rounded outwards."""
    if not isinstance(value, datetime):
        return value
    found = value.astimezone(UTC)
    millis = found.microsecond // 1000 + (1 if up and found.microsecond % 1000 else 0)
    whole = found.replace(microsecond=0).timestamp() * 1000 + millis
    return datetime.fromtimestamp(whole / 1000, UTC).isoformat(timespec="milliseconds")


def tidy(
    known: SnapshotCache, manifest: Manifest, until_ns: int, now_ms: int, *, is_whole: bool = True
) -> None:
    """Delete what no reader can know: old entries, and files that no version names.

    Files that were written after ``until_ns`` stay: they may belong to an unfinished batch. With
    ``is_whole`` all folders are searched, for files of tasks that died, too.
    """
    fs = file_system_of(known.root)
    kept: set[str] = set()
    left: set[str] = set()
    for table, snapshot in list(known.snapshots.items()):
        if snapshot.version < 0:
            continue
        since_ms = _forget_entries(fs, table, manifest.tables[table], now_ms)
        removed = {name: at for name, at in snapshot.removed.items() if at >= since_ms}
        known.snapshots[table] = replace(snapshot, removed=removed)
        kept |= {*snapshot.files, *removed}
        left |= {name.rpartition("/")[0] for name in snapshot.removed if name not in removed}
    sweep(known.root, kept, until_ns, only=None if is_whole else left)
    forget_drafts(known.root, manifest)


def _forget_entries(fs: FileSystem, table: str, named: TableVersion, now_ms: int) -> int:
    """Delete unneeded entries and checkpoints; return when the first remaining one was made.

    The newest checkpoint from which all readable versions can be read stays.
    """
    entries, checkpoints = entries_and_checkpoints(fs, table)
    until_ms = now_ms - KEPT_HOURS * 3_600_000
    first = max(named.version - KEPT_VERSIONS, 0)
    for version in entries:
        if version < first:
            continue
        if version >= named.version or _written_ms(fs, table, version) > until_ms:
            first = version
            break
    base = max((c for c in checkpoints if c <= min(first, named.checkpoint)), default=-1)
    for version in entries:
        if version < base:
            fs.delete(entry_name(table, version))
    for version in checkpoints:
        if version < base:
            fs.delete(checkpoint_name(table, version))
    return _written_ms(fs, table, first) - CLOCKS_MS


def _written_ms(fs: FileSystem, table: str, version: int) -> int:
    return fs.written_ns(entry_name(table, version)) // 1_000_000

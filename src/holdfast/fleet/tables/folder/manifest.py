"""The manifest of a folder of tables: which versions of the tables belong together.

**Rules.** A batch counts when the manifest names versions of the tables that contain it. The
manifest changes atomically, so a reader sees a batch whole or not at all in all tables, even if a
process is killed. Each version of it is made from the one before: a commit that was made from an
older version is refused, so of two writers that began with the same version one commits. The
manifest does not grow with the batches.

A manifest names the process that wrote it (:class:`LastWriter`), for the error of a second writer,
and that decides nothing. A process that begins to write is refused at once if the manifest names a
running stream: on this machine its process lives, or on another one it has committed a short time
ago. A reused process id is another process, since it began at another time. Clocks of two machines
are compared here and nowhere else; if they differ, a second writer is refused at its first commit.

**Strategy.** The table's own log records which files count in a version of a table
(:mod:`holdfast.fleet.tables.folder.delta_log`). Version N of the manifest is decided when
``_commits/<N>.json`` is created, which one process can do; then ``_manifest.json`` is replaced by
the same content. A writer that is suspended between the two steps may later write an old version
there, and a full disk none, so readers of ``_manifest.json`` check for a higher version as well.
A stream records in each commit when it commits again, and clears that when it ends. A run that
commits once records nothing: before its commit it is invisible, and afterwards it has ended.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from holdfast.errors import SourceError
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.delta_log import log_folder
from holdfast.fleet.tables.folder.files import (
    fields_of,
    is_file_name,
    parsed,
    seconds,
    text_of,
    truth,
    whole,
)
from holdfast.fleet.tables.storage.file_system import FileSystem, is_draft
from holdfast.fleet.tables.storage.paths import StoragePath, file_system_of

_log = logging.getLogger("holdfast.tables")
MANIFEST: Final = "_manifest.json"
COMMITS: Final = "_commits"
"""Folder of the versions of the manifest."""
SCHEMA_VERSION: Final = 1
KEPT_BATCHES: Final = 20
"""Number of batches in the manifest, the newest ones."""

Files = Sequence[tuple[str, int]]
"""Files below the folder, with their rows."""

COMPLETE_AT: Final = "complete_at"
"""Note of a batch, and key of a dump: the moment up to which every record was read, in ISO 8601.

Empty in a batch of a stream that has not read that far yet."""

POLLED: Final = "polled"
"""Note of a batch, and key of a dump: true if its records come from polls of coordinators."""

REFUSED: Final = "refused_groups"
"""Note of a batch, and key of a dump: groups that the last poll could not read, with the reasons.

At most :data:`MOST_REFUSED` of them; the whole number is in :data:`N_REFUSED`."""
UNPOLLED: Final = "unpolled"
"""Note of a batch: times without a poll, as pairs of moments in ISO 8601, the newest
:data:`MOST_UNPOLLED`."""
MOST_UNPOLLED: Final = 20
N_REFUSED: Final = "n_refused_groups"
MOST_REFUSED: Final = 100

_VERSION: Final = re.compile(r"(\d{9,18})\.json")
_TRIES: Final = 5
DRAFT_NS: Final = 3_600 * 10**9
"""A draft that is older may be deleted: a younger one may be finished by its writer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch."""

    id: int  # batches are ordered by their ids
    # For a commit: files of each table; empty in a manifest.
    files: Mapping[str, Files] = field(default_factory=dict)
    # Notes of the job for its next batch; ``state`` names files, as ``files`` does, and only the
    # newest batch keeps it.
    notes: dict[str, Any] = field(default_factory=dict)
    # In a manifest: rows that the batch added to each table.
    rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """The version of a table that counts."""

    version: int  # of the table's log
    checkpoint: int = -1  # the newest checkpoint up to that version; -1 for none
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One version of a manifest."""

    version: int = 0  # 0 if nothing was committed yet
    writer: LastWriter | None = None  # the process that committed it
    folder: str = ""  # unique id of the folder, even among folders of one path
    batches: tuple[Batch, ...] = ()  # the newest KEPT_BATCHES, oldest first
    tables: Mapping[str, TableVersion] = field(default_factory=dict)


def has_manifest(root: StoragePath) -> bool:
    """Return whether a batch was ever committed to a folder."""
    fs = file_system_of(root)
    return fs.written_ns(MANIFEST) > 0 or bool(_versions(fs))


def read_manifest(root: StoragePath) -> Manifest:
    """Read the newest version of a folder's manifest; an empty one if nothing was committed."""
    fs = file_system_of(root)
    for _ in range(_TRIES):
        # A remote file that is replaced during a read may arrive as parts of both; a version never
        # changes.
        found = _parsed(fs, MANIFEST) if fs.replaces_at_once else None
        newest = max(_versions(fs), default=0)
        if found is None or found.version < newest:
            found = _parsed(fs, _version_name(newest) if newest else MANIFEST)
        if found is not None or not newest:
            return found or Manifest()
    raise SourceError(f"{root}: its manifest changes faster than it can be read; try again")


def nothing_committed(root: StoragePath) -> SourceError:
    """Return the error about a folder to which no batch was committed."""
    return SourceError(f"{root} holds no tables: {MANIFEST} is missing")


def commit_manifest(
    root: StoragePath,
    batches: Iterable[Batch],
    tables: Mapping[str, TableVersion],
    *,
    made_from: Manifest,
    writer: LastWriter,
) -> Manifest:
    """Make versions of the tables the ones that count, at once, and delete earlier versions.

    If another version was committed since, nothing is changed, and the error names its writer.
    """
    fs = file_system_of(root)
    listed = sorted(batches, key=lambda batch: batch.id)[-KEPT_BATCHES:]
    made = Manifest(
        version=made_from.version + 1,
        writer=writer,
        folder=made_from.folder or uuid.uuid4().hex,
        batches=(*map(_remembered, listed[:-1]), *listed[-1:]),
        tables=tables,
    )
    name, data = _version_name(made.version), _text(made)
    if not fs.create(name, data):
        raise overtaken(root)
    versions = _versions(fs)
    if max(versions) > made.version:
        # Ours was deleted as an old one before: it decides nothing.
        fs.delete(name)
        raise overtaken(root)
    try:
        fs.replace(MANIFEST, data)
    except (OSError, SourceError) as error:
        # The version counts, and readers find it: to report the commit as failed would be
        # wrong, and would repeat it.
        _log.warning("%s: version %s counts; its copy is missing: %s", root, made.version, error)
    for version in versions:
        if version < made.version:
            fs.delete(_version_name(version))
    return made


def forget_drafts(root: StoragePath, newest: Manifest) -> None:
    """Delete old drafts of writers that died."""
    fs = file_system_of(root)
    until_ns = commit_time_ns(root, newest) - DRAFT_NS
    for folder in (COMMITS, "", *map(log_folder, TABLES)):
        for name in filter(is_draft, fs.names(folder)):
            draft = f"{folder}/{name}".lstrip("/")
            if 0 < fs.written_ns(draft) < until_ns:  # 0: its writer has finished it
                fs.delete(draft)


def commit_time_ns(root: StoragePath, manifest: Manifest) -> int:
    """Return when a version was committed, by the clock of the storage; 0 if unknown."""
    fs = file_system_of(root)
    return fs.since_ns(_version_name(manifest.version)) or fs.since_ns(MANIFEST)


def stamp(root: StoragePath) -> object:
    """Return a value that differs after each change of the folder."""
    fs = file_system_of(root)
    return max(_versions(fs), default=0), fs.stamp(MANIFEST)


def overtaken(root: StoragePath) -> SourceError:
    """Return the error of a writer that lost the commit race; it names the winner."""
    by = read_manifest(root).writer
    return SourceError(
        f"{root}: another process has committed since this one began ({by}); nothing was "
        "committed: start again once that process has ended"
    )


def _state(batch: Batch) -> Mapping[str, Files]:
    found: Mapping[str, Files] = batch.notes.get("state") or {}
    return found


def _remembered(batch: Batch) -> Batch:
    notes = {name: note for name, note in batch.notes.items() if name != "state"}
    return replace(batch, notes=notes)


def _version_name(version: int) -> str:
    return f"{COMMITS}/{version:09d}.json"


def _versions(fs: FileSystem) -> list[int]:
    found = (_VERSION.fullmatch(name) for name in fs.names(COMMITS))
    return sorted(int(match.group(1)) for match in found if match)


def _text(manifest: Manifest) -> bytes:
    document = {
        "schema_version": SCHEMA_VERSION,
        "version": manifest.version,
        "writer": asdict(manifest.writer) if manifest.writer else None,
        "folder": manifest.folder,
        "tables": {name: asdict(one) for name, one in manifest.tables.items()},
        "batches": [{"id": b.id, "rows": b.rows, "notes": b.notes} for b in manifest.batches],
    }
    return json.dumps(document, indent=1).encode()


def _parsed(fs: FileSystem, name: str) -> Manifest | None:
    path = fs.name_of(name)
    try:
        text = fs.read(name)
        if text is None:
            return None
        document = fields_of(parsed(text))
        schema = document["schema_version"]
        if schema != SCHEMA_VERSION:
            raise SourceError(
                f"{path} has schema_version {schema}, expected {SCHEMA_VERSION}: another version "
                "of holdfast wrote these tables; use that one"
            )
        found = Manifest(
            version=whole(document["version"], least=1),
            writer=parsed_writer(document["writer"]),
            folder=text_of(document["folder"]),
            batches=_batches(document["batches"]),
            tables={t: _table(one) for t, one in document["tables"].items() if t in TABLES},
        )
        lists = [(table, files) for b in found.batches for table, files in _state(b).items()]
        bad = [name for table, files in lists for name, _ in files if not is_file_name(name, table)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(f"{path}: not a manifest: {error!r}") from error
    if bad:
        raise SourceError(
            f"{path}: names {bad[0]!r}, which may be outside of the folder: a file of a table is "
            "TABLE/batch-NUMBER/32 hexadecimal digits.parquet"
        )
    return found


def _table(entry: dict[str, Any]) -> TableVersion:
    return TableVersion(
        version=whole(entry["version"], least=-1),
        checkpoint=whole(entry["checkpoint"], least=-1),
        rows=whole(entry["rows"]),
    )


def _batches(entries: Sequence[dict[str, Any]]) -> tuple[Batch, ...]:
    if len(entries) > KEPT_BATCHES:
        raise ValueError(f"{len(entries)} batches, expected at most {KEPT_BATCHES}")
    return tuple(map(_batch, entries))


def _batch(entry: dict[str, Any]) -> Batch:
    rows = {str(table): whole(n) for table, n in entry["rows"].items()}
    notes = dict(fields_of(entry["notes"]))
    for name, check in _NOTES.items():
        if notes.get(name) is not None:
            check(notes[name])
    return Batch(id=whole(entry["id"]), notes=notes, rows=rows)


def _texts(value: object) -> None:
    if not isinstance(value, list):
        raise ValueError("expected a list of texts")
    for one in value:
        text_of(one)


def _ends(value: object) -> None:
    for partition, end in fields_of(value).items():
        whole(int(partition))
        whole(end)


def _files_by_table(value: object) -> None:
    for files in fields_of(value).values():
        for name, rows in files:
            text_of(name)
            whole(rows)


_NOTES: Final[Mapping[str, Callable[[object], object]]] = {
    "query": text_of,
    "taken_at": text_of,
    COMPLETE_AT: text_of,
    POLLED: truth,
    "cluster_id": text_of,
    "every_seconds": seconds,
    "started_with": _texts,
    "offsets": _ends,
    "dropped_before": whole,
    "state": _files_by_table,
}
"""Notes of a batch that are read again, and what they must be."""


SILENT_SECONDS: Final = 60.0
"""A stream on another machine that is late by so much has died."""
_PROCESSES: Final = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWriter:
    """The process that committed a version of the manifest."""

    host: str
    pid: int
    began: str  # start of the process, as its machine counts; "" if unknown
    at: str  # time of the commit, ISO 8601, UTC, by its own clock
    # Seconds until a stream commits again; None for a process that commits once.
    again_seconds: float | None = None

    def __str__(self) -> str:
        """Return a text for people."""
        return f"process {self.pid} on {self.host} (last commit {self.at})"


def parsed_writer(entry: Mapping[str, Any]) -> LastWriter:
    """Parse the writer that a manifest names; raises KeyError, TypeError or ValueError."""
    again = entry["again_seconds"]
    return LastWriter(
        host=text_of(entry["host"]),
        pid=whole(entry["pid"]),
        began=text_of(entry["began"]),
        at=text_of(entry["at"]),
        again_seconds=None if again is None else seconds(again),
    )


def this_process(again_seconds: float | None = None) -> LastWriter:
    """Return the calling process, as of now."""
    return LastWriter(
        host=socket.gethostname(),
        pid=os.getpid(),
        began=_began(os.getpid()),
        at=datetime.now(UTC).isoformat(),
        again_seconds=again_seconds,
    )


def refuse_second(root: StoragePath, last: LastWriter | None, own: LastWriter) -> None:
    """Refuse to begin while another process keeps writing; the SourceError names it."""
    if last is None or last.again_seconds is None:
        return
    if (last.host, last.pid, last.began) == (own.host, own.pid, own.began):
        return
    is_here = last.host == own.host
    left_seconds = 0.0 if is_here else _left_seconds(last, own)
    if left_seconds or (is_here and _lives(last)):
        after = f"; if it has died, start again in {left_seconds:.0f} s" if left_seconds else ""
        raise SourceError(
            f"{root} is being written by {last}: one process writes a folder of tables at a time; "
            f"wait until that process ends, stop it, or name another folder{after}"
        )


def _left_seconds(last: LastWriter, own: LastWriter) -> float:
    """Return how long a writer of another machine may still be silent; 0 for one that has died."""
    may_be_silent = SILENT_SECONDS + 2 * (last.again_seconds or 0)
    try:
        then, now = datetime.fromisoformat(last.at), datetime.fromisoformat(own.at)
        silent = (now - then).total_seconds()
    except (ValueError, TypeError):  # not a time, or one without a zone
        return 0.0
    return may_be_silent - silent if abs(silent) < may_be_silent else 0.0


def _lives(last: LastWriter) -> bool:
    """Return whether a process of this machine lives."""
    if last.began:
        return _began(last.pid) == last.began
    try:
        os.kill(last.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is another user's
        return True
    return True


def _began(pid: int) -> str:
    """Return when a process began, in ticks; "" if it has ended or the system has no answer."""
    try:
        text = (_PROCESSES / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        state, *fields = text.rpartition(")")[2].split()
        return "" if state in "ZX" else fields[18]
    except (OSError, ValueError, IndexError):
        return ""

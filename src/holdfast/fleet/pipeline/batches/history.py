"""The history of every group: records of a dump or a cluster in, tables out, as one batch.

**Rules.** A group's name is a value: it is never part of a path or of a query's text.

**Strategy.** A live cluster is dumped first. :mod:`holdfast.fleet.pipeline.batches.jobs` makes the
tables of the dump as one batch, and a commit makes the batch visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa

from holdfast.core.command_lines import SERVERS, holdfast_line
from holdfast.core.wire.one.topic_ids import names_by_id
from holdfast.errors import ConfigError
from holdfast.fleet.pipeline.batches.jobs import Job, remove_staged, remove_state
from holdfast.fleet.pipeline.history.lag import Ends, UnreadQuery
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.dump import write_dump
from holdfast.fleet.pipeline.ingest.polled_feed import Feed, PolledFeed
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.pipeline.ingest.split import share_positions
from holdfast.fleet.pipeline.steps import Session
from holdfast.fleet.tables.columns.schemas import moment_text, to_us
from holdfast.fleet.tables.folder.files import check_folder
from holdfast.fleet.tables.folder.maintenance import COARSEST_S
from holdfast.fleet.tables.folder.manifest import COMPLETE_AT, Batch
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.paths import StoragePath, file_system_of, storage_path

Note = Callable[[str], None]

DUMP_FOLDER: Final = "_dump"
"""Prefix of the folder of a run's dump of a live cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Tables that were written, to be read without Spark."""

    tables: Tables
    dump: Dump

    def table(
        self, name: str, *, flat: bool = True, groups: Sequence[str] | None = None
    ) -> pa.Table:
        """Return one table; the options are those of ``Tables.table``."""
        return self.tables.table(name, flat=flat, groups=groups)


def run(
    session: Session,
    source: Dump | Feed | StoragePath | str,
    out_dir: StoragePath | str,
    *,
    selection: Selection | None = None,
    auto_offset_reset: str = "latest",
    broker_logs: Sequence[Path] = (),
    overwrite: bool = False,
    examines: bool = True,
    note: Note | None = None,
) -> History:
    """Write the history of every group to a folder of tables, replacing an earlier history.

    Parameters
    ----------
    session : callable or None
        Returns a session; called if a step is too large for this process. None: every step runs in
        this process.
    source : Dump, path or URL of one, or Feed
        A live cluster is dumped first, into ``out_dir``.
    out_dir : path or URL
        Folder of the tables; created if missing. Workers write to it too.
    auto_offset_reset : str
        ``auto.offset.reset`` for the lag without a commit: 0 for ``latest``, else the whole log.
    broker_logs : sequence of Path
        Logs of group coordinators: their stated causes replace inferred ones.
    overwrite : bool
        Replace tables that a stream (``watch``) wrote to the folder, too.
    examines : bool
        Write the table ``findings``; else groups are examined when they are read.

    Raises
    ------
    ConfigError
        A stream writes to the folder, and ``overwrite`` is false.
    SourceError
        The source or a log cannot be read, or no record was read though it has some; or the folder
        contains files that are not ours, or another process writes to it.
    """
    tables = Tables(storage_path(out_dir).absolute())
    check_target(tables.root, overwrite=overwrite)
    chosen = selection or Selection()
    with tables.writing():
        _refuse_stream(tables.root, overwrite=overwrite)  # a stream may have started meanwhile
        dump, unread = _open(source, tables.root, chosen, note)
        dump.check_read()
        before = tables.manifest()
        job = Job(
            session=session,
            tables=tables,
            batch=tables.next_batch(),
            resolution_s=COARSEST_S,
        )
        names, ends = topic_names(dump), ends_of(dump, chosen, auto_offset_reset)
        job.tables_of(dump.rows(), chosen, names, ends, unread=unread, logs=broker_logs)
        about = {"cluster_id": dump.cluster_id, "taken_at": dump.taken_at}
        # The moment up to which the dump has every record, or else when it was taken.
        complete_us = to_us(dump.complete_at)
        about[COMPLETE_AT] = moment_text(ends.taken_at_us if complete_us is None else complete_us)
        notes = {**about, "n_records": dump.n_records(), **job.notes}
        notes |= dump.poll_notes
        notes |= job.examine(notes, replaces=True) if examines else {}
        done = Batch(id=job.batch, files=job.files, notes=notes)
        tables.commit(done, replace=True, made_from=before)
        remove_staged(tables.root)
        remove_state(tables.root)  # state of a stream whose tables were replaced
        _remove_dumps(tables.root, dump.path)
    pa.default_memory_pool().release_unused()
    return History(tables=tables, dump=dump)


def check_target(root: StoragePath, *, overwrite: bool = False) -> None:
    """Refuse a folder whose history would be lost, or that is not a folder of tables."""
    check_folder(root)
    _refuse_stream(root, overwrite=overwrite)


def _refuse_stream(root: StoragePath, *, overwrite: bool) -> None:
    """Refuse a folder that a stream keeps: a ConfigError."""
    kept = Tables(root).committed()
    if overwrite or not any("query" in batch.notes for batch in kept):
        return
    n_rows = Tables(root).rows("rebalances")
    line = holdfast_line("watch", "-b", SERVERS, "-o", str(root))
    raise ConfigError(
        f"{root} belongs to a stream and has {n_rows} rebalances, which the offsets topic may "
        f"have compacted away: name another folder (-o), add new records with `{line}`, or give "
        "--overwrite to replace all of it"
    )


def ends_of(dump: Dump, selection: Selection, reset: str) -> Ends:
    """Return the offsets of a dump's partitions, and positions of its share groups."""
    share, n_bad = share_positions(dump.share_state(), topic_names(dump), selection)
    return Ends(
        offsets=dump.offsets(),
        taken_at_us=taken_at_us(dump),
        reset=reset,
        share=share,
        n_bad_share=n_bad,
    )


def _remove_dumps(root: StoragePath, own: StoragePath) -> None:
    """Delete the dumps that earlier runs took for themselves."""
    found: list[StoragePath] = list(root.iterdir())
    for entry in found:
        if entry.name.startswith(f"{DUMP_FOLDER}-") and entry != own:
            file_system_of(entry).remove_folder()


def _open(
    source: Dump | Feed | StoragePath | str,
    root: StoragePath,
    selection: Selection,
    note: Note | None,
) -> tuple[Dump, UnreadQuery | None]:
    """Return the dump to be read, of a cluster with a query for first unread records."""
    if isinstance(source, Dump):
        return source, None
    if isinstance(source, str | StoragePath):
        return Dump.open(source), None
    own = root / f"{DUMP_FOLDER}-{uuid4().hex}"  # another run on this folder leaves it alone
    dump = dump_of(source, own, groups=selection.groups, note=note)
    return dump, source.cluster.first_unread


def dump_of(
    feed: Feed, folder: StoragePath | str, *, groups: Sequence[str] = (), note: Note | None = None
) -> Dump:
    """Write what a feed has as a dump: of polls, what coordinators answer now.

    Parameters and errors are those of :func:`~holdfast.fleet.pipeline.ingest.dump.write_dump`.
    """
    if isinstance(feed, PolledFeed):
        return feed.dump(storage_path(folder).absolute())
    return write_dump(feed, folder, groups=groups, note=note)


def taken_at_us(dump: Dump) -> int:
    """Return when the dump was taken, in microseconds; else the time of its newest record."""
    found = to_us(dump.taken_at)
    return dump.newest_us() if found is None else found


def topic_names(dump: Dump) -> dict[str, str]:
    """Return the name of each topic id, in either form, for KIP-848 records."""
    topics = dump.topics()
    pairs = zip(topics["topic_id"].to_pylist(), topics["topic"].to_pylist(), strict=True)
    return names_by_id(pairs)

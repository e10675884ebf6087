"""Tables as Arrow, from a folder or from columns in memory: whole, flat, or one group's rows.

**Rules.** Needs no Spark. Columns and types are those of :mod:`holdfast.tables.stored`. A missing
table is empty, and a missing nullable column holds nulls. Any other missing column is an error that
names the column. If there is a manifest, only the files that it names are read, and none of them
through a link. A file that is gone was swept after the manifest was read: then the manifest is read
again, once.

**Strategy.** There is one class for three uses. ``Tables(root)`` reads a folder whenever a table is
asked for, so it shows the newest batch; a job commits its batches through it. :meth:`Tables.pinned`
goes on reading the batch that was the newest one. :meth:`Tables.hold` and :func:`read_tables` read
at once and hold what they read. Where groups are named, only files and row groups are read whose
bounds, in the log and in the footer, admit one of them.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.command_lines import FOLDER, SERVERS, holdfast_line
from holdfast.errors import ConfigError, SourceError, suggest
from holdfast.tables.arrow_rows import (
    flatten,
    from_memory,
    latest_ms,
    of_groups,
    opened_parquet,
    read_files,
    row_groups,
    sort_rows,
)
from holdfast.tables.commits import Gone, Versions, commit_batch
from holdfast.tables.definition import Table
from holdfast.tables.delta_log import LOG, DataFile
from holdfast.tables.folder import check_folder, checked_files, refuse_links
from holdfast.tables.groups import GroupedTable
from holdfast.tables.last_writer import LastWriter, refuse_second, this_process
from holdfast.tables.manifest import (
    Batch,
    Manifest,
    check_commits,
    commit_manifest,
    forget_versions,
    has_manifest,
    newest_manifest,
    nothing_committed,
    overtaken,
    read_batches,
    read_manifest,
)
from holdfast.tables.parquet import open_parquet
from holdfast.tables.places import Place, parquet_below, place_of
from holdfast.tables.remote_store import each
from holdfast.tables.schemas import arrow_schema
from holdfast.tables.stored import TABLES
from holdfast.tables.values import to_us

Source = str | Place | Mapping[str, Any]
T = TypeVar("T")


class Tables:
    """The tables of one folder, or tables held in memory.

    Parameters
    ----------
    root : path or URL
        Folder of the tables; "." for tables that never had one.
    held : mapping of str to Table, optional
        Tables that are not read again. With it, a table that is not there is empty.
    pinned : Manifest, optional
        The version to read, whatever is committed meanwhile; by default the newest one.
    newest : mapping of str to int, optional
        What :meth:`newest_ms` says, where the rows that are held are not all of a table.
    """

    def __init__(
        self,
        root: Place,
        held: Mapping[str, pa.Table] | None = None,
        *,
        pinned: Manifest | None = None,
        newest: Mapping[str, int | None] | None = None,
    ):
        self.root = root
        self._held = held
        self._pinned = pinned
        self._newest = newest or {}
        self._cuts: dict[str, GroupedTable] = {}
        self._footers: dict[Place, Any] = {}
        self._versions = Versions(root)
        self._writer: LastWriter | None = None

    def __contains__(self, name: str) -> bool:
        return bool(self.files(name)) if self._held is None else name in self._held

    def stored(self, name: str, *, groups: Sequence[str] | None = None) -> pa.Table:
        """Read a table as it is stored: nested where it is, in no certain order.

        Raises
        ------
        SourceError
            There is no such table, nothing was committed, or a file cannot be read.
        """
        definition = _known(name)
        if self._held is None:
            return once_more(lambda: self._rows_of(name, groups))
        rows = self._held.get(definition.name)
        return arrow_schema(name).empty_table() if rows is None else of_groups(rows, groups)

    def table(
        self, name: str, *, flat: bool = True, groups: Sequence[str] | None = None
    ) -> pa.Table:
        """Read a table, sorted as its definition says.

        Parameters
        ----------
        name : str
            A table of :mod:`holdfast.tables.stored`.
        flat : bool
            Open the nested list into one row per element.
        groups : sequence of str, optional
            Only these groups.
        """
        rows, definition = self.stored(name, groups=groups), TABLES[name]
        return sort_rows(flatten(rows, definition) if flat else rows, definition)

    def of_group(self, group: str, name: str) -> pa.Table:
        """Rows of one group as they are stored; the table is read and cut the first time only."""
        if name not in self._cuts:
            self._cuts[name] = GroupedTable.of(self.stored(name))
        return self._cuts[name].of_group(group)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Names of all groups, sorted, as of the first use."""
        names: set[str] = set()
        for name in _WITH_GROUPS:
            names.update(pc.unique(self._groups_of(name)).to_pylist())
        return tuple(sorted(names))

    def choose(self, groups: Sequence[str] | None) -> tuple[str, ...] | None:
        """Find groups by name or pattern, in the order given; None for all.

        Raises
        ------
        ConfigError
            If there is no such group, with the nearest names.
        """
        chosen: dict[str, None] = {}
        for name in groups or ():
            if not _PATTERN.search(name) and self._has_group(name):
                chosen[name] = None
                continue
            hits = [g for g in self.groups if g == name or fnmatch.fnmatchcase(g, name)]
            chosen |= dict.fromkeys(hits)
            if not hits:
                hint = suggest(name, self.groups, 3)
                raise ConfigError(f"no group {name!r} in these tables; {hint}")
        return tuple(chosen) if groups else None

    def hold(self, groups: Sequence[str] | None = None, *, without: Collection[str] = ()) -> Tables:
        """The same tables, read now; what they hold belongs together.

        Parameters
        ----------
        groups : sequence of str, optional
            Read rows of these groups only; a table without groups is read whole.
        without : collection of str
            Tables that are not read; of them only :meth:`newest_ms` is known.
        """
        if self._held is not None and groups is None and not without:
            return self

        def read() -> Tables:
            one = self.pinned()
            names = [name for name in TABLES if name in one]
            held = {n: one._rows_of(n, groups) for n in names if n not in without}
            newest = {name: one.newest_ms(name) for name in names}
            return Tables(self.root, held, pinned=one._pinned, newest=newest)

        return once_more(read)

    def holding(self, rows: Mapping[str, pa.Table]) -> Tables:
        """The same tables, read now, with these rows as they would be stored in place of theirs."""
        whole = self.hold()
        newest = {name: time for name, time in whole._newest.items() if name not in rows}
        return Tables(
            self.root, {**(whole._held or {}), **rows}, pinned=self._pinned, newest=newest
        )

    def pinned(self) -> Tables:
        """The same tables as they are now; what is committed later is not seen.

        A file that a later commit takes out stays for KEPT_HOURS, or for KEPT_VERSIONS commits
        where these are sooner; so long they can be read.
        """
        if self._held is not None or self._pinned is not None:
            return self
        return Tables(self.root, pinned=read_manifest(self.root))

    def newest_ms(self, name: str) -> int | None:
        """Latest ``timestamp`` of a table, UTC, rounded up to milliseconds; None where it has none.

        Of a folder the logs say it, and no row is read.
        """
        if name in self._newest or "timestamp" not in _known(name).names:
            return self._newest.get(name)
        if self._held is None:
            return once_more(lambda: self._newest_kept(name))
        rows = self._held.get(name)
        return None if rows is None else latest_ms(rows["timestamp"])

    def batches(self) -> list[Batch]:
        """The newest batches, oldest first; :func:`~holdfast.tables.manifest.read_batches`."""
        return read_batches(self.root) if self._pinned is None else list(self._pinned.batches)

    def committed(self) -> list[Batch]:
        """The same; none where there is no manifest yet."""
        return self.batches() if has_manifest(self.root) else []

    def newest_notes(self) -> Mapping[str, Any]:
        """Notes of the newest batch; none where tables are held that never were in a folder."""
        in_a_folder = self._held is None or self.root != Path()
        kept = self.committed() if in_a_folder else []
        return kept[-1].notes if kept else {}

    def next_batch(self) -> int:
        """Smallest id above all committed ones."""
        return max((batch.id for batch in self.committed()), default=-1) + 1

    @contextmanager
    def writing(self, again_seconds: float | None = None) -> Iterator[None]:
        """Write to this folder, as long as the block runs.

        What fails in the block because another process has committed says so.

        Parameters
        ----------
        again_seconds : float, optional
            Of a stream: from one commit to the next. A second writer is refused when it begins.

        Raises
        ------
        SourceError
            Another process goes on writing to it, or it holds what is not ours.
        """
        check_folder(self.root)
        own, kept = this_process(again_seconds), read_manifest(self.root)
        refuse_second(self.root, kept.writer, own)
        check_commits(self.root)
        self._writer = own
        try:
            yield
        except (SourceError, OSError) as error:
            if self._is_overtaken(kept):
                raise overtaken(self.root) from error
            raise
        finally:
            self._writer = None
            if again_seconds is not None:
                with suppress(SourceError, OSError):
                    self._end()

    def _is_overtaken(self, began: Manifest) -> bool:
        """Whether another process has committed since this one began."""
        with suppress(SourceError, OSError):
            own = max(began.version, self._versions.committed)
            return read_manifest(self.root).version > own
        return False

    def _end(self) -> None:
        """Take back that this process goes on."""
        kept = read_manifest(self.root)
        if kept.version == self._versions.committed:
            ended = commit_manifest(
                self.root, kept.batches, kept.tables, made_from=kept, writer=this_process()
            )
            self._versions.committed = ended.version
            forget_versions(self.root, ended)

    def manifest(self) -> Manifest:
        """The manifest as it stands; :func:`~holdfast.tables.manifest.read_manifest`."""
        return read_manifest(self.root) if self._pinned is None else self._pinned

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
        """Make a batch visible at once; now and then, delete files that count no more.

        Parameters
        ----------
        batch : Batch
            Stands in place of one with its id.
        replace : bool
            It replaces all others.
        anew : collection of str
            Tables of which it replaces all rows.
        without : collection of str
            Files of earlier batches, which it replaces.
        made_from : Manifest, optional
            What the batch was made from; by default the manifest as it stands.
        operation : str
            Anything but ``WRITE`` is no new batch, but a change under the number of the newest one,
            as Delta calls it: ``OPTIMIZE`` (other files, the same rows), ``DELETE``, ``UPDATE``.

        Raises
        ------
        SourceError
            A file of the batch is gone, another process goes on writing to the folder, or one has
            committed since; nothing is changed then.
        """
        is_new = operation == "WRITE"
        gone = Gone(everything=replace, tables=anew, files=without, batch=is_new)
        old = made_from or self._pinned
        if self._writer is not None:
            self._commit(batch, gone, old, operation, self._writer.again_seconds)
            return
        with self.writing():
            self._commit(batch, gone, old, operation)

    def _commit(
        self,
        batch: Batch,
        gone: Gone,
        made_from: Manifest | None,
        operation: str,
        again_seconds: float | None = None,
    ) -> None:
        commit_batch(
            self._versions,
            batch,
            gone,
            made_from=newest_manifest(self.root, made_from),
            writer=this_process(again_seconds),
            operation=operation,
        )

    def data_files(self, name: str) -> list[DataFile]:
        """Committed files of a table, with the bounds of their columns; none without a manifest.

        Raises
        ------
        SourceError
            There is no such table, or the manifest or the table's log cannot be read.
        """
        _known(name)
        return self._files_of(name)

    def files(self, name: str, groups: Sequence[str] | None = None) -> list[Place]:
        """Committed files of a table; without a manifest, those that :func:`read_tables` read.

        Parameters
        ----------
        groups : sequence of str, optional
            Leave out files that hold none of these groups.

        Raises
        ------
        SourceError
            There is no such table, nothing was committed, or a file is reached through a link.
        """
        _known(name)
        if self._held and name in self._held and not has_manifest(self.root):
            return _loose_files(self.root, name)
        wanted = None if groups is None else sorted(set(groups))
        listed = self._files_of(name, needed=True)
        names = [f.name for f in listed if wanted is None or f.may_hold("group", wanted)]
        return checked_files(self.root, names)

    def _files_of(self, name: str, *, needed: bool = False) -> list[DataFile]:
        """Files of a table by one reading of the manifest; ``needed``: there has to be one."""

        def read() -> list[DataFile]:
            found = self.manifest()
            if needed and not found.version:
                raise nothing_committed(self.root)
            return list(self._versions.state(name, found).files.values())

        return once_more(read)

    def rows(self, name: str) -> int:
        """Stored rows of a table, by the manifest."""
        _known(name)
        found = self.manifest()
        if not found.version:
            raise nothing_committed(self.root)
        return found.tables[name].rows if name in found.tables else 0

    def _rows_of(self, name: str, groups: Sequence[str] | None) -> pa.Table:
        """As :meth:`stored`; what is gone is not read again."""
        if self._held is not None:
            return self.stored(name, groups=groups)
        return read_files(self.files(name, groups), TABLES[name], groups, self._footers)

    def _newest_kept(self, name: str) -> int | None:
        files = self.data_files(name)
        ends = [text for file in files if (text := file.highest.get("timestamp")) is not None]
        found = [us // 1_000 for text in ends if (us := to_us(text)) is not None]
        rest = [file.name for file in files if "timestamp" not in file.highest]
        for path in checked_files(self.root, rest):
            latest = latest_ms(open_parquet(path).read(columns=["timestamp"])["timestamp"])
            found += [] if latest is None else [latest]
        return max(found, default=None)

    def _has_group(self, group: str) -> bool:
        named = pa.scalar(group, pa.string())
        return any(
            pc.any(pc.equal(self._groups_of(name, [group]), named)).as_py() for name in _WITH_GROUPS
        )

    def _groups_of(self, name: str, groups: Sequence[str] | None = None) -> Any:
        """Names in a table, as often as they stand there: those that may be one of ``groups``."""
        if self._held is not None:
            return self.stored(name)["group"]

        def column(file: Place) -> Any:
            opened = opened_parquet(file, self._footers)
            return opened.read_row_groups(row_groups(opened, groups), ["group"])["group"]

        def read() -> list[Any]:
            rows = each(column, self.files(name, groups))
            return [chunk for part in rows for chunk in part.chunks]

        return pa.chunked_array(once_more(read), pa.string())


_WITH_GROUPS: Final = ("generations", "lag", "members", "rebalances")
_PATTERN: Final = re.compile(r"[*?\[]")


def tables_in(root: Place) -> Tables:
    """Tables of a folder: pinned where it has a manifest, else all of them read now.

    Raises
    ------
    SourceError
        As :func:`read_tables`.
    """
    return Tables(root).pinned() if has_manifest(root) else read_tables(root)


def read_tables(source: Source, names: Sequence[str] | None = None) -> Tables:
    """Tables from a folder of Parquet or from a mapping, all read now.

    Parameters
    ----------
    source : path or mapping
        A folder as the pipeline writes it, or one with the Parquet files of each table in
        ``<table>/`` or ``<table>.parquet``; or table name -> Arrow table, mapping of columns
        (sequences or arrays; times as UTC milliseconds or datetimes) or list of row mappings.
    names : sequence of str, optional
        Tables wanted; all by default.

    Raises
    ------
    SourceError
        If there is no such folder, it holds none of the tables, a file is unreadable or a column
        is missing.
    """
    wanted = list(TABLES) if names is None else names
    if isinstance(source, Mapping):
        return Tables(Path(), {n: from_memory(n, source[n]) for n in wanted if n in source})
    root = place_of(source)
    if not root.is_dir():
        line = holdfast_line("history", "-b", SERVERS, "-o", str(root))
        raise SourceError(f"{root}: no such folder; expected one with tables (`{line}`)")
    found = once_more(lambda: _read_folder(root, wanted))
    if not any(name in found for name in ("generations", "lag", "rebalances", "assignments")):
        line = holdfast_line("history", "-b", SERVERS, "-o", FOLDER)
        raise SourceError(
            f"{root}: no tables here, and not a dump; expected folders such as generations/ and "
            f"assignments/ (write them with `{line}`)"
        )
    return Tables(root, found)


def open_tables(path: Place | str) -> Tables:
    """Tables that an earlier run wrote; a table is read when it is used.

    Raises
    ------
    SourceError
        There are none.
    """
    tables = Tables(place_of(path).absolute())
    if not tables.batches():
        raise SourceError(f"{path} holds no committed batch")
    return tables


def once_more(read: Callable[[], T]) -> T:
    """Read; if a file is gone, which a commit of another process has swept, read once more.

    Raises
    ------
    SourceError
        A file is gone again.
    """
    try:
        return read()
    except FileNotFoundError:
        try:
            return read()
        except FileNotFoundError as error:
            raise SourceError(
                f"{error.filename or error}: the manifest names a file that is not there"
            ) from error


def _read_folder(root: Place, wanted: Sequence[str]) -> dict[str, pa.Table]:
    """Those of the wanted tables that a folder holds."""
    if has_manifest(root):
        listed = _committed_files(root)
    else:
        listed = {name: _loose_files(root, name) for name in TABLES}
        for files in listed.values():
            refuse_links(root, files)
    return {name: read_files(listed[name], TABLES[name]) for name in wanted if listed.get(name)}


def _committed_files(root: Place) -> dict[str, list[Place]]:
    """Files of each table that the manifest names now."""
    manifest, versions = read_manifest(root), Versions(root)
    found = {name: list(versions.state(name, manifest).files) for name in manifest.tables}
    return {name: checked_files(root, files) for name, files in found.items()}


def _loose_files(root: Place, name: str) -> list[Place]:
    """Files of a table in a folder that has no manifest."""
    if (root / name / LOG).is_dir():
        raise SourceError(
            f"{root / name} is a Delta table, and no manifest in {root} says which of its versions "
            "counts: holdfast did not write it, or has not committed a batch yet"
        )
    single = root / f"{name}.parquet"
    if single.is_file():
        return [single]
    inside, below = len(str(root / name)), parquet_below(root / name)
    return [file for file in below if not _is_hidden(str(file)[inside:].split("/"))]


def _is_hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith((".", "_")) for part in parts)


def _known(name: str) -> Table:
    if name not in TABLES:
        raise SourceError(f"no table {name!r}; there are {', '.join(TABLES)}")
    return TABLES[name]

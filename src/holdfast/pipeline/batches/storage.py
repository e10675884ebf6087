"""Tables on disk: Parquet files in a folder per batch, and a manifest that says which ones count.

**Rules.** A file counts when the manifest names it, and the manifest changes by one rename: a
reader sees a batch whole or not at all, whatever was killed when. Names from a cluster never
become part of a path: a file is ``<table>/batch-<id>/<random>.parquet``.

**Strategy.** The tasks of a job write their files with Arrow and hand back the names
(:class:`BatchWriter`), which costs a quarter of going back through the JVM. A file of a failed or
repeated task is never named, and is swept after the next commit.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.errors import SourceError
from holdfast.model.tables import TABLES, Table
from holdfast.pipeline.batches.schemas import arrow_schema, ddl_of

MANIFEST = "_manifest.json"
SCHEMA_VERSION = 1

FILES_SCHEMA: pa.Schema = pa.schema({"table": pa.string(), "file": pa.string(), "rows": pa.int64()})
"""What a task hands back: one row for each file it has closed."""
FILES_DDL = ddl_of(FILES_SCHEMA)


@dataclass(slots=True)
class BatchWriter:
    """Writes the tables of one task, each to one file of its own.

    Parameters
    ----------
    root : str
        Folder of the tables; every worker must reach it under this path.
    batch : int
        Batch that the files belong to.
    """

    root: str
    batch: int
    buffer_rows: int = 250_000
    _parts: dict[str, list[pa.Table]] = field(default_factory=dict)
    _open: dict[str, tuple[str, pq.ParquetWriter]] = field(default_factory=dict)
    _rows: dict[str, int] = field(default_factory=dict)

    def write(self, table: str, rows: pa.Table) -> None:
        """Take rows of a table; they reach the file in large row groups."""
        if rows.num_rows == 0:
            return
        parts = self._parts.setdefault(table, [])
        parts.append(rows)
        if sum(part.num_rows for part in parts) >= self.buffer_rows:
            self._flush(table)

    def _flush(self, table: str) -> None:
        rows = pa.concat_tables(self._parts.pop(table))
        if table not in self._open:
            name = f"{table}/{batch_folder(self.batch)}/{uuid.uuid4().hex}.parquet"
            path = Path(self.root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # Dictionaries pay for strings, which repeat, and cost double for numbers.
            strings = [f.name for f in rows.schema if pa.types.is_string(f.type)]
            writer = pq.ParquetWriter(path, rows.schema, compression="zstd", use_dictionary=strings)
            self._open[table] = (name, writer)
        self._open[table][1].write_table(rows)
        self._rows[table] = self._rows.get(table, 0) + rows.num_rows

    def close(self) -> pa.Table:
        """Close every file and return their rows of :data:`FILES_SCHEMA`."""
        for table in list(self._parts):
            self._flush(table)
        names = []
        for table, (name, writer) in self._open.items():
            writer.close()
            names.append({"table": table, "file": name, "rows": self._rows[table]})
        self._open.clear()
        return pa.Table.from_pylist(names, schema=FILES_SCHEMA)


def batch_folder(batch: int) -> str:
    """Folder name of a batch."""
    return f"batch-{batch:09d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One committed batch: its id, its files per table, and what its job wants to remember."""

    id: int
    files: dict[str, list[tuple[str, int]]]
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Tables:
    """The tables of one folder, read without Spark.

    Parameters
    ----------
    root : Path
        Folder of the tables.
    """

    root: Path

    def batches(self) -> list[Batch]:
        """Committed batches, oldest first.

        Raises
        ------
        SourceError
            The folder has no manifest, or one of another schema version.
        """
        path = self.root / MANIFEST
        if not path.is_file():
            raise SourceError(f"{self.root} holds no tables: {MANIFEST} is missing")
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            version, listed = manifest["schema_version"], manifest["batches"]
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"{path} is not a manifest: {error}") from error
        if version != SCHEMA_VERSION:
            raise SourceError(f"{path} has schema_version {version}, expected {SCHEMA_VERSION}")
        return [_batch_from_json(entry) for entry in listed]

    def commit(
        self, batch: Batch, *, replace: bool = False, earlier: Sequence[Batch] | None = None
    ) -> None:
        """Make a batch visible by one rename.

        Parameters
        ----------
        batch : Batch
            Stands in place of one with its id.
        replace : bool
            It replaces all others.
        earlier : sequence of Batch, optional
            What from now on stands for the batches before it.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        known = [] if replace else list(self.committed() if earlier is None else earlier)
        kept = [old for old in known if old.id != batch.id]
        listed = sorted([*kept, batch], key=lambda b: b.id)
        document = {"schema_version": SCHEMA_VERSION, "batches": [_to_json(b) for b in listed]}
        path = self.root / MANIFEST
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        with draft.open("w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        self.sweep()

    def committed(self) -> list[Batch]:
        """The same; none where there is no manifest yet."""
        return self.batches() if (self.root / MANIFEST).is_file() else []

    def sweep(self) -> None:
        """Delete files that no committed batch names (tasks that died, batches replaced)."""
        batches = self.batches()
        named = {name for batch in batches for fs in batch.files.values() for name, _ in fs}
        for table in TABLES:
            for folder in sorted((self.root / table).glob("batch-*")):
                for file in sorted(folder.iterdir()):
                    if str(file.relative_to(self.root)) not in named:
                        file.unlink()
                if not any(folder.iterdir()):
                    folder.rmdir()

    def next_batch(self) -> int:
        """Smallest id above all committed ones."""
        return max((batch.id for batch in self.committed()), default=-1) + 1

    def files(self, name: str) -> list[Path]:
        """Committed files of a table."""
        _known(name)
        return [self.root / f for batch in self.batches() for f, _ in batch.files.get(name, [])]

    def rows(self, name: str) -> int:
        """Stored rows of a table."""
        _known(name)
        return sum(n for batch in self.batches() for _, n in batch.files.get(name, []))

    def table(
        self, name: str, *, flat: bool = True, groups: Sequence[str] | None = None
    ) -> pa.Table:
        """Read a table, sorted as its definition says.

        Parameters
        ----------
        name : str
            A table of :mod:`holdfast.model.tables`.
        flat : bool
            Open the nested list into one row per element.
        groups : sequence of str, optional
            Only these groups.
        """
        definition = _known(name)
        schema = arrow_schema(name)
        parts = [read_parquet(file, groups) for file in self.files(name)]
        rows = pa.concat_tables([schema.empty_table(), *parts])
        return sort_rows(flatten(rows, definition) if flat else rows, definition)


def read_parquet(path: Path, groups: Sequence[str] | None = None) -> pa.Table:
    """Read one of our files; ``groups`` keeps rows of these groups only."""
    rows = pq.ParquetFile(path).read()
    if groups is None or "group" not in rows.column_names:
        return rows
    return rows.filter(pc.is_in(rows["group"], pa.array(sorted(set(groups)), pa.string())))


def flatten(rows: pa.Table, definition: Table) -> pa.Table:
    """The flat view of a nested table."""
    if not definition.explode:
        return rows
    at = definition.names.index(definition.explode)
    nested: Any = rows.column(at).combine_chunks()
    parents = pc.list_parent_indices(nested)
    opened = rows.take(parents)
    return opened.set_column(at, definition.flat_name, nested.flatten())


def sort_rows(rows: pa.Table, definition: Table) -> pa.Table:
    """Rows in the order of the definition (list columns cannot be sorted by, and are left out)."""
    keys = [
        definition.flat_name if k == definition.explode else k
        for k in definition.order
        if k != definition.explode or definition.flat_name in rows.column_names
    ]
    return rows.sort_by([(key, "ascending") for key in keys])


def files_of(rows: pa.Table) -> dict[str, list[tuple[str, int]]]:
    """Collected rows of :data:`FILES_SCHEMA` as the files of a :class:`Batch`."""
    files: dict[str, list[tuple[str, int]]] = {}
    listed: Iterable[dict[str, Any]] = rows.sort_by(
        [("table", "ascending"), ("file", "ascending")]
    ).to_pylist()
    for row in listed:
        files.setdefault(row["table"], []).append((row["file"], row["rows"]))
    return files


def remove_tree(path: Path) -> None:
    """Delete a folder of ours if it is there."""
    shutil.rmtree(path, ignore_errors=True)


def _known(name: str) -> Table:
    if name not in TABLES:
        raise SourceError(f"no table {name!r}; there are {', '.join(TABLES)}")
    return TABLES[name]


def _to_json(batch: Batch) -> dict[str, Any]:
    return {"id": batch.id, "files": batch.files, "notes": batch.notes}


def _batch_from_json(entry: dict[str, Any]) -> Batch:
    files = {t: [(str(f), int(n)) for f, n in fs] for t, fs in entry["files"].items()}
    return Batch(id=int(entry["id"]), files=files, notes=dict(entry.get("notes", {})))

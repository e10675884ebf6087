"""What ``plan`` and ``replay`` read: tables that an earlier ``history -o`` kept, or new ones.

**Rules.** Tables are read as they are, without Spark. A dump or a live cluster goes through the
pipeline first, into a temporary folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.cli.commands.history import make_history
from holdfast.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTables:
    """Tables of a history, the partitions of its topics where they are known, and its groups.

    Parameters
    ----------
    tables : holdfast.tables.reading.Tables
        Of all groups that the source holds.
    topics : dict of str to int
        Topic to number of partitions; empty where only tables were kept.
    groups : list of str or None
        Groups chosen by ``--group``, patterns resolved; None: all.
    """

    tables: Any
    topics: dict[str, int]
    groups: list[str] | None


@contextmanager
def open_fleet(
    *,
    bootstrap: str | None,
    source: Path | None,
    groups: Sequence[str],
    command_config: Path | None,
    note: Any,
    auto_offset_reset: str = "earliest",
    quiet: bool = False,
) -> Iterator[FleetTables]:
    """Tables of ``--input`` (tables or a dump) or of ``--bootstrap-server``.

    Raises
    ------
    ConfigError
        Neither or both are named.
    SourceError
        What is named cannot be read.
    """
    from holdfast.tables.manifest import MANIFEST
    from holdfast.tables.reading import Tables

    if source is not None and bootstrap is None and (source / MANIFEST).is_file():
        tables = Tables(source.absolute())
        yield FleetTables(tables=tables, topics={}, groups=_chosen(tables, groups))
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-") as scratch:
        made = make_history(
            bootstrap=bootstrap,
            source=source,
            out_dir=Path(scratch),
            groups=list(groups),
            all_groups=False,
            command_config=command_config,
            auto_offset_reset=auto_offset_reset,
            note=note,
            quiet=quiet,
        )
        topics = {row["topic"]: row["partitions"] for row in made.dump.topics().to_pylist()}
        yield FleetTables(tables=made.tables, topics=topics, groups=None)


def _chosen(tables: Any, groups: Sequence[str]) -> list[str] | None:
    """Groups of the tables that were asked for by name or pattern; None for all."""
    if not groups:
        return None
    import difflib
    from fnmatch import fnmatchcase

    there = sorted(set(tables.table("generations")["group"].to_pylist()))
    found = [name for name in there if any(name == g or fnmatchcase(name, g) for g in groups)]
    if not found:
        near = difflib.get_close_matches(groups[0], there, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"no group {groups[0]!r} in these tables{hint}")
    return found

"""What reading commands read: a folder of tables, a dump, or a live cluster.

**Rules.** A live cluster is only read, and no group is joined. Dump and cluster go through the
pipeline first, into a temporary folder; Spark is imported then and not before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.output import print_note
from holdfast.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from holdfast.report.reading import Tables


@contextmanager
def open_source(
    source: Path | None,
    bootstrap: str | None = None,
    command_config: Path | None = None,
    groups: Sequence[str] | None = None,
    *,
    quiet: bool = False,
) -> Iterator[Tables]:
    """Tables of ``--input`` or ``--bootstrap-server``.

    Parameters
    ----------
    source : Path, optional
        Folder written by ``holdfast history -o`` or ``holdfast dump -o``.
    bootstrap : str, optional
        ``HOST:PORT``, read through the pipeline.
    command_config : Path, optional
        Client properties.
    groups : sequence of str, optional
        Only these groups are taken from a dump or a cluster.
    quiet : bool
        No notes.

    Raises
    ------
    ConfigError
        If neither or both are given.
    SourceError
        If what is given cannot be read.
    """
    from holdfast.report.reading import read_tables

    if (source is None) == (bootstrap is None):
        raise ConfigError("give either --input PATH or --bootstrap-server HOST:PORT")
    if source is not None and not source.exists():
        raise SourceError(
            f"{source}: no such folder; expected tables (holdfast history -o) or a dump"
        )
    if source is not None and not (source / "dump.json").is_file():
        yield read_tables(source)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        if not quiet:
            print_note("reading the offsets topic (the pipeline takes some seconds to start)")
        opened: Any = source if source is not None else _cluster(str(bootstrap), command_config)
        _run_pipeline(opened, Path(folder), groups, kafka=source is None)
        yield read_tables(folder)


def _cluster(bootstrap: str, command_config: Path | None) -> Any:
    from holdfast.adapters.cluster import LiveCluster, read_properties

    config = read_properties(command_config) if command_config is not None else {}
    return LiveCluster(bootstrap=bootstrap, config=config)


def _run_pipeline(source: Any, folder: Path, groups: Sequence[str] | None, *, kafka: bool) -> None:
    from holdfast.pipeline.history import Selection, run
    from holdfast.pipeline.session import get_session

    selection = Selection(groups=tuple(groups or ()), all_groups=not groups)
    run(get_session(kafka=kafka), source, folder, selection=selection)

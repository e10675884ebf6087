"""What reading commands read: a folder of tables, a dump, or a live cluster.

**Rules.** A live cluster is only read, and no group is joined. Dump and cluster go through the
pipeline first, into a temporary folder; Spark is imported then and not before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.commands.history import make_history
from holdfast.cli.output import notes
from holdfast.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from holdfast.tables.reading import Tables


@contextmanager
def open_source(
    source: Path | None,
    bootstrap: str | None = None,
    command_config: Path | None = None,
    groups: Sequence[str] | None = None,
    *,
    broker_logs: Sequence[Path] | None = None,
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
    broker_logs : sequence of Path, optional
        Logs of brokers that state causes, for a dump or a cluster.
    quiet : bool
        No notes.

    Raises
    ------
    ConfigError
        If neither or both are given, or logs for tables, whose causes are settled.
    SourceError
        If what is given cannot be read.
    """
    from holdfast.tables.reading import read_tables

    if (source is None) == (bootstrap is None):
        raise ConfigError("give either --input PATH or --bootstrap-server HOST:PORT")
    if source is not None and not source.exists():
        raise SourceError(
            f"{source}: no such folder; expected tables (holdfast history -o) or a dump"
        )
    if source is not None and not (source / "dump.json").is_file():
        if broker_logs:
            raise ConfigError(
                f"{source} holds tables: give --broker-log to the command that makes them "
                "(holdfast history, holdfast watch)"
            )
        yield read_tables(source)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        make_history(
            bootstrap=bootstrap,
            source=source,
            out_dir=Path(folder),
            groups=list(groups or ()),
            all_groups=not groups,
            command_config=command_config,
            broker_logs=broker_logs or (),
            note=notes(quiet),
            quiet=quiet,
        )
        yield read_tables(folder)

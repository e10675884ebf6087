"""What ``--input`` may be: a folder of tables, or a dump, which goes through the pipeline first."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import SourceError

if TYPE_CHECKING:
    from holdfast.report.reading import Tables


@contextmanager
def open_tables(source: Path) -> Iterator[Tables]:
    """Tables of a folder; a dump is made into tables in a temporary folder.

    Parameters
    ----------
    source : Path
        Folder written by ``holdfast history -o`` or ``holdfast dump -o``.

    Raises
    ------
    SourceError
        If it is neither.
    """
    from holdfast.report.reading import read_tables  # noqa: PLC0415 - needs pyarrow

    if not source.exists():
        raise SourceError(
            f"{source}: no such folder; expected tables (holdfast history -o) or a dump"
        )
    if not (source / "dump.json").is_file():
        yield read_tables(source)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        history_of_dump(source, Path(folder))
        yield read_tables(folder)


def history_of_dump(dump: Path, folder: Path) -> None:
    """Run the pipeline over a dump."""
    raise SourceError(f"{dump} is a dump: make tables of it with `holdfast history --input` first")

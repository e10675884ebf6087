"""A folder that several workers may make at once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def draft_of(folder: Path) -> Iterator[Path]:
    """A folder to fill, which becomes this one after the block, unless another worker was first."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
        yield Path(draft)
        with suppress(OSError):
            Path(draft).rename(folder)

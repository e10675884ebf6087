"""Texts that are written in an order which is known once the last of them is there."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any


class SortedTexts(AbstractContextManager["SortedTexts"]):
    """Texts with sort keys.

    The texts are in a temporary file, which no other user can read and which is deleted at the
    end; only their keys are in memory.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="holdfast-")  # noqa: SIM115 - closed on exit
        self._ends = array("q", [0])
        self._keys: list[Any] = []

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, key: Any, text: str) -> None:
        """Add a text; keys are comparable with each other."""
        self._ends.append(self._ends[-1] + self._file.write(text.encode()))
        self._keys.append(key)

    def __iter__(self) -> Iterator[str]:
        """Yield the texts by their keys; of equal keys the first one first."""
        for i in sorted(range(len(self._keys)), key=self._keys.__getitem__):
            self._file.seek(self._ends[i])
            yield self._file.read(self._ends[i + 1] - self._ends[i]).decode()

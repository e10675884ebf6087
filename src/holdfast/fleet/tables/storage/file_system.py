"""What is asked of the place where files stand, whatever kind of place it is.

**Rules.** A kind of place is one class: :mod:`holdfast.fleet.tables.storage.disk` has one, and
:mod:`holdfast.fleet.tables.storage.remote` has two. Nothing else asks which kind a place is.
``create`` succeeds for one caller only, whatever the others do at the same time. What ``create``
and ``replace`` have written survives a power cut.
"""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Final, TypeVar

from holdfast.errors import SourceError

_DRAFT: Final = re.compile(r"\.[0-9a-f]{32}\.tmp")

MOST_BYTES: Final = 16 << 20
"""Of a file that is read whole: a manifest, an entry or a checkpoint of a log, ``dump.json``."""

A = TypeVar("A")
B = TypeVar("B")


class FileSystem(ABC):
    """Files below one place, by their names there; "" is the place itself."""

    n_requests: ClassVar[int] = 1
    """Requests at the same time."""
    clock_ns: ClassVar[int] = 0
    """By so much the times of two files may be out of order."""
    spark_reads: ClassVar[bool] = False
    """Whether Spark itself can read a file here: of a store it has no credentials."""
    replaces_at_once: ClassVar[bool] = True
    """Whether who reads while ``replace`` runs finds one content whole, never parts of both."""

    @abstractmethod
    def name_of(self, name: str) -> str:
        """The whole name, for people."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """What a file holds; None where it is not there.

        Raises
        ------
        SourceError
            It is no plain file, or has more than MOST_BYTES.
        """

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Names in a folder, without it, sorted; none where it is not there."""

    @abstractmethod
    def files_below(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Files in a folder and in those below it, and when each was written, in nanoseconds."""

    @abstractmethod
    def size(self, name: str = "") -> int:
        """Bytes of a file; FileNotFoundError where it is not there."""

    @abstractmethod
    def written_ns(self, name: str = "") -> int:
        """When a file was written, by the clock of the store; 0 where it is not there."""

    def since_ns(self, name: str) -> int:
        """A moment in which a file was there at the earliest; 0 where it is not there.

        What the store says is written later was not there before.
        """
        return max(self.written_ns(name) - self.clock_ns, 0)

    def stamp(self, name: str) -> object:
        """What differs after each ``replace``; None where the file is not there."""
        return self.read(name)

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Create a file; False, and nothing done, where it is there."""

    @abstractmethod
    def check_creates(self, folder: str) -> None:
        """Refuse a store whose ``create`` writes over a file that is there: a SourceError."""

    @abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Give a file another content at once; it need not be there."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Give the file this content at once, by what every reader has installed."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file if it is there."""

    def make_folder(self) -> None:  # noqa: B027 (an object store has no folders)
        """Make the place a folder for its owner alone, where the storage has folders."""

    @abstractmethod
    def remove_folder(self) -> None:
        """Delete the place and what is in it, if it is there; a link stays."""

    @abstractmethod
    def clear(
        self, folder: str, is_part: Callable[[str], bool], is_due: Callable[[str, int], bool]
    ) -> None:
        """Delete files in folders of a folder, and the folders that are empty then.

        No link is followed, not even one that takes the place of a folder in the meantime.

        Parameters
        ----------
        is_part : callable
            Of the name of a folder in ``folder``: whether it is looked into.
        is_due : callable
            Of the name of a file and the time when it was written: whether it goes.
        """

    def refuse_links(self, names: Sequence[str]) -> None:  # noqa: B027 (as the next)
        """Refuse files that are links, or stand behind one on the way from here: a SourceError."""

    def refuse_links_in(self, folder: str) -> None:  # noqa: B027 (no store that we know has links)
        """Refuse a folder that is a link, or holds one: a SourceError; it need not be there."""

    def sync(self, names: Sequence[str]) -> None:  # noqa: B027 (a store keeps what it answered for)
        """Bring files to the disk, then the folders on the way to them, this place last."""

    @abstractmethod
    def readable(self) -> Any:
        """What ``pyarrow.parquet.ParquetFile`` reads the file by."""

    @abstractmethod
    def writable(self, *, once: bool = False) -> AbstractContextManager[Any]:
        """What ``pyarrow.parquet`` writes the new file by, in a block; it is whole after it.

        Parameters
        ----------
        once : bool
            No other file ever has its name.
        """

    def translated_errors(self, done: str) -> AbstractContextManager[None]:
        """Say in one line what a store refused; a disk's errors stay what they are."""
        return nullcontext()

    def each(self, work: Callable[[A], B], items: Iterable[A]) -> list[B]:
        """Do the same with each of some things, as many at once as the store takes."""
        if self.n_requests == 1:
            return list(map(work, items))
        with ThreadPoolExecutor(self.n_requests) as pool:
            return list(pool.map(work, items))


def draft_name() -> str:
    """A name for a file that is not finished; no two are the same."""
    return f".{uuid.uuid4().hex}.tmp"


def is_draft(name: str) -> bool:
    """Whether a name is that of a file that was not finished."""
    return _DRAFT.fullmatch(name) is not None


def refuse_large(path: str, size: int) -> None:
    """Refuse to read a file whole that is larger than any of ours: a SourceError."""
    if size > MOST_BYTES:
        raise SourceError(f"{path} has {size} bytes, expected at most {MOST_BYTES}")

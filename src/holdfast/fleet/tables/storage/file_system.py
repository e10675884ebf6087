"""The interface of file systems: operations on files below one storage root.

**Rules.** A kind of storage is one class: :mod:`holdfast.fleet.tables.storage.disk` has one, and
:mod:`holdfast.fleet.tables.storage.remote` has two. No other code distinguishes kinds of storage.
``create`` succeeds for one caller only, whatever the others do at the same time. Data written by
``create`` and ``replace`` survive a power cut.
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
    """A storage root; names are relative to it, and "" is the root itself."""

    n_requests: ClassVar[int] = 1
    """Requests at the same time."""
    clock_ns: ClassVar[int] = 0
    """By so much the times of two files may be out of order."""
    spark_reads: ClassVar[bool] = False
    """Whether Spark itself can read a file here: for remote storage it has no credentials."""
    replaces_at_once: ClassVar[bool] = True
    """Whether a reader during ``replace`` sees one content whole, never parts of both."""

    @abstractmethod
    def name_of(self, name: str) -> str:
        """Return the full name, for people."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return the content of a plain file of at most MOST_BYTES; None if it does not exist."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return names in a folder, relative to it, sorted; none if it does not exist."""

    @abstractmethod
    def files_below(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Yield files in a folder and below it, and when each was written, in nanoseconds."""

    @abstractmethod
    def size(self, name: str = "") -> int:
        """Return the bytes of a file; raise FileNotFoundError if it does not exist."""

    @abstractmethod
    def written_ns(self, name: str = "") -> int:
        """Return when a file was written, by the clock of the storage; 0 if it does not exist."""

    def since_ns(self, name: str) -> int:
        """Return the earliest moment at which a file can have existed; 0 if it does not exist.

        A file with a later time of writing did not exist before.
        """
        return max(self.written_ns(name) - self.clock_ns, 0)

    def stamp(self, name: str) -> object:
        """Return a value that differs after each ``replace``; None if the file does not exist."""
        return self.read(name)

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Create a file; return False, and change nothing, if it exists."""

    @abstractmethod
    def check_creates(self, folder: str) -> None:
        """Raise a SourceError if ``create`` overwrites an existing file here."""

    @abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Replace the content of a file atomically; it need not exist."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Give the file this content at once, by what every reader has installed."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file if it exists."""

    def make_folder(self) -> None:  # noqa: B027 (an object store has no folders)
        """Create the root as a folder for its owner alone, if the storage has folders."""

    @abstractmethod
    def remove_folder(self) -> None:
        """Delete the root and its content, if it exists; a link stays."""

    @abstractmethod
    def clear(
        self, folder: str, is_part: Callable[[str], bool], is_due: Callable[[str, int], bool]
    ) -> None:
        """Delete files in folders of a folder, and the folders that become empty.

        ``is_part`` takes the name of a folder to be searched or not, ``is_due`` a file's name and
        time of writing. No link is followed, not even one that replaces a folder meanwhile.
        """

    def refuse_links(self, names: Sequence[str]) -> None:  # noqa: B027 (as the next)
        """Raise a SourceError if a file is a link or is reached through one."""

    def refuse_links_in(self, folder: str) -> None:  # noqa: B027 (no store that we know has links)
        """Raise a SourceError if a folder is a link, or contains one; it need not exist."""

    def sync(self, names: Sequence[str]) -> None:  # noqa: B027 (a store keeps what it answered for)
        """Flush files to the disk, then the folders on the way to them, the root last."""

    @abstractmethod
    def readable(self) -> Any:
        """Return the object from which ``pyarrow.parquet.ParquetFile`` reads the file."""

    @abstractmethod
    def writable(self, *, once: bool = False) -> AbstractContextManager[Any]:
        """Yield a sink for ``pyarrow.parquet``; the new file is complete after the block.

        ``once`` says that no other file ever gets its name.
        """

    def translated_errors(self, done: str) -> AbstractContextManager[None]:
        """Turn an error of remote storage into one line; a disk's errors stay unchanged."""
        return nullcontext()

    def each(self, work: Callable[[A], B], items: Iterable[A]) -> list[B]:
        """Apply a function to each item, with as many parallel calls as the storage allows."""
        if self.n_requests == 1:
            return list(map(work, items))
        with ThreadPoolExecutor(self.n_requests) as pool:
            return list(pool.map(work, items))


def draft_name() -> str:
    """Return a unique name for an unfinished file."""
    return f".{uuid.uuid4().hex}.tmp"


def is_draft(name: str) -> bool:
    """Return whether a name is that of an unfinished file."""
    return _DRAFT.fullmatch(name) is not None


def refuse_large(path: str, size: int) -> None:
    """Refuse to read a file whole that is larger than any of ours: a SourceError."""
    if size > MOST_BYTES:
        raise SourceError(f"{path} has {size} bytes, expected at most {MOST_BYTES}")

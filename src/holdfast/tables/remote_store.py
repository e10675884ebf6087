"""What a commit asks of the place where tables are kept, answered by a store: S3, Google, HDFS.

**Rules.** As in :class:`~holdfast.tables.store.Store`. What decides is ``create``, which a store
does for one caller only (:meth:`~holdfast.tables.places.StorePath.create`); a store that says so
and does not is found out when a writer begins, and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from holdfast.errors import SourceError
from holdfast.tables.places import Place, StorePath
from holdfast.tables.store import FolderStore, Store, draft_name

REQUESTS: Final = 16
"""Requests to a store at the same time."""
CLOCK_NS: Final = 2 * 10**9
"""By so much the times of two files of a store may be out of order."""

A = TypeVar("A")
B = TypeVar("B")


def store_of(root: Place) -> Store:
    """What commits to tables use of the place where they are."""
    return RemoteStore(root) if isinstance(root, StorePath) else FolderStore(root)


def each(work: Callable[[A], B], items: Iterable[A], *, root: Place | None = None) -> Iterator[B]:
    """Do the same with each of some things: in order on a disk, many at once on a store.

    Parameters
    ----------
    root : path or URL, optional
        Where they are; by default the things are places themselves.
    """
    items = list(items)
    where = root if root is not None else next(iter(items), None)
    if not isinstance(where, StorePath):
        yield from map(work, items)
        return
    with ThreadPoolExecutor(REQUESTS) as pool:
        yield from list(pool.map(work, items))


class RemoteStore:
    """A store as the place of tables.

    Parameters
    ----------
    root : StorePath
        Folder of the tables.
    """

    def __init__(self, root: StorePath):
        self.root = root

    def read(self, name: str) -> bytes | None:
        """As in :class:`Store`."""
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """As in :class:`Store`."""
        return [place.name for place in (self.root / folder).iterdir()]

    def create(self, name: str, data: bytes) -> bool:
        """As in :class:`Store`."""
        return (self.root / name).create(data)

    def replace(self, name: str, data: bytes) -> None:
        """As in :class:`Store`."""
        (self.root / name).replace_bytes(data)

    def delete(self, name: str) -> None:
        """As in :class:`Store`."""
        (self.root / name).unlink(missing_ok=True)

    def stamp(self, name: str) -> object:
        """As in :class:`Store`."""
        place = self.root / name
        try:
            return place.written_ns(), place.read_bytes()
        except FileNotFoundError:
            return None

    def name_of(self, name: str) -> str:
        """As in :class:`Store`."""
        return str(self.root / name)

    def written_ms(self, name: str) -> int:
        """As in :class:`Store`."""
        try:
            return (self.root / name).written_ns() // 1_000_000
        except FileNotFoundError:
            return 0

    def since_ns(self, name: str) -> int:
        """As in :class:`Store`; a store may count whole seconds."""
        written_ms = self.written_ms(name)
        return written_ms * 1_000_000 - CLOCK_NS if written_ms else 0

    @property
    def replaces_at_once(self) -> bool:
        """As in :class:`Store`: a file of several requests comes in pieces of both."""
        return False

    def check_creates(self, folder: str) -> None:
        """As in :class:`Store`."""
        probe = self.root / folder / draft_name()
        try:
            if probe.create(b"1") and probe.create(b"2"):
                raise SourceError(
                    f"{self.root}: this store writes over a file that is there, though it was told "
                    "not to (If-None-Match): two writers could not be kept apart, so tables are "
                    "not written there; use a newer version of the store, or another one"
                )
        finally:
            probe.unlink(missing_ok=True)

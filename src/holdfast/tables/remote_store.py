"""What a commit asks of the place where tables are kept, answered by a store: S3, Google, HDFS.

**Rules.** As in :class:`~holdfast.tables.store.Store`. What decides is ``create``, which a store
does for one caller only (:meth:`~holdfast.tables.places.StorePath.create`); a store that says so
and does not is found out when a writer begins, and refused.

**Strategy.** Nothing can be locked on a store. A writer holds an abstract socket of its machine
beside its name: the kernel frees it when the process dies, so the next writer of that machine goes
on at once. One elsewhere waits until the beats have stopped for a while. A beat is the same text,
written again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

from holdfast.errors import SourceError
from holdfast.tables.places import Place, StorePath
from holdfast.tables.store import BOOT_ID, FolderStore, Store, Taken

REQUESTS: Final = 16
"""Requests to a store at the same time."""
CLOCK_NS: Final = 2 * 10**9
"""By so much the times of two files of a store may be out of order."""
_NETWORK: Final = Path("/proc/self/ns/net")

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

    def take(self, name: str, data: bytes) -> Taken | None:
        """As in :class:`Store`.

        Raises
        ------
        SourceError
            The store writes over a file that is there, though it was told not to.
        """
        held = self._socket(name)
        if held is None and self.place:
            return None  # somebody looks at this very moment
        try:
            if not self.create(name, data):
                _closed(held)
                return None
            self._check_kept(name, data)
        except BaseException:
            _closed(held)
            raise
        return _RemoteHold(self, name, data, held)

    def _check_kept(self, name: str, data: bytes) -> None:
        """Refuse a store that writes over a file of ours which is there."""
        if (self.root / name).create(data + b" "):
            raise SourceError(
                f"{self.root}: this store writes over a file that is there, though it was told not "
                "to (If-None-Match): two writers could not be kept apart, so tables are not "
                "written there; use a newer version of the store, or another one"
            )

    @cached_property
    def place(self) -> str:
        """As in :class:`Store`: sockets are seen by the processes of one kernel and one network."""
        try:
            return f"{BOOT_ID.read_text(encoding='ascii').strip()}:{os.readlink(_NETWORK)}"  # noqa: PTH115
        except OSError:
            return ""

    def is_held(self, name: str) -> bool:
        """As in :class:`Store`."""
        held = self._socket(name)
        _closed(held)
        return held is None

    def _socket(self, name: str) -> socket.socket | None:
        """A socket that stands for a name; None where another process has it."""
        own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        digest = sha256(self.name_of(name).encode()).hexdigest()
        try:
            own.bind(f"\0holdfast-{digest}")
        except OSError:
            own.close()
            return None
        return own


class _RemoteHold:
    """A name of a store, and the socket that stands for it."""

    def __init__(self, store: RemoteStore, name: str, data: bytes, held: socket.socket | None):
        self._store, self._name, self._data, self._held = store, name, data, held
        self._turn = False

    def beat(self) -> None:
        """As in :class:`Taken`: the same text, which gets another time."""
        self._turn = not self._turn
        self._store.replace(self._name, self._data + b" " * self._turn)

    def let_go(self) -> None:
        """As in :class:`Taken`."""
        _closed(self._held)


def _closed(held: socket.socket | None) -> None:
    if held is not None:
        held.close()

"""What a commit asks of the place where tables are kept, and the answer of a folder.

**Rules.** :class:`Store` is all that :mod:`holdfast.tables.manifest` and
:mod:`holdfast.tables.delta_log` use, so another store (of objects, with conditional writes) has to
answer these calls and nothing else. ``create`` succeeds
for one caller only, whatever the others do at the same time. What ``create`` and ``replace`` have
written survives a power cut.

**Strategy.** A folder creates a name by a hard link to a finished draft: the link fails where the
name is there, on local disks and on NFS alike. Where there are no hard links, a check and a rename
stand in for it, which does not keep two writers apart that create a name at the same moment.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from holdfast.tables.private import make_private_folder, open_private

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_DRAFT: Final = re.compile(r"\.[0-9a-f]{32}\.tmp")


class Store(Protocol):
    """Small named texts in one place: the manifest, and logs of tables."""

    def read(self, name: str) -> bytes | None:
        """What a name holds; None where it is not there."""

    def names(self, folder: str) -> list[str]:
        """Names in a folder, without it, sorted."""

    def create(self, name: str, data: bytes) -> bool:
        """Create a name; False, and nothing done, where it is there."""

    def replace(self, name: str, data: bytes) -> None:
        """Give a name another content at once."""

    def delete(self, name: str) -> None:
        """Delete a name if it is there."""

    def stamp(self, name: str) -> object:
        """What differs after each ``replace``; None where the name is not there."""

    def name_of(self, name: str) -> str:
        """The whole name, for people."""

    def written_ms(self, name: str) -> int:
        """When a name got its content, by the clock of the store; 0 where it is not there."""

    def since_ns(self, name: str) -> int:
        """A moment in which a name had its content at the earliest, by the clock of the store.

        Nanoseconds; what the store says is written later was not there before. 0 where the name is
        not there.
        """

    @property
    def replaces_at_once(self) -> bool:
        """Whether who reads while ``replace`` runs finds one content whole, never parts of both."""

    def check_creates(self, folder: str) -> None:
        """Refuse a store whose ``create`` writes over a name that is there.

        Raises
        ------
        SourceError
        """


class FolderStore:
    """A store in a folder of a local or shared file system.

    Parameters
    ----------
    root : Path
        The folder; ``create`` and ``replace`` make it where it is not there.
    """

    def __init__(self, root: Path):
        self.root = root

    def read(self, name: str) -> bytes | None:
        """As in :class:`Store`."""
        try:
            return (self.root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, folder: str) -> list[str]:
        """As in :class:`Store`."""
        try:
            return sorted(os.listdir(self.root / folder))  # noqa: PTH208 (names are wanted)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def create(self, name: str, data: bytes) -> bool:
        """As in :class:`Store`."""
        path = self.root / name
        draft = self._draft(path)
        try:
            _write(draft, data)
            return _link(draft, path)
        finally:
            draft.unlink(missing_ok=True)

    def replace(self, name: str, data: bytes) -> None:
        """As in :class:`Store`."""
        path = self.root / name
        draft = self._draft(path)
        try:
            _write(draft, data)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(path.parent)

    def delete(self, name: str) -> None:
        """As in :class:`Store`."""
        (self.root / name).unlink(missing_ok=True)

    def stamp(self, name: str) -> object:
        """As in :class:`Store`."""
        try:
            with (self.root / name).open("rb") as file:  # NFS asks its server at each opening
                status = os.fstat(file.fileno())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def name_of(self, name: str) -> str:
        """As in :class:`Store`."""
        return str(self.root / name)

    def written_ms(self, name: str) -> int:
        """As in :class:`Store`."""
        try:
            return (self.root / name).stat().st_mtime_ns // 1_000_000
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def since_ns(self, name: str) -> int:
        """As in :class:`Store`."""
        try:
            return (self.root / name).stat().st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return 0

    @property
    def replaces_at_once(self) -> bool:
        """As in :class:`Store`."""
        return True

    def check_creates(self, folder: str) -> None:
        """As in :class:`Store`: a link to a name that is there fails."""

    def _draft(self, path: Path) -> Path:
        inside = path.relative_to(self.root).parts[:-1]
        folders = [self.root.joinpath(*inside[:i]) for i in range(len(inside) + 1)]
        new = [folder for folder in folders if not folder.is_dir()]
        make_private_folder(path.parent)
        for folder in new:
            sync_folder(folder.parent)
        return path.with_name(draft_name())


def draft_name() -> str:
    """A name for a text that is not finished; no two are the same."""
    return f".{uuid.uuid4().hex}.tmp"


def is_draft(name: str) -> bool:
    """Whether a name is that of a text that was not finished."""
    return _DRAFT.fullmatch(name) is not None


def sync_file(path: Path) -> None:
    """Wait until what a file holds is on the disk."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_all(files: Iterable[Path]) -> None:
    """Wait until files are on the disk, then the folders that name them."""
    folders: dict[Path, None] = {}
    for file in files:
        sync_file(file)
        folders[file.parent] = None
    for folder in folders:
        sync_folder(folder)


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write(path: Path, data: bytes) -> None:
    with open_private(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _link(draft: Path, path: Path) -> bool:
    """Give a finished draft its name; False where the name is there."""
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        # An NFS client that sends the call again hears that its own link is there.
        return path.exists() and path.samefile(draft)
    except FileNotFoundError:
        return False  # this process stood still for so long that its draft was deleted
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            return False
        draft.rename(path)
    sync_folder(path.parent)
    return True

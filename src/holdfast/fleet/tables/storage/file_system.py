"""The interface of file systems, and the one of a local or shared disk.

**Rules.** A kind of storage is one class: :class:`LocalFileSystem`, and two of
:mod:`holdfast.fleet.tables.storage.remote`. No other code distinguishes kinds of storage.
``create`` succeeds for one caller only, whatever the others do at the same time. Data written by
``create`` and ``replace`` survive a power cut: a file is flushed to the disk before a name refers
to it, and its folder after the name is in it (``obstore``'s local ``put`` renames a file without
flushing it, as ``strace`` shows). No file is read, written or deleted through a link between the
folder and the file, and only plain files are read.

A command's output belongs to its user: a new file has mode 0600 and a new folder 0700, whatever the
umask of the process lets others read; a stricter umask stays. Existing files keep their modes.

**Strategy.** ``create`` is a hard link to a finished draft: the link fails if the name exists, on
local disks and on NFS alike. Without hard links, a check and a rename replace it, which does not
separate two writers that create a name at the same moment. ``clear`` opens folders without
following a link, and deletes below that open folder. A mode is given to the system call that
creates, so no moment and no thread sees a wider one, and the umask is never changed.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from holdfast.errors import SourceError

_DRAFT: Final = re.compile(r"\.[0-9a-f]{32}\.tmp")

MOST_BYTES: Final = 16 << 20
"""Of a file that is read whole: a manifest, an entry or a checkpoint of a log, ``dump.json``."""

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_NOT_THERE: Final = (FileNotFoundError, NotADirectoryError)
_KINDS: Final = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)

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


def open_private(path: Path, mode: str = "w") -> Any:
    """Open a file for writing, as UTF-8 where it is text; a new one is the owner's alone."""
    encoding = None if "b" in mode else "utf-8"
    return open(path, mode, encoding=encoding, opener=_opener)


def write_private(path: Path, text: str) -> None:
    """Write a text file; a new one is the owner's alone."""
    with open_private(path) as file:
        file.write(text)


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents for the owner alone; an existing one stays."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a folder")


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


@dataclass(frozen=True, slots=True)
class LocalFileSystem(FileSystem):
    """A folder, or a file in one; ``create`` and ``replace`` create a missing folder."""

    root: Path

    spark_reads = True

    def name_of(self, name: str) -> str:
        return str(self.root / name)

    def read(self, name: str) -> bytes | None:
        try:
            with os.fdopen(_open_plain(self._way_to(name)), "rb") as file:
                refuse_large(self.name_of(name), os.fstat(file.fileno()).st_size)
                return file.read()
        except _NOT_THERE:
            return None

    def names(self, folder: str) -> list[str]:
        try:
            path = self._way_to(f"{folder}/.") if folder else self.root
            return sorted(os.listdir(path))  # noqa: PTH208 (names are wanted)
        except _NOT_THERE:
            return []

    def files_below(self, folder: str = "") -> Iterator[tuple[str, int]]:
        for path in sorted((self.root / folder).rglob("*")):
            if path.is_file():
                yield path.relative_to(self.root).as_posix(), path.stat().st_mtime_ns

    def size(self, name: str = "") -> int:
        return (self.root / name).stat().st_size

    def written_ns(self, name: str = "") -> int:
        try:
            return (self.root / name).stat().st_mtime_ns
        except _NOT_THERE:
            return 0

    def stamp(self, name: str) -> object:
        try:
            fd = _open_plain(self._way_to(name))  # NFS asks its server at each opening
        except _NOT_THERE:
            return None
        try:
            status = os.fstat(fd)
        finally:
            os.close(fd)
        return status.st_ino, status.st_size, status.st_mtime_ns

    def create(self, name: str, data: bytes) -> bool:
        with self._draft(name, data) as draft:
            return _link(draft, self.root / name)

    def check_creates(self, folder: str) -> None:
        """Refuse nothing: a link to an existing name fails."""

    def replace(self, name: str, data: bytes) -> None:
        path = self.root / name
        with self._draft(name, data) as draft:
            draft.replace(path)
        sync_folder(path.parent)

    def write(self, data: bytes) -> None:
        LocalFileSystem(self.root.parent).replace(self.root.name, data)

    def delete(self, name: str) -> None:
        self._way_to(name).unlink(missing_ok=True)

    def make_folder(self) -> None:
        make_private_folder(self.root)

    def remove_folder(self) -> None:
        if not self.root.is_symlink():
            shutil.rmtree(self.root, ignore_errors=True)

    def clear(
        self, folder: str, is_part: Callable[[str], bool], is_due: Callable[[str, int], bool]
    ) -> None:
        with _opened(self.root / folder) as found:
            if found is None:
                return
            for part in sorted(filter(is_part, os.listdir(found))):  # noqa: PTH208
                _clear(found, part, folder, is_due)
        with suppress(OSError):  # it is not empty
            os.rmdir(self.root / folder)  # noqa: PTH106

    def refuse_links(self, names: Sequence[str]) -> None:
        inside = os.path.realpath(self.root)
        files = [self.root / name for name in names]
        for folder in dict.fromkeys(file.parent for file in files):
            expected = os.path.join(inside, *folder.relative_to(self.root).parts)  # noqa: PTH118
            if os.path.realpath(folder) != expected:
                raise _leads_outside(folder, self.root)
        for file in files:
            if file.is_symlink():
                raise _leads_outside(file, self.root)

    def refuse_links_in(self, folder: str) -> None:
        try:
            with os.scandir(self._way_to(f"{folder}/.")) as found:
                for one in found:
                    if one.is_symlink():
                        raise _leads_outside(Path(one.path), self.root)
        except _NOT_THERE:
            return

    def sync(self, names: Sequence[str]) -> None:
        files = [self.root / name for name in names]
        for file in files:
            _sync(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        folders = [file.parent for file in files]
        for folder in dict.fromkeys([*folders, *(folder.parent for folder in folders)]):
            sync_folder(folder)
        if files:
            sync_folder(self.root)

    def readable(self) -> Any:
        import pyarrow as pa  # here: every command loads this module, and few read tables

        _refuse_others(self.root, self.root.lstat().st_mode)
        return pa.OSFile(str(self.root))

    @contextmanager
    def writable(self, *, once: bool = False) -> Iterator[Path]:
        open_private(self.root, "wb").close()  # a library opens it by its name
        yield self.root

    def _way_to(self, name: str) -> Path:
        """Return a file's path; raise a SourceError if a folder on the way to it is a link."""
        path = self.root
        for part in name.split("/")[:-1]:
            path = path / part
            if path.is_symlink():
                raise _leads_outside(path, self.root)
        return self.root / name

    @contextmanager
    def _draft(self, name: str, data: bytes) -> Iterator[Path]:
        """Yield a finished draft beside a file, in folders on the disk; delete it afterwards."""
        path = self._way_to(name)
        inside = path.relative_to(self.root).parts[:-1]
        folders = [self.root.joinpath(*inside[:i]) for i in range(len(inside) + 1)]
        new = [folder for folder in folders if not folder.is_dir()]
        make_private_folder(path.parent)
        for folder in new:
            sync_folder(folder.parent)
        draft = path.with_name(draft_name())
        try:
            with open_private(draft, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield draft
        finally:
            draft.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _open_plain(path: Path) -> int:
    """Open a plain file for reading; return its descriptor.

    A link, a folder, a pipe, a device and a socket are refused: a SourceError. A device is not
    even opened, because opening has effects on some.
    """
    _refuse_others(path, path.lstat().st_mode)
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _refuse_others(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = next((kind for is_it, kind in _KINDS if is_it(mode)), "a device")
        raise SourceError(f"{path} is {kind}, expected a plain file: refused")


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _link(draft: Path, path: Path) -> bool:
    """Give a finished draft its name; return False if the name exists."""
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        # An NFS client that retries the call gets the answer that its own link exists.
        return path.exists() and path.samefile(draft)
    except FileNotFoundError:
        return False  # this process was suspended for so long that its draft was deleted
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            return False
        draft.rename(path)
    sync_folder(path.parent)
    return True


def _leads_outside(path: Path, root: Path) -> SourceError:
    return SourceError(f"{path} is a link, which may lead outside of the folder {root}")


def _clear(above: int, part: str, inside: str, is_due: Callable[[str, int], bool]) -> None:
    """Delete the files of a folder that are due, and the folder if it is empty then."""
    with _opened(Path(part), above) as folder:
        if folder is None:
            return
        for file in sorted(os.listdir(folder)):  # noqa: PTH208
            status = os.stat(file, dir_fd=folder, follow_symlinks=False)
            is_plain = stat.S_ISREG(status.st_mode)
            if is_plain and is_due(f"{inside}/{part}/{file}", status.st_mtime_ns):
                with suppress(FileNotFoundError):
                    os.unlink(file, dir_fd=folder)
    with suppress(OSError):  # it is not empty
        os.rmdir(part, dir_fd=above)


@contextmanager
def _opened(path: Path, above: int | None = None) -> Iterator[int | None]:
    """Open a folder; None if it does not exist, is not a folder, or is a link."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    except OSError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)

"""Object stores (S3, Google, Azure) and HDFS: paths there, which are their own file systems.

**Rules.** A file exists whole or not at all. ``create`` decides a commit, and succeeds for one
caller only; a storage that claims so and does not is detected when a writer begins, and refused. A
lost answer is looked up. An error of remote storage is one line that names the file.

**Strategy.** Arrow reads, lists and transfers Parquet. It lacks an atomic write of a small file,
one that fails if the file exists, and a deletion without a marker for its folder: on an object
store ``obstore`` does that, and on HDFS a draft that is renamed. Small files that this process has
sent are cached: their names are never reused, so the cache has what the storage has, or had before
a deletion. It does not prove that a file exists.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Self
from urllib.parse import urlsplit

from holdfast.errors import SourceError
from holdfast.fleet.tables.storage.clients import (
    delete,
    filesystem,
    hdfs_client,
    put,
    translated_errors,
)
from holdfast.fleet.tables.storage.file_system import FileSystem, draft_name, refuse_large


@dataclass(frozen=True, slots=True, order=True)
class RemotePath(FileSystem):
    """A file or a folder on remote storage, with the methods of Path that a dump or tables need."""

    root: str  # scheme and bucket, container or name node: ``s3://bucket``
    key: str = ""  # the rest of the URL, without slashes at its ends

    n_requests = 16
    clock_ns = 2 * 10**9
    replaces_at_once = False  # Arrow asks for the size first, and for the bytes afterwards

    def __str__(self) -> str:
        """Return the URL."""
        return self.name_of("")

    def __truediv__(self, name: str) -> Self:
        """Return a path below this one."""
        return type(self)(self.root, self._key(name))

    @property
    def name(self) -> str:
        """The part behind the last slash."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> Self:
        """The folder that contains it."""
        return type(self)(self.root, self.key.rpartition("/")[0])

    def absolute(self) -> Self:
        """Return the same path: a URL is absolute."""
        return self

    def resolve(self) -> Self:
        """Return the same path: no supported remote storage has links."""
        return self

    def is_symlink(self) -> bool:
        """Return False: no supported remote storage follows links out of itself."""
        return False

    def exists(self) -> bool:
        """Return whether a file or a folder exists."""
        return self.is_dir() or bool(self._about().is_file)

    def is_file(self) -> bool:
        """Return whether it is a file."""
        # Some object stores fail if they are asked for the size of a folder.
        return not self.is_dir() and bool(self._about().is_file)

    @abstractmethod
    def is_dir(self) -> bool:
        """Return whether it is a folder; on an object store, whether a name begins with it."""

    def iterdir(self) -> Iterator[Self]:
        """Yield the entries of the folder; nothing if it does not exist."""
        yield from (self / name for name in self.names(""))

    def name_of(self, name: str) -> str:
        key = self._key(name)
        return f"{self.root}/{key}" if key else self.root

    def read(self, name: str) -> bytes | None:
        try:
            with (
                translated_errors(self.name_of(name), "read"),
                self._system.open_input_file(self._path(name)) as file,
            ):
                refuse_large(self.name_of(name), file.size())
                data: bytes = file.read()
        except FileNotFoundError:
            return None
        return data

    def names(self, folder: str) -> list[str]:
        return sorted(about.base_name for about in self._listed(folder))

    def size(self, name: str = "") -> int:
        if (data := sent(self.name_of(name))) is not None:
            return len(data)
        about = self._about(name)
        if about.size is None:
            raise FileNotFoundError(2, "no such file", self.name_of(name))
        return int(about.size)

    def create(self, name: str, data: bytes) -> bool:
        try:
            with translated_errors(self.name_of(name), "written"):
                made = self._put(name, data, anew=True)
        except SourceError:
            with suppress(SourceError):
                if self.read(name) == data:
                    return True
            raise
        # A client that retries its request gets the answer that its own file exists.
        return made or self.read(name) == data

    def check_creates(self, folder: str) -> None:
        probe = f"{folder}/{draft_name()}"
        try:
            if self.create(probe, b"1") and self.create(probe, b"2"):
                raise SourceError(
                    f"{self.name_of('')}: this storage overwrites an existing file despite "
                    "If-None-Match, so two writers could commit at once; "
                    "tables are not written there; use a newer version of the storage, or another "
                    "one"
                )
        finally:
            self.delete(probe)

    def replace(self, name: str, data: bytes) -> None:
        with translated_errors(self.name_of(name), "written"):
            self._put(name, data, anew=False)

    def delete(self, name: str) -> None:
        """Delete a file if it exists, with a library that every reader has installed."""
        forget(self.name_of(name))
        with suppress(FileNotFoundError), translated_errors(self.name_of(name), "deleted"):
            self._system.delete_file(self._path(name))

    def unlink(self, missing_ok: bool = True) -> None:
        """Delete the file with a library that every reader has installed; it need not exist."""
        self.delete("")

    def remove_folder(self) -> None:
        with suppress(FileNotFoundError), translated_errors(self.name_of(""), "deleted"):
            self._system.delete_dir(self._path(""))

    def clear(
        self, folder: str, is_part: Callable[[str], bool], is_due: Callable[[str, int], bool]
    ) -> None:
        due = []
        for name, written_ns in self.files_below(folder):  # one listing covers all folders
            if is_part(name.split("/")[-2]) and is_due(name, written_ns):
                due.append(name)
        self.each(self.delete, due)

    def readable(self) -> Any:
        if (data := sent(self.name_of(""))) is not None:
            import pyarrow as pa  # here: every command loads this module, and few read tables

            return pa.BufferReader(data)
        with self.translated_errors("read"):
            return self._system.open_input_file(self._path(""))

    @contextmanager
    def writable(self, *, once: bool = False) -> Iterator[Any]:
        with self.translated_errors("written"):
            stream = self._system.open_output_stream(self._path(""))
        # A stream that is merely forgotten sends its last bytes when it is collected, and an
        # error then hangs: it is closed here.
        noted = Noted(stream)
        try:
            yield noted if once else stream
        except BaseException:
            with suppress(Exception):  # the block's own error is reported
                stream.close()
            raise
        with self.translated_errors("written"):
            stream.close()
        if once:
            noted.done(self.name_of(""))

    def translated_errors(self, done: str) -> AbstractContextManager[None]:
        return translated_errors(self.name_of(""), done)

    @property
    def _system(self) -> Any:
        with self.translated_errors("opened"):
            return filesystem(self.root)

    def _key(self, name: str) -> str:
        return "/".join(part for part in (self.key, name.strip("/")) if part)

    @abstractmethod
    def _path(self, name: str) -> str:
        """Return a name in Arrow's form."""

    @abstractmethod
    def _put(self, name: str, data: bytes, *, anew: bool) -> bool:
        """Write a file atomically; return False if ``anew`` and it exists."""

    def _about(self, name: str = "") -> Any:
        with translated_errors(self.name_of(name), "found"):
            return self._system.get_file_info(self._path(name))

    def _listed(self, folder: str, *, recursive: bool = False) -> Any:
        from pyarrow.fs import FileSelector

        wanted = FileSelector(self._path(folder), allow_not_found=True, recursive=recursive)
        with translated_errors(self.name_of(folder), "listed"):
            return self._system.get_file_info(wanted)


class ObjectPath(RemotePath):
    """A path on S3, Google or Azure."""

    def is_dir(self) -> bool:
        return bool(self._listed(""))

    def files_below(self, folder: str = "") -> Iterator[tuple[str, int]]:
        above = len(self._path("")) + 1
        for about in self._listed(folder, recursive=True):
            if about.is_file:
                yield str(about.path)[above:], int(about.mtime_ns or 0)

    def written_ns(self, name: str = "") -> int:
        return int(self._about(name).mtime_ns or 0)

    def write(self, data: bytes) -> None:
        with self.writable() as file, self.translated_errors("written"):
            file.write(data)

    def delete(self, name: str) -> None:
        """Delete a file if it exists; Arrow would replace its folder with an empty file."""
        forget(self.name_of(name))
        with translated_errors(self.name_of(name), "deleted"):
            delete(self.root, self._key(name))

    def unlink(self, missing_ok: bool = True) -> None:
        super().delete("")

    def _path(self, name: str) -> str:
        bucket = self.root.partition("://")[2].partition("@")[0]
        return f"{bucket}/{self._key(name)}".rstrip("/")

    def _put(self, name: str, data: bytes, *, anew: bool) -> bool:
        return put(self.root, self._key(name), data, anew=anew)


class HdfsPath(RemotePath):
    """A path on HDFS; Arrow's handler has no times, so HDFS's own client reads them."""

    def is_dir(self) -> bool:
        return str(self._about().type.name) == "Directory"

    def files_below(self, folder: str = "") -> Iterator[tuple[str, int]]:
        above = len(self._path("").rstrip("/")) + 1
        with suppress(FileNotFoundError), translated_errors(self.name_of(folder), "listed"):
            for info in list(self._client.list_status(self._path(folder), True)):
                if not info.isdir:
                    yield urlsplit(str(info.path)).path[above:], _ns_of(info)

    def written_ns(self, name: str = "") -> int:
        with suppress(FileNotFoundError), translated_errors(self.name_of(name), "found"):
            return _ns_of(self._client.get_file_info(self._path(name)))
        return 0

    def make_folder(self) -> None:
        with self.translated_errors("made"):
            self._system.create_dir(self._path(""), recursive=True)

    def write(self, data: bytes) -> None:
        self.replace("", data)

    @property
    def _client(self) -> Any:
        return hdfs_client(self.root)

    def _path(self, name: str) -> str:
        return f"/{self._key(name)}"

    def _put(self, name: str, data: bytes, *, anew: bool) -> bool:
        """Rename a draft, which the name node does for one caller only."""
        path = self._path(name)
        draft = f"{path.rpartition('/')[0]}/{draft_name()}"
        with self._client.create(draft) as file:
            file.write(data)
        try:
            self._client.rename(draft, path, overwrite=not anew)
        except FileExistsError:
            self._client.delete(draft)
            return False
        return True


def _ns_of(info: Any) -> int:
    return int(info.modification_time) * 1_000_000


FILE_BYTES: Final = 1 << 20
"""A larger file is not cached."""
KEPT_BYTES: Final = 16 << 20
"""Of all files together; the oldest ones go."""

_files: OrderedDict[str, bytes] = OrderedDict()
_lock: Final = Lock()


class Noted(io.RawIOBase):
    """A file that is being sent, and cached once :meth:`done` is called."""

    def __init__(self, stream: Any):
        super().__init__()
        self._stream = stream
        self._sent = io.BytesIO()

    def writable(self) -> bool:
        """Return True: the file is for writing."""
        return True

    def write(self, data: Any) -> int:
        """Send bytes."""
        self._stream.write(data)
        if self._sent.tell() <= FILE_BYTES:
            self._sent.write(data)
        return len(data)

    def done(self, name: str) -> None:
        """Keep the file under its whole name."""
        if self._sent.tell() > FILE_BYTES:
            return
        with _lock:
            _files[name] = self._sent.getvalue()
            while sum(map(len, _files.values())) > KEPT_BYTES:
                _files.popitem(last=False)


def sent(name: str) -> bytes | None:
    """Return the content sent under a full name; None if it is not cached."""
    with _lock:
        return _files.get(name)


def forget(name: str) -> None:
    """Keep a file no more: it is deleted."""
    with _lock:
        _files.pop(name, None)

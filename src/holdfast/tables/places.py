"""Where a dump or a folder of tables stands: a local path, or the URL of a store.

**Rules.** What a user names becomes a place here and nowhere else. ``file:///x`` is the path
``/x``; ``s3://`` (and ``s3a://``), ``gs://``, ``abfss://`` and ``hdfs://`` are stores; any other
scheme is an error, so a folder named ``s3:`` is never made. A URL holds no credentials: each store
finds them as its own tools do. What a store refuses is one line, which names the place.

**Strategy.** A local place stays a :class:`pathlib.Path`. A :class:`StorePath` has those of Path's
methods that a folder of files needs, over :mod:`holdfast.tables.filesystems`. A store's file is
there whole or not at all, except on HDFS, where a draft is renamed.

References: RFC 8089 (``file``); docs/adr/0030-stores.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from holdfast.errors import ConfigError, SourceError
from holdfast.tables.filesystems import (
    azure_put,
    creator,
    filesystem,
    hdfs_client,
    telling,
    write_hdfs,
)
from holdfast.tables.private import create_private, make_private_folder

SCHEMES: Final[Mapping[str, str]] = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "abfss": "abfss",
    "hdfs": "hdfs",
}
"""Schemes that a place may have, and what opens it."""

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/{1,3})?(?=(.*))", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class StorePath:
    """A file or a folder on a store, with those of Path's methods that a dump or tables need.

    Parameters
    ----------
    root : str
        Scheme and bucket, container or name node: ``s3://bucket``.
    key : str
        What follows it, without slashes at its ends.
    """

    root: str
    key: str = ""

    def __str__(self) -> str:
        """The URL."""
        return f"{self.root}/{self.key}" if self.key else self.root

    def __truediv__(self, name: str) -> StorePath:
        """A place below."""
        return StorePath(self.root, "/".join(part for part in (self.key, name.strip("/")) if part))

    @property
    def name(self) -> str:
        """What stands behind the last slash."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> StorePath:
        """The folder that holds it."""
        return StorePath(self.root, self.key.rpartition("/")[0])

    def absolute(self) -> StorePath:
        """A URL is absolute."""
        return self

    def exists(self) -> bool:
        """Whether a file or a folder is there."""
        return self.is_dir() or self.is_file()

    def is_file(self) -> bool:
        """Whether it is a file."""
        # Some stores fail where they are asked for the size of a folder.
        return not self.is_dir() and bool(self._about().is_file)

    def is_dir(self) -> bool:
        """Whether it is a folder: on a store of objects, whether a name begins with it."""
        if self._is_hdfs():
            return str(self._about().type.name) == "Directory"
        return next(self.iterdir(), None) is not None

    def is_symlink(self) -> bool:
        """No store that we know follows links out of itself."""
        return False

    def iterdir(self) -> Iterator[StorePath]:
        """What stands in the folder; nothing where it is not there."""
        from pyarrow.fs import FileSelector

        system, path = self._opened()
        with telling(self, "listed"):
            found = system.get_file_info(FileSelector(path, allow_not_found=True))
        yield from sorted(self / about.base_name for about in found)

    def glob(self, pattern: str) -> Iterator[StorePath]:
        """What stands in the folder under a name of this pattern."""
        yield from (place for place in self.iterdir() if fnmatchcase(place.name, pattern))

    def read_bytes(self) -> bytes:
        """What the file holds.

        Raises
        ------
        FileNotFoundError
            It is not there.
        """
        system, path = self._opened()
        with telling(self, "read"), system.open_input_file(path) as file:
            data: bytes = file.read()
        return data

    def read_text(self, encoding: str = "utf-8") -> str:
        """What the file holds, as text."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, data: bytes) -> None:
        """Give the file this content at once; there may be one already."""
        system, path = self._opened()
        with telling(self, "written"):
            if self._is_hdfs():
                write_hdfs(self.root, path, data, overwrite=True)
                return
            with system.open_output_stream(path) as file:
                file.write(data)

    def replace_bytes(self, data: bytes) -> None:
        """As :meth:`write_bytes`, by a process that commits: no reader sees less than this."""
        if not self.root.startswith("abfss:"):
            self.write_bytes(data)
            return
        with telling(self, "written"):
            azure_put(self.root)(self.key, data)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the file."""
        system, path = self._opened()
        try:
            with telling(self, "deleted"):
                system.delete_file(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def mkdir(self) -> None:
        """Make the folder, where the store has folders."""
        if self._is_hdfs():
            system, path = self._opened()
            with telling(self, "made"):
                system.create_dir(path, recursive=True)

    def create(self, data: bytes) -> bool:
        """Give the file this content where it is not there; False, and nothing done, where it is.

        Of several that try at the same time, one succeeds. An answer that is lost is looked up.

        Raises
        ------
        SourceError
            The store refuses it, or has no such writing.
        """
        with telling(self, "opened"):
            put = creator(self.root)
        path = f"/{self.key}" if self._is_hdfs() else self.key
        try:
            with telling(self, "written"):
                made = put(path, data)
        except SourceError:
            with suppress(FileNotFoundError, SourceError):
                if self.read_bytes() == data:
                    return True
            raise
        if not made:  # a client that sends its request again hears that its own file is there
            with suppress(FileNotFoundError):
                return self.read_bytes() == data
        return made

    def size(self) -> int:
        """Bytes of the file."""
        about = self._about()
        if about.size is None:
            raise FileNotFoundError(2, "no such file", str(self))
        return int(about.size)

    def written_ns(self) -> int:
        """When the file was written, by the clock of the store, which may count whole seconds.

        Raises
        ------
        FileNotFoundError
            It is not there.
        """
        if self._is_hdfs():  # of which Arrow's handler tells no time
            with telling(self, "found"):
                told = hdfs_client(self.root).get_file_info(f"/{self.key}")
            return int(told.modification_time) * 1_000_000
        about = self._about()
        if about.mtime_ns is None:
            raise FileNotFoundError(2, "no such file", str(self))
        return int(about.mtime_ns)

    def files_below(self) -> Iterator[tuple[StorePath, int]]:
        """Files in the folder and in those below it, and when each was written, in nanoseconds."""
        from pyarrow.fs import FileSelector, FileType

        if self._is_hdfs():
            yield from self._hdfs_files()
            return
        system, path = self._opened()
        with telling(self, "listed"):
            selected = FileSelector(path, allow_not_found=True, recursive=True)
            found = system.get_file_info(selected)
        for about in found:
            if about.type == FileType.File:
                inside = str(about.path).strip("/").removeprefix(path.strip("/"))
                yield self / inside, int(about.mtime_ns or 0)

    def _hdfs_files(self) -> Iterator[tuple[StorePath, int]]:
        with suppress(FileNotFoundError), telling(self, "listed"):
            for told in list(hdfs_client(self.root).list_status(f"/{self.key}", True)):
                if not told.isdir:
                    path = urlsplit(str(told.path)).path.strip("/")
                    yield StorePath(self.root, path), int(told.modification_time) * 1_000_000

    def remove_tree(self) -> None:
        """Delete the folder and what is in it, if it is there."""
        system, path = self._opened()
        with suppress(FileNotFoundError), telling(self, "deleted"):
            system.delete_dir(path)

    def open_input(self) -> Any:
        """The file as Arrow reads it."""
        system, path = self._opened()
        with telling(self, "read"):
            return system.open_input_file(path)

    def open_output(self) -> Any:
        """A stream of Arrow's that makes the file; a store of objects shows it once closed."""
        system, path = self._opened()
        with telling(self, "written"):
            return system.open_output_stream(path)

    def _about(self) -> Any:
        system, path = self._opened()
        with telling(self, "found"):
            return system.get_file_info(path)

    def _is_hdfs(self) -> bool:
        return self.root.startswith("hdfs:")

    def _opened(self) -> tuple[Any, str]:
        """The store, and the name of this place on it."""
        with telling(self, "opened"):
            system = filesystem(self.root)
        if self._is_hdfs():
            return system, f"/{self.key}"
        bucket = self.root.partition("://")[2].partition("@")[0]
        return system, f"{bucket}/{self.key}".rstrip("/")


Place: TypeAlias = Path | StorePath
"""Where something stands."""


def place_of(named: str | Place) -> Place:
    """The place that a user's path or URL names.

    Raises
    ------
    ConfigError
        It has a scheme that is not known, no bucket, or credentials in it.
    """
    if isinstance(named, StorePath):
        return named
    match = _URL.match(str(named))
    if match is None:
        return Path(named)
    scheme, slashes, _ = match.groups()
    if not slashes and scheme.lower() not in SCHEMES:
        return Path(named)  # a name with a colon in it
    if scheme.lower() == "file":
        return _local(str(named))
    if scheme.lower() not in SCHEMES:
        raise ConfigError(
            f"{named}: no storage has the scheme {scheme}:// here; expected a local path, or a URL "
            f"that begins with {', '.join(f'{name}://' for name in SCHEMES)}"
        )
    if isinstance(named, Path) or slashes in (None, "/"):
        rest = str(named).partition(":")[2].lstrip("/")
        raise ConfigError(f"{named}: a URL begins with {scheme}://; expected '{scheme}://{rest}'")
    return _store(str(named), scheme.lower())


def local_path(named: str | Path) -> Path:
    """The local path that a user names, for what is kept on this machine alone.

    Raises
    ------
    ConfigError
        It is on a store, or has a scheme that is not known.
    """
    text = str(named)
    match = _URL.match(text)
    if match is not None and match.group(2) and match.group(1).lower() in SCHEMES:
        if match.group(1).lower() == "file":
            return _local(text)
        raise ConfigError(
            f"{match.group(1)}://...: this has to be a local path; only dumps and tables may be on "
            "a store"
        )
    found = place_of(text)
    assert isinstance(found, Path)  # every scheme was refused
    return found


def _local(url: str) -> Path:
    found = urlsplit(url)
    if found.netloc not in ("", "localhost") or not found.path.startswith("/"):
        raise ConfigError(f"{url}: expected file:///PATH, an absolute path of this machine")
    return Path(unquote(found.path))


def _store(url: str, scheme: str) -> StorePath:
    authority, _, key = url.partition("://")[2].partition("/")
    parts = [part for part in key.split("/") if part]
    if ".." in parts or "." in parts:
        raise ConfigError(f"{url}: a URL has no '..' and no '.' between its slashes")
    if scheme == "abfss" and not re.fullmatch(r"[^@:]+@[^@:]+", authority):
        raise ConfigError(f"{url}: expected abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH")
    if scheme != "abfss" and "@" in authority:
        raise ConfigError(
            f"{scheme}://...@{authority.rpartition('@')[2]}: credentials do not belong in a URL, "
            "which is printed; docs/stores.md says where this store finds them"
        )
    if not authority:
        bucket = "HOST:PORT" if scheme == "hdfs" else "BUCKET"
        raise ConfigError(f"{url}: expected {scheme}://{bucket}/PATH")
    return StorePath(f"{SCHEMES[scheme]}://{authority}", "/".join(parts))


def parquet_files(folder: Place) -> list[Place]:
    """Parquet files in a folder, sorted; none where it is not there."""
    if isinstance(folder, StorePath):
        return list(folder.glob("*.parquet"))
    return sorted(path for path in folder.glob("*.parquet") if path.is_file())


def make_folder(folder: Place) -> None:
    """Make a folder for its owner alone, where the storage has folders."""
    if isinstance(folder, StorePath):
        folder.mkdir()
    else:
        make_private_folder(folder)


def size_of(file: str | Place) -> int:
    """Bytes of a file."""
    place = place_of(file)
    return place.size() if isinstance(place, StorePath) else place.stat().st_size


def written_ns_of(file: str | Place) -> int:
    """When a file was written, by the clock of its storage, in nanoseconds since 1970."""
    place = place_of(file)
    return place.written_ns() if isinstance(place, StorePath) else place.stat().st_mtime_ns


def parquet_below(folder: Place) -> list[Place]:
    """Parquet files in a folder and in those below, sorted; none where it is not there."""
    if isinstance(folder, StorePath):
        below = (file for file, _ in folder.files_below())
        return sorted(file for file in below if file.name.endswith(".parquet"))
    return sorted(folder.rglob("*.parquet")) if folder.is_dir() else []


def readable(file: str | Place) -> Any:
    """What ``pyarrow.parquet.ParquetFile`` reads a file by."""
    place = place_of(file)
    return place.open_input() if isinstance(place, StorePath) else place


@contextmanager
def writable(file: str | Place) -> Iterator[Any]:
    """What ``pyarrow.parquet`` writes a new file by, in a block; a local one is its owner's alone.

    On a store the file is there when the block ends. It is closed by us: a stream of Arrow's that
    is merely forgotten sends its last bytes when it is collected, and an error then hangs.

    Raises
    ------
    SourceError
        The store refuses it.
    """
    place = place_of(file)
    if not isinstance(place, StorePath):
        yield create_private(place)
        return
    stream = place.open_output()
    try:
        yield stream
    except BaseException:
        with suppress(Exception):  # what is told is why the block failed
            stream.close()
        raise
    with telling(place, "written"):
        stream.close()

"""Paths of dumps and of folders of tables: a local path, or the URL of remote storage.

**Rules.** Only this module turns a user's text into a storage path. ``file:///x`` is the path
``/x``; ``s3://`` (and ``s3a://``), ``gs://``, ``abfss://`` and ``hdfs://`` are remote; any other
scheme is an error, so a folder named ``s3:`` is never created. A URL contains no credentials: each
storage finds them as its own tools do. An error of remote storage is one line that names the path.

**Strategy.** A local path stays a :class:`pathlib.Path`. A :class:`RemotePath` has those of Path's
methods that a folder of files needs, and is its own file system. Everything that differs between
kinds of storage is a method of the file system (:func:`file_system_of`).

References: RFC 8089 (``file``); docs/adr/0030-stores.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from holdfast.errors import ConfigError
from holdfast.fleet.tables.storage.file_system import FileSystem, LocalFileSystem
from holdfast.fleet.tables.storage.remote import HdfsPath, ObjectPath, RemotePath

SCHEMES: Final[Mapping[str, str]] = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "abfss": "abfss",
    "hdfs": "hdfs",
}
"""Schemes that a path may have, and the name of its file system."""

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/{1,3})?(?=(.*))", re.DOTALL)


StoragePath: TypeAlias = Path | RemotePath
"""A local path, or one of remote storage."""


def storage_path(named: str | StoragePath) -> StoragePath:
    """Return the storage path for a user's path or URL; another text is a ConfigError."""
    if isinstance(named, RemotePath):
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
            f"{named}: unknown scheme {scheme}://; expected a local path, or a URL "
            f"that begins with {', '.join(f'{name}://' for name in SCHEMES)}"
        )
    if isinstance(named, Path) or slashes in (None, "/"):
        rest = str(named).partition(":")[2].lstrip("/")
        raise ConfigError(f"{named}: a URL begins with {scheme}://; expected '{scheme}://{rest}'")
    return _remote(str(named), scheme.lower())


def local_path(named: str | Path) -> Path:
    """Return the local path for a user's path, for files that must be on this machine."""
    text = str(named)
    match = _URL.match(text)
    if match is not None and match.group(2) and match.group(1).lower() in SCHEMES:
        if match.group(1).lower() == "file":
            return _local(text)
        raise ConfigError(
            f"{match.group(1)}://...: expected a local path; only dumps and tables may be on "
            "remote storage"
        )
    found = storage_path(text)
    assert isinstance(found, Path)  # every scheme was refused
    return found


def _local(url: str) -> Path:
    found = urlsplit(url)
    if found.netloc not in ("", "localhost") or not found.path.startswith("/"):
        raise ConfigError(f"{url}: expected file:///PATH, an absolute path of this machine")
    return Path(unquote(found.path))


def _remote(url: str, scheme: str) -> RemotePath:
    authority, _, key = url.partition("://")[2].partition("/")
    parts = [part for part in key.split("/") if part]
    if ".." in parts or "." in parts:
        raise ConfigError(f"{url}: a URL has no '..' and no '.' between its slashes")
    if scheme == "abfss" and not re.fullmatch(r"[^@:]+@[^@:]+", authority):
        raise ConfigError(f"{url}: expected abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH")
    if scheme != "abfss" and "@" in authority:
        raise ConfigError(
            f"{scheme}://...@{authority.rpartition('@')[2]}: credentials do not belong in a URL, "
            'which is printed; the page "Stores" says where they are found'
        )
    if not authority:
        bucket = "HOST:PORT" if scheme == "hdfs" else "BUCKET"
        raise ConfigError(f"{url}: expected {scheme}://{bucket}/PATH")
    kind = HdfsPath if scheme == "hdfs" else ObjectPath
    return kind(f"{SCHEMES[scheme]}://{authority}", "/".join(parts))


def file_system_of(path: str | StoragePath) -> FileSystem:
    """Return the local or remote file system of a path."""
    found = storage_path(path) if isinstance(path, str) else path
    return found if isinstance(found, RemotePath) else LocalFileSystem(found)


def parquet_files(folder: StoragePath) -> list[StoragePath]:
    """Return the Parquet files in a folder, sorted; none if it does not exist."""
    names = sorted(name for name, _ in file_system_of(folder).files_below())
    return [folder / name for name in names if name.endswith(".parquet") and "/" not in name]

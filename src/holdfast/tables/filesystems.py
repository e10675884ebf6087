"""The storages behind places: one ``pyarrow.fs`` file system for each bucket or name node.

**Rules.** Credentials come by each store's usual means and never from us: environment, profile or
role of the machine for S3; application default credentials for Google; the environment or
``DefaultAzureCredential`` for Azure; Hadoop's configuration files and Kerberos for HDFS. What a
store refuses is one line. A store that does not answer is given up after a bounded time.

**Strategy.** ``pyarrow.fs`` brings S3, Google and Azure in the wheel that every worker has for its
Parquet. HDFS is ``hdfs-native``, a client without Java, behind the same interface.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.errors import SourceError

_AWS: Final = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))? during (\w+) operation")
_REQUEST_ID: Final = re.compile(r"\s*\(Request ID: [^)]*\)")
_CONNECT_S: Final = 10.0
_REQUEST_S: Final = 60.0
"""A store that says nothing for so long is asked again, two times; then it is an error."""


@cache
def filesystem(root: str) -> Any:
    """The ``pyarrow.fs.FileSystem`` of a bucket, a container or a name node; one a process.

    Parameters
    ----------
    root : str
        Scheme and bucket, container or name node: ``s3://bucket``.
    """
    return _OPEN[root.partition(":")[0]](urlsplit(root))


def _open_s3(url: Any) -> Any:
    from pyarrow.fs import S3FileSystem, resolve_s3_region

    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    server = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    where: dict[str, Any] = {}
    if server:
        found = urlsplit(server)
        where = {"endpoint_override": found.netloc, "scheme": found.scheme}
    elif not region:
        region = resolve_s3_region(url.netloc)
    return S3FileSystem(
        region=region or "us-east-1",
        connect_timeout=_CONNECT_S,
        request_timeout=_REQUEST_S,
        **where,
    )


def _open_gs(_: Any) -> Any:
    from pyarrow.fs import GcsFileSystem

    server = os.environ.get("STORAGE_EMULATOR_HOST")
    where: dict[str, Any] = {}
    if server:
        found = urlsplit(server if "//" in server else f"http://{server}")
        where = {"endpoint_override": found.netloc, "scheme": found.scheme, "anonymous": True}
    return GcsFileSystem(retry_time_limit=timedelta(seconds=3 * _REQUEST_S), **where)


def _open_abfss(url: Any) -> Any:
    from pyarrow.fs import AzureFileSystem

    key = os.environ.get("AZURE_STORAGE_ACCOUNT_KEY") or os.environ.get("AZURE_STORAGE_KEY")
    token = os.environ.get("AZURE_STORAGE_SAS_TOKEN")
    return AzureFileSystem(
        account_name=url.hostname.partition(".")[0], account_key=key, sas_token=token
    )


def _open_hdfs(url: Any) -> Any:
    from hdfs_native.fsspec import HdfsFileSystem
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    return PyFileSystem(FSSpecHandler(HdfsFileSystem(url.hostname, url.port)))


_OPEN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "s3": _open_s3,
    "gs": _open_gs,
    "abfss": _open_abfss,
    "hdfs": _open_hdfs,
}


@contextmanager
def telling(place: object, done: str) -> Iterator[None]:
    """Say in one line what a store refused; a file that is not there stays FileNotFoundError.

    Raises
    ------
    SourceError
        In place of what the store's client raised.
    """
    try:
        yield
    except (FileNotFoundError, ImportError, SourceError):
        raise
    except Exception as error:  # each client has its own errors
        raise SourceError(f"{place} cannot be {done}: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """What a store's client said, in one line."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = text or type(error).__name__
    match = _AWS.search(text)
    if match is None:
        return _REQUEST_ID.sub("", text)
    kind, status, operation = match.groups()
    said = _REQUEST_ID.sub("", text[match.end() :]).lstrip(": ")
    if kind == "ACCESS_DENIED":
        kind = "access denied"
    return f"{kind}{f' ({status})' if status else ''} at {operation}{f': {said}' if said else ''}"

"""Clients of remote storage: one ``pyarrow.fs`` file system for each bucket or name node.

**Rules.** Credentials come by the usual means of each storage and never from us: environment,
profile or role of the machine for S3; application default credentials for Google; the environment
or ``DefaultAzureCredential`` for Azure; Hadoop's configuration files and Kerberos for HDFS. An
error of remote storage is one line. A storage without an answer is an error after a bounded time.

**Strategy.** ``pyarrow.fs`` brings S3, Google and Azure in the wheel that every worker has for its
Parquet. HDFS is ``hdfs-native``, a client without Java, behind the same interface. Arrow lacks an
atomic write of a small file, and one that fails if the file exists: that is ``obstore`` (the
``object_store`` of Rust), used only by a process that commits.

References: docs/adr/0030-stores.md; docs/adr/0034-tables-on-stores.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.errors import ConfigError, SourceError

_AWS: Final = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))? during (\w+) operation")
_REQUEST_ID: Final = re.compile(r"\s*\(Request ID: [^)]*\)")
_CONNECT_S: Final = 10.0
_REQUEST_S: Final = 60.0
"""Request timeout; a request is retried two times; then it is an error."""


@cache
def filesystem(root: str) -> Any:
    """Return the ``pyarrow.fs.FileSystem`` of a bucket, container or name node; one a process."""
    return _OPEN[root.partition(":")[0]](urlsplit(root))


def _open_s3(url: Any) -> Any:
    import pyarrow as pa
    from pyarrow.fs import AwsDefaultS3RetryStrategy, S3FileSystem

    server, region = _s3_server(url)
    where: dict[str, Any] = {}
    if server:
        found = urlsplit(server)
        where = {"endpoint_override": found.netloc, "scheme": found.scheme}
    if int(pa.__version__.partition(".")[0]) >= 21:
        where["allow_delayed_open"] = True  # a small file is one request, and not three
    # The standard strategy stops retrying once a process has seen about a hundred failures: Arrow
    # does not tell it that requests succeed.
    return S3FileSystem(
        region=region,
        connect_timeout=_CONNECT_S,
        request_timeout=_REQUEST_S,
        retry_strategy=AwsDefaultS3RetryStrategy(max_attempts=3),
        **where,
    )


def _s3_server(url: Any) -> tuple[str | None, str]:
    """Return the server of a bucket, None for Amazon's, and its region."""
    server = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not server and not region:
        from pyarrow.fs import resolve_s3_region

        region = resolve_s3_region(url.netloc)
    return server, region or "us-east-1"


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

    key, token, server = _azure_keys()
    where: dict[str, str] = {}
    if server:
        found = urlsplit(server)
        for kind in ("blob", "dfs"):
            where |= {
                f"{kind}_storage_authority": found.netloc,
                f"{kind}_storage_scheme": found.scheme,
            }
    return AzureFileSystem(
        account_name=url.hostname.partition(".")[0], account_key=key, sas_token=token, **where
    )


def _azure_keys() -> tuple[str | None, str | None, str | None]:
    """Return key and token of the account, and its server, if it is not Microsoft's."""
    key = os.environ.get("AZURE_STORAGE_ACCOUNT_KEY") or os.environ.get("AZURE_STORAGE_KEY")
    server = os.environ.get("AZURE_STORAGE_ENDPOINT")
    return key, os.environ.get("AZURE_STORAGE_SAS_TOKEN"), server


def _open_hdfs(url: Any) -> Any:
    from hdfs_native.fsspec import HdfsFileSystem
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    return PyFileSystem(
        FSSpecHandler(HdfsFileSystem(url.hostname, url.port, skip_instance_cache=True))
    )


_OPEN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "s3": _open_s3,
    "gs": _open_gs,
    "abfss": _open_abfss,
    "hdfs": _open_hdfs,
}


@cache
def hdfs_client(root: str) -> Any:
    """Return the client of a name node; one a process."""
    from hdfs_native import Client

    return Client(root)


@cache
def object_store(root: str) -> Any:
    """Return the ``obstore`` client of a bucket or a container; one a process."""
    url = urlsplit(root)
    try:
        import obstore.store  # noqa: F401 (checks that it is installed)
    except ImportError as error:
        raise ConfigError(
            f"tables on {url.scheme}:// are written with obstore: "
            "pip install 'kafka-holdfast[fleet]'"
        ) from error
    return _OBJECTS[url.scheme](url)


def put(root: str, key: str, data: bytes, *, anew: bool) -> bool:
    """Write a file of an object store atomically; return False if ``anew`` and the file exists.

    Arrow creates an empty file first on Azure, which a reader sees, and has no ``anew``.
    """
    store = object_store(root)
    import obstore

    mode: Any = "create" if anew else "overwrite"
    try:
        with _denying():
            obstore.put(store, key, data, mode=mode, use_multipart=False)
    except obstore.exceptions.AlreadyExistsError:
        return False
    except FileNotFoundError as error:  # the bucket does not exist
        raise OSError(reason_of(error)) from error
    return True


def delete(root: str, key: str) -> None:
    """Delete a file of an object store if it exists, and nothing else."""
    store = object_store(root)
    import obstore

    with suppress(FileNotFoundError), _denying():
        obstore.delete(store, key)


@contextmanager
def _denying() -> Iterator[None]:
    """Replace ``obstore``'s error with one that says that access is denied."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise OSError(f"access denied: {reason_of(error)}") from error


def _client_options(server: str | None = None) -> dict[str, Any]:
    """Return timeouts and retries of a client."""
    options = {
        "connect_timeout": timedelta(seconds=_CONNECT_S),
        "timeout": timedelta(seconds=_REQUEST_S),
        "allow_http": (server or "").startswith("http:"),
    }
    retries = {"max_retries": 2, "retry_timeout": timedelta(seconds=3 * _REQUEST_S)}
    return {"client_options": options, "retry_config": retries}


def _s3_objects(url: Any) -> Any:
    from obstore.store import S3Store

    server, region = _s3_server(url)
    more: dict[str, Any] = {"endpoint": server} if server else {}
    if os.environ.get("AWS_PROFILE") and not os.environ.get("AWS_ACCESS_KEY_ID"):
        more["credential_provider"] = _profile()
    return S3Store(url.netloc, region=region, **more, **_client_options(server))


def _profile() -> Any:
    """Return the credentials of a profile (``AWS_PROFILE``), which ``boto3`` reads."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise ConfigError(
            "AWS_PROFILE: tables on s3:// are written by a profile with boto3: pip install boto3"
        ) from error
    return Boto3CredentialProvider()


def _gs_objects(url: Any) -> Any:
    from obstore.store import GCSStore

    return GCSStore(url.netloc, **_client_options())


def _abfss_objects(url: Any) -> Any:
    from obstore.store import AzureStore

    container, _, account = url.netloc.partition("@")
    key, token, server = _azure_keys()
    name = account.partition(".")[0]
    given: dict[str, Any] = {"account_key": key} if key else {}
    given |= {"sas_key": token} if token else {}
    given |= {"endpoint": f"{server.rstrip('/')}/{name}"} if server else {}
    return AzureStore(container, account_name=name, **given, **_client_options(server))


_OBJECTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "s3": _s3_objects,
    "gs": _gs_objects,
    "abfss": _abfss_objects,
}


@contextmanager
def translated_errors(path: object, done: str) -> Iterator[None]:
    """Turn an error of remote storage into a SourceError of one line; FileNotFoundError stays."""
    try:
        yield
    except (FileNotFoundError, ImportError, ConfigError, SourceError):
        raise
    except Exception as error:  # each client has its own errors
        raise SourceError(f"{path} cannot be {done}: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """Return the error text of a client, in one line."""
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

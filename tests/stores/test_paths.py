"""What a user may name as a place: never a folder called ``s3:``."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.running import run
from tests.pipeline import fleet

from holdfast.errors import ConfigError
from holdfast.fleet.pipeline.batches import history
from holdfast.fleet.pipeline.batches.watch import watch
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.tables.reading import open_tables, read_tables
from holdfast.fleet.tables.storage.clients import reason_of
from holdfast.fleet.tables.storage.file_system import LocalFileSystem
from holdfast.fleet.tables.storage.paths import file_system_of, local_path, storage_path
from holdfast.fleet.tables.storage.remote import HdfsPath, ObjectPath

JOBS = Path(__file__).parents[2] / "jobs"


@pytest.mark.parametrize(
    ("named", "path"),
    [
        ("/a/b", Path("/a/b")),
        ("a:b/c", Path("a:b/c")),
        ("C:/a", Path("C:/a")),
        (Path("a"), Path("a")),
        ("file:///a%20b/c", Path("/a b/c")),
        ("file:/a", Path("/a")),
        ("FILE://localhost/a", Path("/a")),
        (Path("file:///a"), Path("/a")),
        ("s3://bucket/a//b/", ObjectPath("s3://bucket", "a/b")),
        ("s3a://bucket/a%20b?c", ObjectPath("s3://bucket", "a%20b?c")),
        ("gs://bucket", ObjectPath("gs://bucket")),
        ("hdfs://h:8020/a", HdfsPath("hdfs://h:8020", "a")),
        ("abfss://c@a.dfs.core.windows.net/x", ObjectPath("abfss://c@a.dfs.core.windows.net", "x")),
        (ObjectPath("s3://b", "a"), ObjectPath("s3://b", "a")),
    ],
)
def test_storage_paths(named, path):
    assert storage_path(named) == path


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        ("/a/b", LocalFileSystem),
        ("s3://bucket/a", ObjectPath),
        ("gs://bucket", ObjectPath),
        ("abfss://c@a.dfs.core.windows.net/x", ObjectPath),
        ("hdfs://h:8020/a", HdfsPath),
    ],
)
def test_a_kind_of_storage_is_one_class(named, kind):
    fs = file_system_of(named)
    assert type(fs) is kind and fs.name_of("x") == f"{named}/x"


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("s3n://b/x", r"unknown scheme s3n://.*, s3a://,"),
        ("wasbs://b/x", "unknown scheme wasbs://"),
        ("https://b/x", "unknown scheme https://"),
        ("foo:/x", "unknown scheme foo://"),
        ("s3:/b/x", "a URL begins with s3://; expected 's3://b/x'"),
        ("s3:b", "expected 's3://b'"),
        (Path("s3://b/x"), "expected 's3://b/x'"),
        (Path("abc://b/x"), "unknown scheme abc://"),
        ("s3:///x", "expected s3://BUCKET/PATH"),
        ("hdfs:///x", "expected hdfs://HOST:PORT/PATH"),
        ("abfss://account/x", "expected abfss://CONTAINER@ACCOUNT"),
        ("s3://b/x/../y", r"no '\.\.'"),
        ("file://host/x", "expected file:///PATH"),
        ("file:x", "expected file:///PATH"),
    ],
)
def test_what_is_no_storage_path(named, said):
    with pytest.raises(ConfigError, match=said):
        storage_path(named)


def test_credentials_in_a_url_are_refused_and_not_repeated():
    with pytest.raises(ConfigError, match="credentials do not belong") as raised:
        storage_path("s3://name:hush@bucket/x")
    assert "hush" not in str(raised.value)
    with pytest.raises(ConfigError, match="expected a local path") as raised:
        local_path("s3://name:hush@bucket/x")
    assert "hush" not in str(raised.value)


COMMANDS = [
    ("dump", "-b", "127.0.0.1:1", "-o"),
    ("history", "-b", "127.0.0.1:1", "-o"),
    ("history", "--input"),
    ("lag", "-b", "127.0.0.1:1", "-o"),
    ("watch", "-b", "127.0.0.1:1", "-o"),
    ("watch", "-b", "127.0.0.1:1", "-o", "tables", "--metrics"),
    ("doctor", "--input"),
    ("report", "--input", "tables", "-o"),
    ("serve", "--input"),
    ("serve", "-b", "127.0.0.1:1", "-o"),
    ("simulate", "-o"),
    ("demo", "-o"),
    ("plan", "--input"),
    ("replay", "--input", "tables", "-o"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("url", ["s3n://bucket/x", "s3:/bucket/x"])
def test_no_command_makes_a_folder_of_a_scheme(command, url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = run(*command, url, width=1000)
    assert ended.code == 2 and ended.err.count("\n") == 1, ended.err
    assert (
        "unknown scheme" in ended.err
        or "a URL begins with" in ended.err
        or ("expected a local path" in ended.err)
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("job", ["history", "lag", "plan", "replay", "watch"])
@pytest.mark.every
def test_no_job_makes_one(job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ends = {"plan": ["sticky", "out"], "replay": ["out"]}
    places = ["127.0.0.1:1", "oss://b/x"] if job == "watch" else ["oss://b/x", "oss://b/y"]
    monkeypatch.setattr(sys, "argv", [job, *places, *ends.get(job, [])])
    monkeypatch.setattr("holdfast.fleet.pipeline.session.get_session", lambda **options: None)
    with pytest.raises(ConfigError, match="unknown scheme oss://"):
        runpy.run_path(str(JOBS / f"{job}.py"), run_name="__main__")
    assert list(tmp_path.iterdir()) == []


def test_no_function_makes_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: Dump.open("oss://b/x"),
        lambda: history.run(None, "d", "oss://b/x"),
        lambda: watch(None, "oss://b/x"),
        lambda: open_tables("oss://b/x"),
        lambda: read_tables("oss://b/x"),
    ):
        with pytest.raises(ConfigError, match="unknown scheme oss://"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_file_url_is_a_path(tmp_path):
    dump = fleet.write_dump(tmp_path / "a b", [("g", 1, fleet.commit("g", "t", 0, 1, at=1))])
    assert Dump.open(dump.as_uri()).path == dump
    ended = run("report", "--input", f"file://{tmp_path}/none", "-o", f"file://{tmp_path}/r.html")
    assert ended.code == 3 and "no such folder" in ended.err


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            "When reading information for key 'x' in bucket 'b': AWS Error ACCESS_DENIED during "
            "HeadObject operation: No response body. (Request ID: abc)",
            "access denied at HeadObject: No response body.",
        ),
        (
            "When x: AWS Error UNKNOWN (HTTP status 503) during PutObject operation: slow",
            "UNKNOWN (503) at PutObject: slow",
        ),
        ("\nfirst\nsecond", "first"),
        ("", "OSError"),
    ],
)
def test_an_error_of_remote_storage_is_one_line(raised, said):
    assert reason_of(OSError(raised)) == said


STARTS_ANOTHER = """
import os, subprocess, sys
from holdfast.fleet.tables.storage import clients
from holdfast.fleet.tables.storage.paths import storage_path

storage_path(sys.argv[1]).is_dir()
clients.filesystem.cache_clear()
subprocess.run(["true"], check=True, preexec_fn=lambda: None)  # forks, as PySpark does for its JVM
os._exit(0)
"""


def test_a_process_that_has_read_remote_storage_starts_another_one(bucket):
    """What a library keeps of a store is not taken down in the child, where it would wait."""
    started = [sys.executable, "-c", STARTS_ANOTHER, bucket]
    subprocess.run(started, check=True, timeout=60)

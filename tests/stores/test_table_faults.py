"""A store that refuses, stalls or drops connections in the middle of a commit of tables."""

from __future__ import annotations

import pytest
from tests.stores.conftest import forget
from tests.stores.test_tables import ids
from tests.suites import further
from tests.tables.test_commits import groups, written

from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.parquet import BoundedParquet
from holdfast.fleet.tables.storage.paths import file_system_of, storage_path

ENTRY = r"PUT .*/generations/_delta_log/.*1\.json"
VERSION = r"PUT .*/_commits/000000002\.json"


@pytest.fixture
def held(faulty):
    """The relay, and tables of one batch behind it."""
    between, url = faulty
    root = storage_path(url)
    Tables(root).commit(written(root, 0, "a"))
    return between, root


@pytest.mark.parametrize("request_line", further([ENTRY, VERSION]), ids=["entry", "version"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("refuse", "cannot be written: access denied"),
        pytest.param("drop", "cannot be written", marks=pytest.mark.every),
        pytest.param("stall", "cannot be written", marks=pytest.mark.slow),
    ],
)
def test_a_commit_that_remote_storage_interrupts(held, fault, said, request_line):
    between, root = held
    batch = written(root, 1, "b")
    with between.ends(fault, request_line, said, root):
        Tables(root).commit(batch)
    assert groups(root) == ["a"]
    Tables(root).commit(batch)  # nothing was lost, and the next run goes on
    assert groups(root) == ["a", "b"] and ids(root) == [0, 1]


def test_a_file_of_a_task_that_remote_storage_refuses(faulty):
    between, url = faulty
    root = storage_path(url)
    with between.ends("refuse", r"(PUT|POST) .*/batch-", "access denied"):
        written(root, 0, "a")
    Tables(root).commit(written(root, 0, "a"))
    assert groups(root) == ["a"]


def test_a_file_that_remote_storage_keeps(faulty):
    between, url = faulty
    fs = file_system_of(storage_path(url))
    fs.replace("file", b"kept")
    with between.ends("refuse", r"(POST|DELETE) ", "cannot be deleted: access denied", url):
        fs.delete("file")
    assert fs.read("file") == b"kept"
    for _ in range(2):  # one that is gone already is no error
        fs.delete("file")
    assert fs.read("file") is None


@pytest.mark.parametrize("request_line", further([ENTRY, VERSION]), ids=["entry", "version"])
def test_a_commit_whose_answer_is_lost_counts_once(held, request_line):
    between, root = held
    between.fault, between.request, between.times = "mute", request_line, 1
    Tables(root).commit(written(root, 1, "b"))
    assert between.hits and groups(root) == ["a", "b"] and ids(root) == [0, 1]


@pytest.mark.parametrize("fault", further(["refuse", "drop"]))
def test_a_file_that_is_opened_and_cannot_be_read(held, fault):
    """As the next batch of a watch reads what the last one has left."""
    between, root = held
    (file,) = Tables(root).files("generations")
    forget()
    with between.ends(fault, "GET .*/batch-", "cannot be read", root):
        BoundedParquet(file).read(columns=["group"])
    assert BoundedParquet(file).read(columns=["group"])["group"].to_pylist() == ["a"]


def test_tables_that_cannot_be_read(held):
    between, root = held
    forget()
    with between.ends("refuse", "GET .*/batch-", "cannot be read"):
        groups(root)
    assert groups(root) == ["a"]

"""A store that refuses, stalls or drops connections: one line, nothing lost, the next run works."""

from __future__ import annotations

import pytest
from tests.pipeline import fleet
from tests.stores.test_dumps import copied
from tests.suites import further

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.tables.storage.paths import file_system_of

STALL = pytest.param("stall", marks=pytest.mark.slow)  # it takes seconds to give a store up


@pytest.fixture
def dump(tmp_path):
    records = [("g", n, fleet.commit("g", "t", 0, n, at=n)) for n in range(5)]
    return fleet.write_dump(tmp_path / "dump", records, topics=[("t", 1)])


@pytest.mark.parametrize("request_line", further([r"(PUT|POST) .*/dump\.json", r"PUT .*/topics/"]))
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("refuse", "access denied"),
        ("drop", "NETWORK"),
        pytest.param("stall", "NETWORK", marks=pytest.mark.slow),
    ],
)
def test_a_dump_that_remote_storage_interrupts(faulty, dump, fault, said, request_line):
    between, url = faulty
    with between.ends(fault, request_line, said, url):
        copied(dump, url)
    with pytest.raises(SourceError, match=r"not a dump: it has no dump\.json"):
        Dump.open(url)
    assert copied(dump, url).n_records() == 5


def test_an_older_dump_that_is_replaced_is_no_dump_until_the_new_one_is_there(faulty, dump):
    between, url = faulty
    copied(dump, url)
    with between.ends("drop", "PUT .*/topics/", r"cannot be (written|deleted)"):
        copied(dump, url)
    with pytest.raises(SourceError, match="not a dump"):
        Dump.open(url)


@pytest.mark.parametrize("fault", ["refuse", "drop", STALL])
def test_a_dump_that_cannot_be_read(faulty, dump, fault):
    between, url = faulty
    copied(dump, url)
    with between.ends(fault, "GET .*/records/", "", url):
        Dump.open(url).n_records()


@pytest.mark.parametrize("fault", ["drop", STALL])
def test_one_lost_answer_is_requested_again(faulty, dump, fault):
    between, url = faulty
    copied(dump, url)
    between.fault, between.request, between.times = fault, "GET .*/records/", 1
    assert Dump.open(url).n_records() == 5 and len(between.hits) == 1


@pytest.mark.every
def test_remote_storage_is_retried_however_often_it_has_failed_in_this_process(faulty):
    """The AWS SDK's standard strategy has 500 tokens and takes 5 a retry; Arrow returns none."""
    between, url = faulty
    fs = file_system_of(url)
    assert fs.create("file", b"held")
    for _ in range(130):
        between.fault, between.request, between.times = "busy", "HEAD .*/file", 1
        between.hits.clear()
        assert fs.size("file") == 4 and len(between.hits) == 1

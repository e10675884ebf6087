"""Folders of tables on the command line: what a command refuses to replace, and what it says."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.cli.running import run, write_tables
from tests.pipeline import fleet
from tests.pipeline.fleet import classics
from tests.pipeline.histories import generation

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.batches import history


@pytest.fixture
def dump(tmp_path):
    return fleet.write_dump(tmp_path / "dump", classics([generation("g", 1, {"a": {"t": [0]}})]))


@pytest.fixture
def watched(tmp_path):
    """A folder as ``watch`` leaves it."""
    return write_tables({}, tmp_path / "T", query="q", state={})


@pytest.fixture
def no_spark(monkeypatch):
    """Whatever starts Spark fails: a refusal comes before it."""

    def start(**options):
        raise AssertionError(f"started Spark: {options}")

    monkeypatch.setattr("holdfast.fleet.pipeline.session.open_session", start)


@pytest.mark.usefixtures("no_spark")
def test_history_does_not_replace_what_watch_keeps(dump, watched):
    before = sorted(watched.rglob("*"))
    ended = run("history", "--input", dump, "-o", watched, width=1000)
    assert (ended.code, ended.out) == (2, "")
    assert "belongs to a stream" in ended.err and "--overwrite" in ended.err
    assert f"`holdfast watch -b HOST:PORT -o {watched}`" in ended.err
    assert sorted(watched.rglob("*")) == before


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
def test_history_does_not_write_beside_files_of_others(dump, overwrite):
    ended = run("history", "--input", dump, "-o", dump.parent, *overwrite, width=1000)
    assert ended.code == 3 and "it holds 'dump', which is not a table" in ended.err


@pytest.mark.usefixtures("no_spark")
def test_watch_does_not_go_on_with_tables_of_history(tmp_path):
    write_tables({}, tmp_path / "T", n_records=1)
    ended = run("watch", "-b", "127.0.0.1:1", "-o", tmp_path / "T", width=1000)
    assert ended.code == 3 and "contains the tables of another run" in ended.err


def test_overwrite_replaces_what_watch_has_kept(dump, watched):
    for folder in ("_state", "_latest"):
        path = watched / folder / "batch-000000000" / f"{'0' * 32}.parquet"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"")
    made = history.run(None, dump, watched, overwrite=True)
    assert made.table("generations")["group"].to_pylist() == ["g"]
    left = {path.name for path in watched.iterdir()}
    assert {"_manifest.json", "_commits", "generations"} <= left
    assert not left & {"_state", "_latest"}
    again = history.run(None, dump, watched)  # a history replaces a history, as it always did
    assert len(again.tables.batches()) == 1


def test_history_says_which_stream_writes(dump, tmp_path):
    out = tmp_path / "T"
    program = (
        "import sys; from pathlib import Path; from holdfast.fleet.tables.reading import Tables; "
        "from holdfast.fleet.tables.folder.manifest import Batch\n"
        "tables = Tables(Path(sys.argv[1]))\n"
        "with tables.writing(again_seconds=30):\n"
        "    tables.commit(Batch(id=0)); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, out], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        told = f"is being written by process {process.pid} on"
        with pytest.raises(SourceError, match=told):
            history.run(None, dump, out)
        process.communicate(b"\n")
    history.run(None, dump, out)

"""Tables in a folder and on stores: whole commits, one writer, upkeep, and what is not ours."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.cli.running import run
from tests.stores.conftest import SLOW
from tests.tables import test_one_writer
from tests.tables.test_commits import groups, written
from tests.tables.test_one_writer import begun, ids

from holdfast.errors import SourceError
from holdfast.fleet.tables.folder.commits import tidy
from holdfast.fleet.tables.folder.delta_log import entry_name
from holdfast.fleet.tables.folder.files import check_folder
from holdfast.fleet.tables.folder.maintenance import drop_before, merge
from holdfast.fleet.tables.folder.manifest import MANIFEST, Batch, read_manifest, stamp
from holdfast.fleet.tables.reading import Tables, read_tables
from holdfast.fleet.tables.storage.paths import file_system_of
from holdfast.fleet.tables.storage.remote import RemotePath

start = test_one_writer.start
"""Fixture."""
everywhere = pytest.mark.parametrize(
    "root", ["folder", pytest.param("moto", marks=pytest.mark.every), *SLOW], indirect=True
)
on_stores = pytest.mark.parametrize("root", ["moto", *SLOW], indirect=True)


def files_of_table(root, table="generations"):
    names = {name.rpartition("/")[2] for name, _ in file_system_of(root).files_below(table)}
    return {name for name in names if name.endswith("parquet")}


def test_batches_are_read_as_they_were_written(root):
    tables = Tables(root)
    assert tables.committed() == [] and stamp(root) == (0, None)
    tables.commit(written(root, 0, "a", "b"))
    seen = stamp(root)
    tables.commit(written(root, 1, "c"))
    assert stamp(root) != seen
    assert groups(root) == ["a", "b", "c"] and ids(root) == [0, 1]
    assert Tables(root).table("generations", groups=["c"]).num_rows == 1
    assert read_tables(str(root)).groups == ("a", "b", "c")
    tables.commit(written(root, 1, "d"))  # a batch that is done again stands in its own place
    assert groups(root) == ["a", "b", "d"]


@on_stores
def test_what_a_file_system_creates_it_creates_once(root):
    fs = file_system_of(root)
    assert isinstance(fs, RemotePath)
    assert fs.create("x/one", b"a") and not fs.create("x/one", b"b")
    assert fs.create("x/one", b"a")  # its own, whose answer was lost
    assert fs.read("x/one") == b"a" and fs.names("x") == ["one"]


@pytest.mark.parametrize(
    "root", ["folder", "moto", pytest.param("hdfs", marks=pytest.mark.slow)], indirect=True
)
def test_of_many_that_create_at_once_one_succeeds(root):
    """s3s-fs looks first and writes then, so several may succeed there: docs/stores.md says so."""
    made, fs = [], file_system_of(root)
    work = [
        threading.Thread(target=lambda n=n: made.append(fs.create("x/two", b"%d" % n)))
        for n in range(8)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert made.count(True) == 1


@everywhere
def test_checkpoints_sweeps_and_merged_files(root):
    tables = Tables(root)
    with tables.writing():
        for batch in range(3):
            tables.commit(written(root, batch, f"g{batch}"))
        lost = written(root, 9, "nobody")  # of a task that died
        before = files_of_table(root)
        done = merge(tables.folder, everything=True)
        assert done.merged == 3 and done.written == 1
        dropped = drop_before(tables.folder, 2**60).dropped
        assert dropped == {} and groups(root) == ["g0", "g1", "g2"]  # what stands is kept
        tidy(tables.folder.known, tables.manifest(), 2**62, 2**50)
    left = files_of_table(root)
    assert {Path(name).name for name, _ in lost.files["generations"]}.isdisjoint(left)
    assert len(before) == 4 and len(before - left) == 1  # a reader may still have the other three


def test_a_reader_beside_a_writer_sees_a_batch_whole(root):
    """Two tables are changed by each batch; whoever reads finds both of one batch."""
    seen, over = [], threading.Event()

    def read():
        while not over.is_set():
            held = Tables(root).committed()
            if held:
                rows = read_tables(str(root))
                seen.append((rows.stored("generations").num_rows, rows.newest_notes()))

    tables = Tables(root)
    tables.commit(written(root, 0, "a"))
    reader = threading.Thread(target=read)
    reader.start()
    for batch in range(1, 4):
        found = written(root, batch, *[f"{batch}-{n}" for n in range(batch)])
        tables.commit(Batch(id=batch, files=found.files, notes={"n": batch}))
    over.set()
    reader.join()
    whole = {1, 2, 4, 7}
    assert seen and {rows for rows, _ in seen} <= whole


def test_a_file_that_is_replaced_is_never_empty(root):
    fs, texts, over = file_system_of(root), {b"a" * 100, b"b" * 100}, threading.Event()
    fs.replace("kept", min(texts))

    def write():
        for _ in range(40):
            for text in sorted(texts):
                fs.replace("kept", text)
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = {fs.read("kept")}
    while not over.is_set():
        seen.add(fs.read("kept"))
    writer.join()
    assert seen <= texts


def test_two_processes_that_commit_at_once_lose_nothing(root, start):
    both = [start("add", root, 0, 1), start("add", root, 10, 11)]
    assert [process.communicate()[0].splitlines()[-1] for process in both] == ["committed"] * 2
    assert ids(root) == [0, 1, 10, 11]


@everywhere
def test_a_second_stream_learns_who_writes_and_a_dead_one_holds_nothing(root, start):
    process = begun(start, "stream", root, 0)
    told = f"is being written by process {process.pid} on"
    with pytest.raises(SourceError, match=told) as raised:
        Tables(root).commit(written(root, 7, "late"))
    assert "\n" not in str(raised.value)
    assert read_manifest(root).writer.pid == process.pid
    process.send_signal(signal.SIGKILL)
    process.wait()
    Tables(root).commit(written(root, 1, "next"))
    assert groups(root) == ["next"]


@everywhere
def test_a_second_writer_is_refused_at_its_first_commit_and_learns_who_has_written(root, start):
    process = begun(start, "hold", root, 0)
    Tables(root).commit(written(root, 1, "first"))
    said = process.communicate("go\n")[0]
    assert "another process has committed since this one began" in said
    assert f"process {os.getpid()} on {socket.gethostname()} (last commit 2" in said
    assert groups(root) == ["first"] and ids(root) == [1]


@pytest.mark.parametrize("at", ["entry", pytest.param("manifest", marks=pytest.mark.slow)])
def test_a_writer_that_is_killed_in_the_middle_of_a_commit(root, start, at):
    Tables(root).commit(written(root, 0, "a"))
    process = start("die", root, 1, at)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    counts = ["a"] if at == "entry" else ["a", "dead"]
    assert groups(root) == counts  # a batch is there whole or not at all
    Tables(root).commit(written(root, 1, "again"))
    assert groups(root) == ["a", "again"] and ids(root) == [0, 1]


@everywhere
def test_a_writer_that_another_one_has_overtaken(root):
    tables = Tables(root)
    tables.commit(written(root, 0, "a"))
    before = tables.manifest()
    tables.commit(written(root, 1, "b"), made_from=before)
    with pytest.raises(SourceError, match="another process has committed since") as raised:
        tables.commit(written(root, 2, "c"), made_from=before)
    assert "\n" not in str(raised.value) and groups(root) == ["a", "b"]


@on_stores
def test_storage_that_writes_over_what_is_there_is_refused(root, monkeypatch):
    monkeypatch.setattr(RemotePath, "create", lambda self, n, d: not self.replace(n, d))
    with pytest.raises(SourceError, match="overwrites an existing file"):
        Tables(root).commit(Batch(id=0))


def entry_of(root, **changed):
    """Change what the first entry of a table says."""
    place = root / entry_name("generations", 0)
    lines = [json.loads(line) for line in file_system_of(place).read("").splitlines()]
    for line in lines:
        for name in changed.keys() & line.keys():
            line[name] |= changed[name]
    file_system_of(place).write("\n".join(map(json.dumps, lines)).encode())


NEWER = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}


@everywhere
def test_a_table_of_a_newer_version(root):
    Tables(root).commit(written(root, 0, "a"))
    entry_of(root, protocol=NEWER)
    ended = run("doctor", "--input", str(root), width=1000)
    assert ended.code == 3 and ended.err.count("\n") == 1
    assert "needs version 3 of Delta's readers and 7 of its writers" in ended.err
    with pytest.raises(SourceError, match="a newer program wrote it"):
        Tables(root).commit(written(root, 1, "b"))
    entry_of(root, protocol={"minReaderVersion": 1, "minWriterVersion": 2})
    Tables(root).commit(written(root, 1, "b"))
    assert groups(root) == ["a", "b"]


@everywhere
def test_tables_of_a_newer_holdfast(root):
    Tables(root).commit(written(root, 0, "a"))
    for name in (MANIFEST, "_commits/000000001.json"):
        text = file_system_of(root).read(name)
        file_system_of(root / name).write(
            text.replace(b'"schema_version": 1', b'"schema_version": 9')
        )
    with pytest.raises(SourceError, match="schema_version 9") as raised:
        Tables(root).commit(written(root, 1, "b"))
    assert "\n" not in str(raised.value)


@everywhere
def test_a_foreign_delta_table(root):
    file_system_of(root / "_delta_log" / f"{0:020d}.json").write(b"{}\n")
    with pytest.raises(SourceError, match="it is a Delta table; name an empty or a new folder"):
        check_folder(root)
    with pytest.raises(SourceError, match="no tables here"):
        read_tables(str(root))
    other = root.parent / "other"
    Tables(other).commit(written(other, 0, "a"))
    entry_of(other, metaData={"configuration": {}})
    with pytest.raises(SourceError, match="a Delta table that holdfast did not write"):
        read_tables(str(other))
    letters = root.parent / "letters"
    file_system_of(letters / "mine").write(b"x")
    with pytest.raises(SourceError, match="it holds 'mine', which is not a table"):
        Tables(letters).commit(Batch(id=0))


@pytest.mark.slow
def test_commands_on_tables_of_remote_storage(root, tmp_path):
    Tables(root).commit(written(root, 0, "a"))
    Tables(root).commit(written(root, 1, "b"))
    for words in (
        ("doctor", "--input"),
        ("history", "--table", "generations", "--format", "csv", "--input"),
        ("tables", "compact"),
        ("lag", "--input"),
        ("report", "-o", str(tmp_path / "r.html"), "--input"),
    ):
        ended = run(*words, str(root), width=1000)
        assert ended.code in (0, 1), (words, ended.err)
    assert len(files_of_table(root)) >= 1
    (file,) = Tables(root).files("generations")
    assert pq.read_table(file_system_of(file).readable()).num_rows == 2
    ended = run("doctor", "--input", f"{root.parent}/none", width=1000)
    assert ended.code == 3 and ended.err.count("\n") == 1 and "no such folder" in ended.err

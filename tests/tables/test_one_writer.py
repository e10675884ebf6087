"""Writers of one folder: two at once, killed, stopped, late, of this machine and of others."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.suites import further, long
from tests.tables.test_snapshot import two_tables

from holdfast.errors import SourceError
from holdfast.fleet.tables.folder import commits, manifest
from holdfast.fleet.tables.folder.manifest import (
    Batch,
    LastWriter,
    parsed_writer,
    read_manifest,
    refuse_second,
    this_process,
)
from holdfast.fleet.tables.reading import Tables

SCRIPT = Path(__file__).with_name("writer_process.py")
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


@pytest.fixture
def start():
    """Start a process of writer_process.py; whatever still runs at the end is killed."""
    started = []

    def run(*arguments):
        command = [sys.executable, str(SCRIPT), *map(str, arguments)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def begun(start, mode, root, batch):
    process = start(mode, root, batch)
    assert process.stdout.readline() in ("held\n", "committed\n")
    return process


def ids(root):
    return [batch.id for batch in Tables(root).committed()]


def begin(root):
    with Tables(root).writing():
        pass


# Two that write


def test_a_stream_that_lives_is_named_to_who_begins(tmp_path, start):
    process = begun(start, "stream", tmp_path, 0)
    told = f"is being written by process {process.pid} on {socket.gethostname()}"
    with pytest.raises(SourceError, match=told):
        begin(tmp_path)
    with pytest.raises(SourceError, match=told):
        Tables(tmp_path).commit(Batch(id=7))
    assert start("hold", tmp_path, 1).stdout.readline().startswith(f"{tmp_path} is being written")
    process.communicate("end\n")
    Tables(tmp_path).commit(Batch(id=7))
    assert ids(tmp_path) == [0, 7]


def test_a_stream_says_that_it_has_ended_though_it_failed(tmp_path):
    tables = Tables(tmp_path)
    with pytest.raises(SourceError, match="the cluster is gone"), tables.writing(again_seconds=30):
        tables.commit(Batch(id=0))
        assert read_manifest(tmp_path).writer.again_seconds == 30
        raise SourceError("the cluster is gone")
    found = read_manifest(tmp_path)
    assert (found.version, found.writer.again_seconds) == (2, None) and ids(tmp_path) == [0]


def test_a_stream_that_was_overtaken_does_not_speak_for_the_other_one(tmp_path):
    first, second = Tables(tmp_path), Tables(tmp_path)
    with first.writing(again_seconds=30):
        first.commit(Batch(id=0))
        with second.writing(again_seconds=40):
            second.commit(Batch(id=1))
            with pytest.raises(SourceError, match="another process has committed since"):
                first.commit(Batch(id=2), made_from=replace(read_manifest(tmp_path), version=1))
            assert read_manifest(tmp_path).writer.again_seconds == 40
    assert ids(tmp_path) == [0, 1]


def test_a_stopped_process_that_wakes_up_late_commits_nothing(tmp_path, start):
    Tables(tmp_path).commit(Batch(id=0))
    process = begun(start, "hold", tmp_path, 1)
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    Tables(tmp_path).commit(Batch(id=2))
    process.stdin.write("go\n")
    process.send_signal(signal.SIGCONT)
    assert "another process has committed since" in process.stdout.readline()
    Tables(tmp_path).commit(Batch(id=3))
    assert ids(tmp_path) == [0, 2, 3]


def test_what_fails_because_another_one_has_committed_says_so(tmp_path):
    """Its files may be gone by then, which would be the error otherwise."""
    told = "another process has committed since"
    with pytest.raises(SourceError, match=told) as raised, Tables(tmp_path).writing():
        Tables(tmp_path).commit(Batch(id=0))
        raise FileNotFoundError("_positions/batch-000000000")
    assert isinstance(raised.value.__cause__, FileNotFoundError)
    with pytest.raises(FileNotFoundError), Tables(tmp_path).writing():
        raise FileNotFoundError("of this process alone")


@pytest.mark.parametrize(
    "kind",
    [*further(["next", "merge", "replacing"]), *long(["first"], quick=0)],
)
def test_a_writer_that_is_killed_before_any_operation_on_a_file(tmp_path, start, kind):
    """A change is there in all tables or in none, and the next writer goes on at once."""
    said = start("die_anywhere", tmp_path, kind).communicate()[0].splitlines()
    assert said[-1] == "committed", said
    assert int(said[-2]) > 20


def test_where_there_are_no_links_a_rename_stands_in(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "not here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    tables, before = Tables(tmp_path), read_manifest(tmp_path)
    tables.commit(two_tables(tmp_path, 0), made_from=before)
    with pytest.raises(SourceError, match="another process has committed since"):
        Tables(tmp_path).commit(Batch(id=2), made_from=before)
    assert ids(tmp_path) == [0]


# Who is said to go on


def far(**changed):
    about = {"host": "far", "pid": 77, "began": "5", "at": NOW.isoformat(), "again_seconds": 30.0}
    return LastWriter(**{**about, **changed})


def goes_on(last, *, after=timedelta(0)):
    """What who begins is told; "" where it may."""
    own = replace(this_process(), at=(NOW + after).isoformat())
    try:
        refuse_second(Path("T"), last, own)
    except SourceError as error:
        return str(error)
    return ""


def test_a_stream_of_another_machine_has_died_when_it_is_silent():
    told = goes_on(far(), after=timedelta(seconds=20))
    assert told.startswith("T is being written by process 77 on far (last commit 2026-11-26T12:00")
    assert told.endswith("; if it has died, start again in 100 s")
    assert goes_on(far(), after=timedelta(seconds=119))
    assert not goes_on(far(), after=timedelta(seconds=121))
    assert goes_on(far(again_seconds=0.0), after=timedelta(seconds=59))
    assert not goes_on(far(again_seconds=0.0), after=timedelta(seconds=61))


@pytest.mark.parametrize("again", ["1e999", "-1", "true", '"30"', "1e19"])
def test_a_writer_says_how_soon_it_commits_again(again):
    text = f'{{"host": "far", "pid": 7, "began": "5", "at": "", "again_seconds": {again}}}'
    with pytest.raises(ValueError, match="expected seconds"):
        parsed_writer(json.loads(text))
    assert parsed_writer(json.loads(text.replace(again, "30"))).again_seconds == 30.0


@pytest.mark.parametrize(
    "last",
    [None, far(again_seconds=None), far(at="yesterday"), far(at="2026-11-26T12:00:00")],
)
def test_who_says_nothing_of_going_on_holds_nothing(last):
    assert not goes_on(last)


def test_a_clock_that_is_far_ahead_holds_nothing():
    assert goes_on(far(), after=-timedelta(seconds=60))
    assert not goes_on(far(), after=-timedelta(hours=1))


def here(**changed):
    return replace(this_process(), at="long ago", again_seconds=30.0, **changed)


def test_a_process_of_this_machine_lives_or_it_does_not():
    parent = os.getppid()
    began = manifest._began(parent)
    assert began and f"process {parent} on" in goes_on(here(pid=parent, began=began))
    assert not goes_on(here(pid=parent, began="1"))  # its number was used again
    assert not goes_on(here())  # this process itself
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        child.wait()
        assert not goes_on(here(pid=child.pid, began="1"))


def test_a_process_that_is_dead_and_not_yet_buried_does_not_live():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        began = manifest._began(child.pid)
        assert goes_on(here(pid=child.pid, began=began))
        child.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not goes_on(here(pid=child.pid, began=began))


@pytest.mark.parametrize(
    ("error", "lives"),
    [(None, True), (PermissionError, True), (ProcessLookupError, False), (OverflowError, False)],
)
def test_a_system_that_does_not_report_when_a_process_began(tmp_path, monkeypatch, error, lives):
    def kill(pid, number):
        assert (pid, number) == (77, 0)
        if error is not None:
            raise error

    monkeypatch.setattr(manifest, "_PROCESSES", tmp_path)
    monkeypatch.setattr(os, "kill", kill)
    assert this_process().began == ""
    assert bool(goes_on(here(pid=77))) is lives


@pytest.mark.parametrize("entry", ["3", "null", '{"host": "h"}', '{"host": 1, "pid": "x"}'])
def test_a_manifest_whose_writer_cannot_be_read_is_refused(tmp_path, entry):
    Tables(tmp_path).commit(Batch(id=0))
    for path in (tmp_path / "_manifest.json", tmp_path / "_commits" / "000000001.json"):
        text = path.read_text()
        begin, end = text.index('"writer": ') + 10, text.index(',\n "folder"')
        path.write_text(text[:begin] + entry + text[end:])
    with pytest.raises(SourceError, match="not a manifest"):
        read_manifest(tmp_path)


def test_the_first_commit_of_a_process_looks_through_all_folders(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(commits, "tidy", lambda *_, is_whole: looks.append(is_whole))
    for _ in range(2):
        tables = Tables(tmp_path)
        tables.commit(Batch(id=0))
        tables.commit(Batch(id=1))
    assert looks == [True, True]

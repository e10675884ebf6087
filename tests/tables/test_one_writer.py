"""One writer of a folder, among processes that are stopped, killed, late, or there all at once."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.errors import SourceError
from holdfast.tables.lease import COMMITS, LEASE_SECONDS, one_writer, writer_of
from holdfast.tables.manifest import Batch
from holdfast.tables.reading import Tables
from holdfast.tables.store import FolderStore

SCRIPT = Path(__file__).with_name("writer_process.py")


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


def holder(start, root, batch):
    process = start("hold", root, batch)
    assert process.stdout.readline() == "held\n"
    return process


def ids(root):
    return [batch.id for batch in Tables(root).committed()]


def no_wait(seconds):
    raise AssertionError(f"waited {seconds} s")


def test_a_second_writer_hears_who_writes(tmp_path, start):
    process = holder(start, tmp_path, 0)
    told = f"process {process.pid} on {socket.gethostname()}"
    with pytest.raises(SourceError, match=told), Tables(tmp_path).writing():
        pass
    with pytest.raises(SourceError, match=told):
        Tables(tmp_path).commit(Batch(id=7, files={}))
    assert start("hold", tmp_path, 1).stdout.readline().startswith(f"{tmp_path} is being written")
    assert process.communicate("go\n")[0] == "committed\n"
    assert ids(tmp_path) == [0]
    Tables(tmp_path).commit(Batch(id=7, files={}))
    assert ids(tmp_path) == [0, 7]


def test_the_lease_of_a_killed_process_is_free_at_once(tmp_path, start):
    process = holder(start, tmp_path, 0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with one_writer(FolderStore(tmp_path), tmp_path, sleep=no_wait) as writer:
        assert writer.token == 2
        assert writer_of(FolderStore(tmp_path)).pid == os.getpid()
    assert writer_of(FolderStore(tmp_path)) is None


def test_a_stopped_process_that_wakes_up_late_commits_nothing(tmp_path, start):
    Tables(tmp_path).commit(Batch(id=0, files={}))
    process = holder(start, tmp_path, 1)
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    store = FolderStore(tmp_path)
    with one_writer(store, tmp_path, lease_seconds=0.2) as writer:
        Tables(tmp_path).commit(Batch(id=2, files={}), writer=writer)
        process.stdin.write("go\n")
        process.send_signal(signal.SIGCONT)
        said = process.stdout.readline()
    assert "has taken this folder over" in said and f"process {os.getpid()} on" in said
    assert ids(tmp_path) == [0, 2]
    Tables(tmp_path).commit(Batch(id=3, files={}))
    assert ids(tmp_path) == [0, 2, 3]


def test_two_processes_that_commit_at_once_lose_nothing(tmp_path, start):
    both = [start("add", tmp_path, 0, 9), start("add", tmp_path, 10, 19)]
    assert [process.communicate()[0].splitlines()[-1] for process in both] == ["committed"] * 2
    assert ids(tmp_path) == list(range(20))


class Elsewhere:
    """A writer on another machine, and the time that our waits take."""

    def __init__(self, root, *, beats):
        self.root, self.beats, self.now = root, beats, 0.0
        record = {"owner": "o", "host": "far", "pid": 77, "place": "boot:1", "since": "then"}
        self.path = root / COMMITS / "writer-000000004.json"
        self.path.parent.mkdir(parents=True)
        self.path.write_text(json.dumps(record | {"token": 4, "ended": False}))

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        if self.beats and self.now > 1:
            os.utime(self.path, (self.now, self.now))


def test_a_silent_writer_of_another_machine_is_gone_after_the_lease(tmp_path):
    there = Elsewhere(tmp_path, beats=False)
    store = FolderStore(tmp_path)
    with one_writer(store, tmp_path, clock=there.clock, sleep=there.sleep) as writer:
        assert writer.token == 5
    assert LEASE_SECONDS <= there.now < LEASE_SECONDS + 1


def test_a_writer_of_another_machine_that_beats_stays(tmp_path):
    there = Elsewhere(tmp_path, beats=True)
    waiting = one_writer(FolderStore(tmp_path), "T", clock=there.clock, sleep=there.sleep)
    with pytest.raises(SourceError, match=r"T is being written by process 77 on far"), waiting:
        pass
    assert there.now < 3


def test_a_lease_that_cannot_be_read_ends_by_time_too(tmp_path):
    there = Elsewhere(tmp_path, beats=False)
    there.path.write_text("{")
    store = FolderStore(tmp_path)
    with one_writer(store, tmp_path, clock=there.clock, sleep=there.sleep) as writer:
        assert writer.token == 5


class Blinks(FolderStore):
    """A store that shows nothing of a lease every other time, as one that is busy may."""

    looks = 0

    def read(self, name):
        self.looks += 1
        return super().read(name) if self.looks % 2 == self.seen else None

    seen = 0


@pytest.mark.parametrize("seen", [0, 1])
def test_a_lease_that_is_not_seen_once_is_not_gone(tmp_path, seen):
    there = Elsewhere(tmp_path, beats=True)
    store = Blinks(tmp_path)
    store.seen = seen
    waiting = one_writer(store, "T", clock=there.clock, sleep=there.sleep)
    with pytest.raises(SourceError, match=r"T is being written by process 77 on far"), waiting:
        pass


@pytest.mark.parametrize("error", [OSError, SourceError])
def test_beats_go_on_after_one_that_failed(tmp_path, monkeypatch, error):
    """A store may refuse once, in our words; a disk, in its own."""
    beats, third = [], threading.Event()

    class Failing:
        def beat(self):
            beats.append(1)
            if len(beats) == 1:
                raise error("busy")
            third.set() if len(beats) == 3 else None

        def let_go(self):
            pass

    store = FolderStore(tmp_path)
    monkeypatch.setattr(store, "take", lambda name, data: store.create(name, data) and Failing())
    with one_writer(store, tmp_path, beat_seconds=0.001):
        assert third.wait(30)


@pytest.mark.parametrize("missing", ["locks", "links"])
def test_a_file_system_without(tmp_path, monkeypatch, missing):
    """Without locks a dead writer is gone after the lease; without links a rename stands in."""

    def refuse(*_):
        raise OSError({"locks": errno.ENOLCK, "links": errno.EPERM}[missing], "not here")

    owner = (fcntl, "flock") if missing == "locks" else (Path, "hardlink_to")
    monkeypatch.setattr(*owner, refuse)
    now, store = [0.0], FolderStore(tmp_path)
    with one_writer(store, tmp_path, beat_seconds=3600) as first:
        Tables(tmp_path).commit(Batch(id=0, files={}), writer=first)
        times = {"clock": lambda: now[0], "sleep": lambda s: now.__setitem__(0, now[0] + s)}
        with one_writer(store, tmp_path, lease_seconds=0.1, **times) as second:
            Tables(tmp_path).commit(Batch(id=1, files={}), writer=second)
            with pytest.raises(SourceError, match="taken this folder over"):
                Tables(tmp_path).commit(Batch(id=2, files={}), writer=first)
    assert (ids(tmp_path), now[0] >= 0.1) == ([0, 1], True)


def test_a_writer_that_has_ended_commits_nothing(tmp_path):
    with Tables(tmp_path).writing() as writer:
        pass
    with pytest.raises(SourceError, match="has ended its writing"):
        Tables(tmp_path).commit(Batch(id=0, files={}), writer=writer)
    assert ids(tmp_path) == []

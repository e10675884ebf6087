"""The keeper of ``serve``: what its process says stands on the pages, and its end ends nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.running import write_tables
from tests.live.waiting import until
from tests.report.fleet import tables
from tests.report.served import PATIENCE_S, bounced, is_examined
from werkzeug.test import Client

from holdfast.cli import updater as module
from holdfast.cli.commands.serve import own_tables, state_folder
from holdfast.cli.options import WatchOptions
from holdfast.cli.updater import Updater, UpdaterMessage, WatchTask
from holdfast.cluster.cluster import LiveCluster
from holdfast.errors import ConfigError, SourceError
from holdfast.fleet.report.serving.application import ServedPages
from holdfast.fleet.report.serving.index_page import updater_text
from holdfast.fleet.report.serving.served_fleet import ServedFleet, UpdaterState
from holdfast.fleet.tables.columns.stored import LAG as LAG_TABLE

LOCAL = {"Host": "localhost"}
SAYING = """
import sys, time
from multiprocessing.connection import Connection
from holdfast.cli.updater import UpdaterMessage
pipe = Connection(int(sys.argv[1]))
task, quiet = pipe.recv()
"""
TASK = WatchTask(bootstrap="127.0.0.1:1", output=Path("tables"), every_seconds=1.0)


@contextmanager
def updated_by(program: str) -> Iterator[Updater]:
    """A keeper whose process runs a program of the test."""
    updater = Updater(TASK, print, command=(sys.executable, "-c", program))
    updater.start()
    try:
        yield updater
    finally:
        updater.close()


@contextmanager
def started(fleet: ServedFleet, *closes: Updater) -> Iterator[None]:
    """A fleet that is followed, until the end of the block."""
    fleet.start()
    try:
        yield
    finally:
        for one in (fleet, *closes):
            one.close()


def test_what_the_process_does_is_what_pages_say() -> None:
    with updated_by(
        SAYING + "pipe.send(UpdaterMessage(doing=f'first read of {task.bootstrap}'))\npipe.recv()\n"
    ) as updater:
        until(
            lambda: updater.updater_state == UpdaterState(doing="first read of 127.0.0.1:1"),
            "its words",
        )


def test_trouble_stands_since_it_began_until_the_cluster_was_read() -> None:
    def noted(updater: Updater, *words: UpdaterMessage) -> UpdaterState:
        for word in words:
            updater._note(word)
        return updater.updater_state

    said: list[str] = []
    updater = Updater(TASK, said.append)
    before_ms = time.time_ns() // 1_000_000
    first = noted(updater, UpdaterMessage(has_read=True), UpdaterMessage(trouble="nobody listens"))
    assert before_ms <= first.since_ms <= time.time_ns() // 1_000_000
    assert updater_text(first).endswith(" UTC: nobody listens")
    later = noted(updater, UpdaterMessage(doing="reading"), UpdaterMessage(trouble="no Java"))
    assert (later.trouble, later.since_ms) == ("no Java", first.since_ms)
    assert noted(updater, UpdaterMessage(trouble="no Java")) == later
    assert said == [
        "the tables are not updated at the moment: nobody listens",
        "the tables are not updated at the moment: no Java",
    ]
    assert noted(updater, UpdaterMessage(has_read=True)) == UpdaterState()


@pytest.mark.parametrize(
    ("program", "trouble"),
    [
        ("pipe.send(UpdaterMessage(trouble='no Java'))\n", "no Java"),
        ("import os; os.kill(os.getpid(), 9)\n", "the updater process has ended"),
    ],
)
def test_a_process_that_ends_is_followed_by_another(
    program: str, trouble: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.05)
    there = tmp_path / "there"
    again = f"""
from pathlib import Path
if Path({str(there)!r}).exists():
    pipe.send(UpdaterMessage(has_read=True))
    pipe.recv()
"""
    with updated_by(SAYING + again + program) as updater:
        until(
            lambda: updater.updater_state.trouble == trouble,
            lambda: f"{trouble}: {updater.updater_state}",
        )
        there.touch()
        until(
            lambda: updater.updater_state == UpdaterState(),
            lambda: f"no trouble: {updater.updater_state}",
        )


def test_the_process_ends_with_its_updater() -> None:
    updater = Updater(TASK, print, command=(sys.executable, "-c", SAYING + "pipe.recv()\n"))
    updater.start()
    until(lambda: updater._process is not None, "a process")
    updater.close()
    assert updater._process is not None and updater._process.poll() is not None
    assert not updater._thread.is_alive()
    assert updater.updater_state.trouble == ""


FAILING = """
from holdfast.cli import updater
from holdfast.errors import JavaError
def fail(*told, **more):
    {what}
updater.follow_cluster = fail
updater.main()
"""


@pytest.mark.parametrize(
    ("what", "trouble"),
    [
        ("raise JavaError('no usable Java')", "no usable Java"),
        (
            "raise ModuleNotFoundError(name='pyspark')",
            "pyspark is not installed: pip install 'kafka-holdfast[spark]'",
        ),
        ("raise ValueError('odd')", "a bug in holdfast: ValueError: odd"),
    ],
)
def test_why_spark_cannot_start_is_reported(what: str, trouble: str) -> None:
    with updated_by(FAILING.format(what=what)) as updater:
        until(
            lambda: trouble in updater.updater_state.trouble,
            lambda: f"{trouble}: {updater.updater_state}",
        )


OWNER = """
import sys, time
from pathlib import Path
from holdfast.cli import updater
task = updater.WatchTask(bootstrap="127.0.0.1:1", output=Path("tables"))
program = '''
import sys, time
from holdfast.cli import updater
def busy(*told, **more):
    print("begun", flush=True)
    time.sleep(600)
updater.follow_cluster = busy
updater.main()
'''
updater.Updater(task, print, command=(sys.executable, "-c", program)).start()
time.sleep(600)
"""


def test_a_server_that_was_killed_leaves_no_updater() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    with owner:
        assert owner.stdout.readline() == b"begun\n"
        os.kill(owner.pid, signal.SIGKILL)
        # The pipe has no writer any more once the keeper is gone, too.
        ended = threading.Thread(target=owner.stdout.read)
        ended.start()
        ended.join(PATIENCE_S)
        assert not ended.is_alive()


def test_pages_are_there_before_the_first_batch_and_show_it_once_it_is_committed(
    tmp_path: Path,
) -> None:
    watch_options, now = tmp_path / "kept", [UpdaterState(doing="first read: 0 of 9 records")]
    fleet = ServedFleet(watch_options, print, lambda: now[0])
    with started(fleet):
        client = Client(ServedPages(fleet, is_local=True))
        page = client.get("/", headers=LOCAL)
        assert page.status_code == 200
        assert "first read: 0 of 9 records" in page.text
        assert "Groups appear here after" in page.text
        assert client.get("/ready", headers=LOCAL).status_code == 503
        assert client.get("/metrics", headers=LOCAL).status_code == 503
        assert client.get("/health", headers=LOCAL).status_code == 200

        write_tables(tables(bounced("etl")), watch_options)
        assert fleet.wait(lambda s: s.n_groups == 1 and is_examined(s), PATIENCE_S)
        now[0] = UpdaterState(trouble="nobody listens", since_ms=0)
        assert client.get("/ready", headers=LOCAL).status_code == 200
        for path in ("/", "/group?name=etl"):
            text = client.get(path, headers=LOCAL).text
            assert "nothing new since 1970-01-01 00:00:00 UTC: nobody listens" in text
        task = client.get("/state", headers=LOCAL).json
        assert task["troubled"] and task["updater"].endswith("UTC: nobody listens")


LAG = {
    **dict.fromkeys(LAG_TABLE.flat_names),
    "group": "etl",
    "topic": "orders",
    "partition": 0,
    "current_offset": 3,
    "log_start_offset": 0,
    "log_end_offset": 10,
    "lag": 7,
    "status": "committed",
    "clamped": "none",
    "is_idle": False,
}
"""A row of the table ``lag`` as a coordinator answers."""


def test_pages_show_lags_of_coordinators_until_the_first_batch_is_committed(tmp_path: Path) -> None:
    watch_options = tmp_path / "kept"
    fleet = ServedFleet(watch_options, print, UpdaterState, lambda: [LAG])
    client = Client(ServedPages(fleet, is_local=True))
    empty = client.get("/state", headers=LOCAL).json["version"]
    with started(fleet):
        assert fleet.wait(lambda state: state.n_groups == 1, PATIENCE_S)
        page = client.get("/", headers=LOCAL).text
        assert ">etl</bdi>" in page and '<td class="n">7<' in page
        assert "UTC (from coordinators)" in page
        assert page.count('<td class="n">–') == 4  # members, time lag, rebalances, downtime
        assert "orders" in client.get("/group?name=etl", headers=LOCAL).text
        assert client.get("/ready", headers=LOCAL).status_code == 503
        asked = client.get("/state", headers=LOCAL).json["version"]

        write_tables(tables(bounced("etl")), watch_options)
        assert fleet.wait(is_examined, PATIENCE_S)
        assert "UTC (from coordinators)" not in client.get("/", headers=LOCAL).text
        assert len({empty, asked, client.get("/state", headers=LOCAL).json["version"]}) == 3


@pytest.mark.parametrize("many", [False, True])
def test_pages_wait_for_the_first_batch_where_coordinators_report_nothing(
    tmp_path: Path, many: bool
) -> None:
    said: list[str] = []
    asked = threading.Event()

    def query_lag() -> None:
        asked.set()
        if not many:
            raise SourceError("nobody listens")

    fleet = ServedFleet(tmp_path / "kept", said.append, UpdaterState, query_lag)
    with started(fleet):
        assert asked.wait(PATIENCE_S)
        while not many and not said:
            time.sleep(0.01)
        page = Client(ServedPages(fleet, is_local=True)).get("/", headers=LOCAL).text
        assert "Groups appear here after" in page
        assert said == (
            [] if many else ["the groups are shown once they were read: nobody listens"]
        )


def test_pages_go_on_where_the_cluster_does_not_answer(tmp_path: Path) -> None:
    write_tables(tables(bounced("etl")), tmp_path / "kept", query="q", offsets={"0": 9})
    task = replace(TASK, output=tmp_path / "kept", watch_options=WatchOptions(timeout="1s"))
    fleet, updater = own_tables(task, has_answered=False, quiet=True)
    with started(fleet, updater):
        client = Client(ServedPages(fleet, is_local=True))
        until(lambda: client.get("/state", headers=LOCAL).json["troubled"], "trouble")
        page = client.get("/", headers=LOCAL).text
        assert "nothing new since 2" in page
        assert "127.0.0.1:1" in page
        assert "etl" in page


@pytest.mark.parametrize(
    ("cluster_id", "named", "folder"),
    [
        ("4L6g3nShT-eMCtK--X86sw", "{home}/xdg", "{home}/xdg/holdfast/4L6g3nShT-eMCtK--X86sw"),
        ("abc_1", "", "{home}/.local/state/holdfast/abc_1"),
        ("abc_1", "relative", "{home}/.local/state/holdfast/abc_1"),
        ("../up", "", None),
        ("", "", None),
    ],
)
def test_the_folder_of_a_cluster_is_named_after_its_id(
    cluster_id: str,
    named: str,
    folder: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(LiveCluster, "check", lambda self: None)
    monkeypatch.setattr(LiveCluster, "cluster_id", lambda self: cluster_id)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", named.format(home=tmp_path))
    if folder is None:
        with pytest.raises(ConfigError, match="give a folder"):
            state_folder("127.0.0.1:1", WatchOptions(timeout="1s"))
    else:
        assert str(state_folder("127.0.0.1:1", WatchOptions(timeout="1s"))) == folder.format(
            home=tmp_path
        )

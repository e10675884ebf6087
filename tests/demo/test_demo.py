"""The main job end to end, small: bounces on a real broker, tables, and a page in a browser."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.cli.running import run as run_here
from tests.cli.running import run_python

MEMBERS, PARTITIONS = 2, 4
MARK = "STARTED_BY_TEST"
PROTOCOLS = {"simple": "cooperative-sticky", "deferred": "holdfast-deferred"}


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A demo with stdout and stderr in files; killed if the test leaves it running."""
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        run = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "demo", *arguments],
            stdout=out,
            stderr=err,
            env={**os.environ, MARK: str(folder)},
        )
    try:
        yield run
    finally:
        run.kill()
        run.wait()


def await_words(run: subprocess.Popen[bytes], file: Path, words: str, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    while words not in (said := file.read_text()):
        assert run.poll() is None, said
        assert time.monotonic() < deadline, said
        time.sleep(0.1)
    return said


def processes_of(folder: Path) -> list[str]:
    """Command lines of what the demo of this folder has started: they inherit its mark."""
    found = []
    mark = f"{MARK}={folder}".encode()
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (one / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            marks = (one / "environ").read_bytes().split(b"\0")
            if mark in marks and "holdfast demo" not in command:
                found.append(command)
    return found


@pytest.mark.parametrize("fmt", ["table", "json"])
def test_a_kept_broker_says_where_it_is_even_when_quiet(monkeypatch, fmt):
    """The address is a result: it goes to stdout."""
    replace_run(monkeypatch)
    kept = run_here("demo", "--keep", "-q", "--format", fmt)
    assert (kept.code, kept.err) == (0, "")
    assert "127.0.0.1:9" in kept.out
    assert "127.0.0.1:9" not in run_here("demo", "-q", "--format", fmt).out


def test_what_each_policy_cost_stands_side_by_side(monkeypatch):
    replace_run(monkeypatch)
    said = run_here("demo", "-q").out
    rows = {
        cells[0].strip(): [cell.strip() for cell in cells[1:]]
        for line in said.splitlines()
        if len(cells := line.replace("┃", "│").strip("│").split("│")) == 3
    }
    assert rows["by the members' event logs"] == ["simple", "deferred"]
    assert rows["moves of a partition"] == ["24", "0"]
    assert rows["downtime, partition-seconds"] == ["0.8", "2.5"]
    assert rows["longest downtime of a partition, seconds"] == ["0.5", "2.5"]
    assert rows["unread"] == ["0", "0"]
    assert rows["read twice"] == ["7", "0"]


def replace_run(monkeypatch) -> None:
    """Have the command print a result that no broker was started for."""
    from holdfast.cli.demo import run as demo_run
    from holdfast.cli.demo.event_log import Account

    def cost(n_moves, unowned, read_twice):
        account = Account(produced=1, read=1, read_twice=read_twice)
        return demo_run.Cost(account=account, n_moves=n_moves, unowned=unowned)

    result = demo_run.DemoResult(
        costs={"simple": cost(24, (0.3, 0.5), 7), "deferred": cost(0, (2.5, 0.0), 0)},
        bounce_seconds=1.0,
        report=Path("report.html"),
        folder=None,
    )
    broker = SimpleNamespace(bootstrap="127.0.0.1:9", wait=lambda until: until())

    @contextmanager
    def short(*_):
        yield result, broker

    monkeypatch.setattr(demo_run, "run", short)
    monkeypatch.setattr(signal, "signal", lambda *_: None)


@pytest.mark.every
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.browser
def test_end_to_end(tmp_path):
    """With --keep: the broker stays until Ctrl-C."""
    from holdfast.cli.demo.run import DemoOptions
    from holdfast.fleet.tables.reading import Tables

    out = tmp_path / "out"
    sizes = ("--members", str(MEMBERS), "--partitions", str(PARTITIONS), "--seconds", "0.5")
    with started(tmp_path, *sizes, "-o", str(out), "--format", "json", "--keep") as run:
        said = await_words(run, tmp_path / "stdout", '"stage_seconds"', 400)
        host, port = re.search(r'"bootstrap_server": "([0-9.]+):([0-9]+)"', said).groups()
        socket.create_connection((host, int(port)), 30).close()
        run.send_signal(signal.SIGINT)
        try:
            assert run.wait(120) == 130
        except subprocess.TimeoutExpired:
            pytest.fail((tmp_path / "stderr").read_text()[-3_000:])
    with pytest.raises(OSError):
        socket.create_connection((host, int(port)), 30)
    said = (tmp_path / "stderr").read_text()
    assert "Traceback" not in said
    for stage in ("start a broker", "bounce member 2 of 2", "write the report"):
        assert stage in said
    summary = json.loads((tmp_path / "stdout").read_text())
    assert len(summary["stage_seconds"]) == DemoOptions(members=MEMBERS).n_stages
    tables = Tables(out / "tables")
    assert list(summary["policies"]) == list(PROTOCOLS)
    for policy, told in summary["policies"].items():
        check_records(told, summary["bounce_seconds"])
        check_generations(tables, policy)
    check_assignments(tables)
    simple, deferred = summary["policies"].values()
    assert simple["moves"] >= PARTITIONS  # each member's partitions go elsewhere while it is away
    assert deferred["moves"] == 0
    assert sum(deferred["unowned_seconds"]) > 0
    check_report(out / "report.html")


@pytest.mark.every
@pytest.mark.broker
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_it_is_stopped_half_way(tmp_path, end):
    out = tmp_path / "out"
    with started(tmp_path, "-o", str(out)) as run:
        # Members write journals, and one of them is about to be bounced.
        await_words(run, tmp_path / "stderr", "3 members", 300)
        assert len(processes_of(tmp_path)) >= 3
        run.send_signal(end)
        code = run.wait(120)
    assert code == (-signal.SIGKILL if end is signal.SIGKILL else 130)
    deadline = time.monotonic() + 120
    while left := processes_of(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def check_records(told, bounce_seconds) -> None:
    records = told["records"]
    assert records["produced"] > 0
    assert (records["consumed"], records["unread"]) == (records["produced"], 0)
    assert records["read_twice"] == 0
    assert len(told["unowned_seconds"]) == PARTITIONS
    assert 0 <= sum(told["unowned_seconds"]) < bounce_seconds * PARTITIONS


def check_generations(tables, policy) -> None:
    """The bounce as the broker saw it: everybody left once and came back."""
    group = [f"holdfast-demo-{policy}"]
    found = tables.table("rebalances", groups=group).to_pylist()
    rows = [row for row in found if row["n_members"] > 0]
    sizes = [row["n_members"] for row in rows]
    assert max(sizes) == MEMBERS
    dips = sum(a == MEMBERS and b < MEMBERS for a, b in pairwise(sizes))
    assert dips >= MEMBERS
    numbers = [row["generation"] for row in rows]
    assert numbers == sorted(set(numbers))
    for row in rows:
        n_moved = row["n_moved"] + row["n_moved_through_gap"]
        assert n_moved + row["n_kept"] + row["n_gained"] <= PARTITIONS
    protocols = set(tables.table("generations", groups=group).column("protocol").to_pylist())
    assert protocols - {None} == {PROTOCOLS[policy]}
    assert tables.table("offset_commits", groups=group).num_rows > 0
    assert tables.rows("bad_records") == 0
    kinds = set(tables.table("movements", groups=group).column("kind").to_pylist())
    assert kinds <= {"moved", "moved_through_gap", "gained", "lost"}
    assert "gained" in kinds


def check_assignments(tables) -> None:
    """No generation gives one partition to two members."""
    rows = tables.table("assignments").to_pylist()
    assert rows
    keys = [(row["group"], row["generation"], row["topic"], row["partition"]) for row in rows]
    assert len(keys) == len(set(keys))
    assert {key[3] for key in keys} == set(range(PARTITIONS))


def check_report(report: Path) -> None:
    """One self-contained page that draws without asking anybody and without an error."""
    from tests.report.browser import Opened, browser

    with browser() as started:
        opened = Opened(started, report.absolute())  # returns after the first drawing
        assert opened.page.locator("#canvas").count() == 1
        for policy in PROTOCOLS:
            assert f"holdfast-demo-{policy}" in opened.page.locator("body").inner_text()
        opened.close()
    assert opened.said == []
    assert [
        url for url in opened.requested if not url.startswith(("file:", "data:", "blob:"))
    ] == []


def test_a_ctrl_c_that_python_drops_is_heard():
    code = """
import os, signal, warnings
from holdfast.cli.commands.demo import handle_interrupts

heard = handle_interrupts()

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(1000))  # the exception is raised in here, and dropped

assert not heard()
x = Finalised()
del x
print(heard())
"""
    done = run_python("-c", code).passed()
    assert done.out == "True\n"
    assert "Exception ignored" in done.err


N_SIGNALS = 40
CHILD = f"""
import faulthandler
from holdfast.cli.demo.processes import watch
faulthandler.dump_traceback_later(60, exit=True)
for _ in range({N_SIGNALS}):
    stop = watch()
    print("up", flush=True)
    while not stop.wait(0):
        pass
"""


def test_a_signal_may_come_while_the_process_looks_for_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        for _ in range(N_SIGNALS):
            assert process.stdout.readline() == b"up\n"
            time.sleep(0.01)  # it looks by then
            process.terminate()
        assert process.wait() == 0

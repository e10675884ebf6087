"""The bar over Spark jobs: what it shows, when, and that a real session answers."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from tests.cli.running import run

from holdfast.cli import spark_progress
from holdfast.cli.spark_progress import Records, Stage, StageBar, spark_bar
from holdfast.cluster.cluster import PartitionEnds
from holdfast.errors import SourceError

PATIENCE_S = 300.0


class Drawn(StageBar):
    """A bar whose picture is drawn when it is asked for."""

    def __init__(self, n_records: Records = None):
        self.out = io.StringIO()
        columns = (
            TextColumn("{task.fields[stage]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
        )
        self.console = Console(file=self.out, force_terminal=True, width=100, color_system=None)
        self.drawing = Progress(*columns, console=self.console, auto_refresh=False)
        super().__init__(self.drawing, n_records, 0.0)

    def picture(self) -> str:
        self.console.print(self.drawing.get_renderable())
        return self.out.getvalue()


def drawn(stage: Stage, seconds: list[float], n_records: Records = None) -> str:
    bar = Drawn(n_records)
    for now in seconds:
        bar.show(stage, now)
    return bar.picture()


def test_nothing_is_drawn_in_the_first_two_seconds() -> None:
    stage = Stage(number=3, n_tasks=8, n_done=2)
    assert drawn(stage, [0.5, 1.9]).strip() == ""
    assert "stage 3" in drawn(stage, [0.5, 2.1])


def test_a_stage_shows_tasks_and_records_a_second() -> None:
    text = drawn(Stage(number=3, n_tasks=8, n_done=2), [1.0, 6.0], n_records=1_000_000)
    assert "2/8" in text
    assert "50,000 records/s" in text
    assert "records/s" not in drawn(Stage(number=3, n_tasks=8, n_done=2), [1.0, 6.0])


def test_the_records_of_a_batch_are_requested_as_its_stages_begin() -> None:
    held = []
    for n_records, speed in ((30, "3"), (100, "10")):
        held.append(n_records)
        stage = Stage(number=1, n_tasks=2, n_done=1)
        assert f"{speed} records/s" in drawn(stage, [0.0, 5.0], lambda: held[-1])


def test_a_new_stage_begins_its_own_clock() -> None:
    bar = Drawn(1000)
    bar.show(Stage(number=1, n_tasks=1, n_done=1), 90.0)
    bar.show(Stage(number=2, n_tasks=2, n_done=0), 100.0)
    bar.show(Stage(number=2, n_tasks=2, n_done=1), 110.0)
    assert "50 records/s" in bar.picture()


def test_the_clock_begins_anew_when_spark_has_rested() -> None:
    bar = Drawn()
    bar.show(None, 1.0)
    bar.show(None, 90.0)
    bar.show(Stage(number=3, n_tasks=8, n_done=2), 100.0)
    assert "stage 3" not in bar.picture()
    bar.show(Stage(number=3, n_tasks=8, n_done=3), 102.5)
    assert "stage 3" in bar.picture()


def test_nothing_is_shown_while_spark_rests() -> None:
    bar = Drawn()
    bar.show(Stage(number=1, n_tasks=1, n_done=1), 1.9)
    bar.show(Stage(number=1, n_tasks=1, n_done=1), 2.1)
    bar.show(None, 2.2)
    assert "stage 1" not in bar.picture()


@pytest.mark.parametrize("quiet", [False, True])
def test_no_terminal_or_quiet_asks_spark_nothing(
    quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(file=io.StringIO(), force_terminal=quiet)
    monkeypatch.setattr(spark_progress, "stderr_console", lambda: console)
    with spark_bar(object(), "history", quiet=quiet):
        pass


def test_a_connect_session_reports_by_itself_and_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Session:
        def __init__(self) -> None:
            self.handlers: list[Any] = []

        def registerProgressHandler(self, handler: Any) -> None:
            self.handlers.append(handler)

        def removeProgressHandler(self, handler: Any) -> None:
            self.handlers.remove(handler)

    Session.__module__ = "pyspark.sql.connect.session"
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    monkeypatch.setattr(spark_progress, "stderr_console", lambda: console)
    monkeypatch.setattr(spark_progress, "BAR_AFTER_S", -1.0)
    session = Session()
    with spark_bar(session, "history"):
        info = SimpleNamespace(stage_id=7, num_tasks=4, num_completed_tasks=1)
        empty = SimpleNamespace(stage_id=8, num_tasks=0, num_completed_tasks=0)
        session.handlers[0](stages=[info, empty], inflight_tasks=1, operation_id="x", done=False)
        session.handlers[0](stages=None, inflight_tasks=0, operation_id="x", done=True)
    assert session.handlers == []
    assert "stage 7" in out.getvalue()


def until(held: int, words: str, seconds: float = PATIENCE_S) -> str:
    """What came out of ``held`` up to ``words``, without control sequences."""
    text, over = "", time.monotonic() + seconds
    while words not in text and time.monotonic() < over:
        if select.select([held], [], [], 0.2)[0]:
            text += os.read(held, 65536).decode(errors="replace")
            text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    return text


@pytest.mark.spark
@pytest.mark.every
def test_a_terminal_sees_the_bar_and_a_pipe_does_not(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second task of a job ends when the terminal has shown that the first is done."""
    monkeypatch.setattr(spark_progress, "BAR_AFTER_S", 0.0)
    monkeypatch.setattr(spark_progress, "LOOK_EVERY_S", 0.05)
    monkeypatch.setenv("TERM", "xterm")
    seen = tmp_path / "seen"

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            over = time.monotonic() + 2 * PATIENCE_S
            while 0 not in batch["id"].to_pylist() and not seen.exists():
                if time.monotonic() > over:
                    break
                time.sleep(0.1)
            yield batch

    def under_bar(file: int) -> None:
        with os.fdopen(file, "w") as stream:
            console = Console(file=stream, width=100)
            with monkeypatch.context() as patch:
                patch.setattr(spark_progress, "stderr_console", lambda: console)
                with spark_bar(spark, "history", 1000):
                    spark.range(2, numPartitions=2).mapInArrow(work, "id long").count()

    ours, theirs = pty.openpty()
    job = threading.Thread(target=under_bar, args=(theirs,))
    job.start()
    try:
        shown = until(ours, "records/s")
    finally:
        seen.touch()
        with suppress(OSError):  # a terminal that nobody writes to any more says so with EIO
            while os.read(ours, 65536):
                pass
        job.join()
        os.close(ours)
    assert re.search(r"history, stage \d+.*1/2 tasks +[\d,]+ records/s", shown, re.S)
    ours, theirs = os.pipe()
    under_bar(theirs)
    assert os.read(ours, 65536) == b""
    os.close(ours)


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Bars that commands asked for; no Spark is started and nothing is read."""
    asked: list[tuple[Any, ...]] = []

    def stop(read: Any, *_: Any, **__: Any) -> None:
        getattr(read, "session", read)()
        raise SourceError("far enough")

    @contextmanager
    def bar(spark: Any, what: str, n_records: Any = None, *, quiet: bool, **_: Any) -> Any:
        asked.append((what, n_records() if callable(n_records) else n_records, quiet))
        yield

    def ends(topic: str, only: Any = None) -> dict[int, PartitionEnds]:
        held = {0: PartitionEnds(5, 25, 25), 1: PartitionEnds(0, 9, 10)}
        wanted = None if only is None else only(len(held))
        return {p: held[p] for p in held if wanted is None or p in wanted}

    @contextmanager
    def connected() -> Any:
        raise SourceError("nobody is asked what groups do now")
        yield

    cluster = SimpleNamespace(
        bootstrap="broker:1",
        msk_region=None,
        check=lambda: None,
        group_names=set,
        partition_ends=ends,
        connected=connected,
    )
    monkeypatch.setattr("holdfast.cluster.cluster.LiveCluster", lambda **_: cluster)
    monkeypatch.setattr("holdfast.fleet.pipeline.session.get_session", lambda **_: object())
    for slow in ("batches.history.run", "batches.history.dump_of", "batches.watch.watch"):
        monkeypatch.setattr(f"holdfast.fleet.pipeline.{slow}", stop)
    for module in ("histories", "commands.dump", "commands.watch"):
        monkeypatch.setattr(f"holdfast.cli.{module}.spark_bar", bar)
    return asked


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize(
    ("command", "options", "bar"),
    [
        ("history", (), ("history", 30)),
        ("history", ("--group", "g"), ("history", 10)),  # of the partition that holds it
        ("plan", ("--assignor", "sticky"), ("history", 30)),
        ("replay", (), ("history", 30)),
        ("doctor", (), ("history", 30)),
        ("report", ("-o", "{folder}/r.html"), ("history", 30)),
        ("dump", ("-o", "{folder}/dump"), ("dump", 30)),
        ("watch", ("-o", "{folder}/tables"), ("watch", None)),
    ],
)
def test_every_command_that_runs_spark_does_so_under_a_bar(
    command: str,
    options: tuple[str, ...],
    bar: tuple[Any, ...],
    quiet: bool,
    bars: list[tuple[Any, ...]],
    tmp_path: Path,
) -> None:
    given = [option.replace("{folder}", str(tmp_path)) for option in options]
    done = run(command, "-b", "broker:1", *given, *(["-q"] if quiet else []))
    assert (done.code, "far enough" in done.err) == (3, True), done.err
    assert bars == [(*bar, quiet)]

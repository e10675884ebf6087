"""The bar over Spark jobs: what it shows, when, and that a real session answers."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from holdfast.cli import spark_progress
from holdfast.cli.spark_progress import Stage, StageBar, newest_stage, spark_bar


def drawn(stage: Stage, seconds: list[float], n_records: int | None = None) -> str:
    out = io.StringIO()
    columns = (
        TextColumn("{task.fields[stage]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
    )
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    progress = Progress(*columns, console=console, auto_refresh=False)
    bar = StageBar(progress, n_records, 0.0)
    for now in seconds:
        bar.show(stage, now)
    console.print(progress.get_renderable())
    return out.getvalue()


def test_nothing_is_drawn_in_the_first_two_seconds() -> None:
    stage = Stage(number=3, n_tasks=8, n_done=2)
    assert drawn(stage, [0.5, 1.9]).strip() == ""
    assert "stage 3" in drawn(stage, [0.5, 2.1])


def test_a_stage_shows_tasks_and_records_a_second() -> None:
    text = drawn(Stage(number=3, n_tasks=8, n_done=2), [1.0, 6.0], n_records=1_000_000)
    assert "2/8" in text
    assert "50,000 records/s" in text
    assert "records/s" not in drawn(Stage(number=3, n_tasks=8, n_done=2), [1.0, 6.0])


def test_a_new_stage_begins_its_own_clock() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    progress = Progress(TextColumn("{task.fields[speed]}"), console=console, auto_refresh=False)
    bar = StageBar(progress, 1000, 0.0)
    bar.show(Stage(number=1, n_tasks=1, n_done=1), 90.0)
    bar.show(Stage(number=2, n_tasks=2, n_done=0), 100.0)
    bar.show(Stage(number=2, n_tasks=2, n_done=1), 110.0)
    console.print(progress.get_renderable())
    assert "50 records/s" in out.getvalue()


@pytest.mark.parametrize("quiet", [False, True])
def test_no_terminal_or_quiet_asks_spark_nothing(
    quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(file=io.StringIO(), force_terminal=quiet)
    monkeypatch.setattr(spark_progress, "stderr", console)
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
    monkeypatch.setattr(spark_progress, "stderr", console)
    monkeypatch.setattr(spark_progress, "BAR_AFTER_S", -1.0)
    session = Session()
    with spark_bar(session, "history"):
        info = SimpleNamespace(stage_id=7, num_tasks=4, num_completed_tasks=1)
        empty = SimpleNamespace(stage_id=8, num_tasks=0, num_completed_tasks=0)
        session.handlers[0](stages=[info, empty], inflight_tasks=1, operation_id="x", done=False)
        session.handlers[0](stages=None, inflight_tasks=0, operation_id="x", done=True)
    assert session.handlers == []
    assert "stage 7" in out.getvalue()


@pytest.mark.spark
def test_a_real_session_tells_its_running_stage(spark: Any) -> None:
    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        time.sleep(2)
        yield from batches

    job = threading.Thread(
        target=lambda: spark.range(4, numPartitions=4).mapInArrow(slow, "id long").count()
    )
    assert newest_stage(spark) is None
    job.start()
    seen = None
    while job.is_alive() and seen is None:
        seen = newest_stage(spark)
        time.sleep(0.05)
    job.join()
    assert seen is not None
    assert seen.n_tasks == 4

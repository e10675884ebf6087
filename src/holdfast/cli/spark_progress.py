"""A progress bar for Spark jobs: tasks done, records a second, time left.

**Rules.** The bar is shown on stderr, only on a terminal, once Spark has been busy for two
seconds. It disappears at the end. A classic session is queried through its status tracker, a Spark
Connect session through a progress handler.

**Strategy.** Every stage reads nearly all records. So the records that a stage has processed are
its fraction of finished tasks, times the number of all records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.output import BAR_AFTER_S, stderr_console
from holdfast.core.names import harmless

if TYPE_CHECKING:
    from rich.progress import Progress

LOOK_EVERY_S: Final = 0.5
Records = int | Callable[[], int | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a Spark stage has done of its tasks."""

    number: int
    n_tasks: int
    n_done: int


def newest_stage(spark: Any) -> Stage | None:
    """Return the newest running stage of a classic session; None without a running stage."""
    tracker = spark.sparkContext.statusTracker()
    running = [tracker.getStageInfo(i) for i in tracker.getActiveStageIds()]
    stages = [
        Stage(number=s.stageId, n_tasks=s.numTasks, n_done=s.numCompletedTasks)
        for s in running
        if s is not None
    ]
    return max(stages, key=lambda stage: stage.number, default=None)


class StageBar:
    """Shows one stage after another on a bar; fed by :meth:`show`, from any thread.

    ``progress`` has a field ``speed``. A function of ``n_records`` is called when a stage begins;
    with None no speed is shown.
    """

    def __init__(self, progress: Progress, n_records: Records, now: float, unit: str = "records"):
        self._progress = progress
        self._count = n_records if callable(n_records) else lambda: n_records
        self._n_records: int | None = None
        self._unit = unit
        self._began = self._stage_began = now
        self._resting: float | None = None
        self._number: int | None = None
        self._task = progress.add_task("", total=None, speed="", stage="", visible=False)

    def show(self, stage: Stage | None, now: float) -> None:
        """Draw what ``stage`` has done at ``now``; nothing while Spark rests."""
        if stage is None:
            self._resting = now if self._resting is None else self._resting
            self._progress.update(self._task, visible=False)
            return
        if self._resting is not None and now - self._resting > BAR_AFTER_S:
            self._began = now
        self._resting = None
        if stage.number != self._number:
            self._number, self._stage_began = stage.number, now
            self._n_records = self._count()
            self._progress.reset(self._task, total=stage.n_tasks, visible=False)
        lasted = now - self._stage_began
        speed = ""
        if self._n_records is not None and lasted > 0 and stage.n_done:
            n_records = self._n_records * stage.n_done // max(stage.n_tasks, 1)
            speed = f"{n_records / lasted:,.0f} {self._unit}/s"
        self._progress.update(
            self._task,
            total=stage.n_tasks,
            completed=stage.n_done,
            speed=speed,
            stage=f"stage {stage.number}",
            visible=now - self._began > BAR_AFTER_S,
        )


@contextmanager
def spark_when_needed(
    shown: Callable[[Any], AbstractContextManager[None]],
    *,
    note: Callable[[str], None] | None = None,
    **options: Any,
) -> Iterator[Callable[[], Any]]:
    """Yield a function that returns the session; its first call starts Spark and a note of it.

    ``shown`` shows the progress of a session until the end of the block. The options are those of
    :func:`holdfast.fleet.pipeline.session.get_session`.
    """
    with ExitStack() as stack:

        @cache
        def session() -> Any:
            if note is not None:
                note("starting Spark")
            from holdfast.fleet.pipeline.session import open_session  # it loads Arrow

            spark = open_session(delta=False, **options)  # commands read tables without Spark
            stack.enter_context(shown(spark))
            return spark

        yield session


@contextmanager
def spark_bar(
    spark: Any,
    what: str,
    n_records: Records = None,
    *,
    unit: str = "records",
    quiet: bool = False,
) -> Iterator[None]:
    """Show the progress of Spark while the body runs.

    Every stage works on ``n_records`` records, for the speed; a function is called as a stage
    begins.
    """
    if quiet or not stderr_console().is_terminal:
        yield
        return
    from rich import progress

    columns = (
        progress.TextColumn(f"{harmless(what)}, {{task.fields[stage]}}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("tasks  {task.fields[speed]}"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=stderr_console(), transient=True) as drawn:
        bar = StageBar(drawn, n_records, time.monotonic(), unit)
        with followed(spark, bar.show):
            yield


@contextmanager
def followed(spark: Any, show: Callable[[Stage | None, float], None]) -> Iterator[None]:
    """Report Spark's stages, None while it rests, and when, from any thread, to a function."""
    from holdfast.fleet.pipeline.session import is_connect

    if is_connect(spark):

        def handler(stages: Any, **_: Any) -> None:
            known = [s for s in stages or () if s.num_tasks]
            if known:
                newest = max(known, key=lambda s: s.stage_id)
                n_tasks, n_done = newest.num_tasks, newest.num_completed_tasks
                stage = Stage(number=newest.stage_id, n_tasks=n_tasks, n_done=n_done)
                show(stage, time.monotonic())

        spark.registerProgressHandler(handler)
        try:
            yield
        finally:
            spark.removeProgressHandler(handler)
        return
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_EVERY_S):
            try:
                stage = newest_stage(spark)
            except Exception:  # no answer: the body meets the same error and raises it
                return
            show(stage, time.monotonic())

    thread = threading.Thread(target=look, name="holdfast-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

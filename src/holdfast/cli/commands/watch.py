"""``holdfast watch``: follow the offsets topic and keep the tables up to date."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli import options
from holdfast.cli.declared import Option
from holdfast.cli.option_values import above_zero_s
from holdfast.cli.output import notes
from holdfast.cli.spark_progress import spark_bar
from holdfast.cli.updater import BatchReporter, WatchTask, follow_cluster
from holdfast.core.command_lines import option
from holdfast.errors import is_interrupt

if TYPE_CHECKING:
    from holdfast.errors import SourceError
    from holdfast.fleet.tables.reading import Tables
    from holdfast.fleet.tables.storage.paths import StoragePath

EXAMPLES = """\b
Examples:
  holdfast watch -b localhost:9092 -o tables
  holdfast watch -b localhost:9092 -o tables --every 30s --metrics h.prom
  holdfast watch -b localhost:9092 -o tables --every 30s &
  holdfast serve --input tables
"""


def run(
    *,
    bootstrap: options.NeededBootstrap,
    output: options.WatchedFolder,
    every: Annotated[
        str | None,
        Option(
            "--every",
            metavar="DURATION",
            help="Poll interval; without it, read once.",
        ),
    ] = None,
    watch_options: options.WatchOptions,
    max_records: Annotated[
        int | None, Option("--max-records", min=1, help="Maximum records in a batch; default: all.")
    ] = None,
    metrics: Annotated[
        Path | None,
        Option("--metrics", help="File for the /metrics of `serve`, written after each batch."),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Update the history of every group in batches; stop and restart it at any time.

    The tables equal those of one `holdfast history` over all records, without rows older than
    --keep. Small files are merged. With --every it runs until Ctrl-C; without, it reads the
    records since the last run and ends. `holdfast serve -b` does the same and shows the tables.
    """
    task = WatchTask(
        bootstrap=bootstrap,
        output=output,
        watch_options=watch_options,
        every_seconds=None if every is None else above_zero_s(every, "--every"),
        max_records=max_records,
    )
    more = option("--metrics", str(metrics)) if metrics is not None else []
    screen = _Screen(output, metrics, quiet=quiet)
    try:
        follow_cluster(task, screen, started_with=[*task.again(), *more])
    except BaseException as error:
        if is_interrupt(error):
            screen.note(screen.ended())
        raise


class _Screen(BatchReporter):
    """Shows on stderr how far it is, and writes the metrics."""

    def __init__(self, output: StoragePath, metrics: Path | None, *, quiet: bool):
        super().__init__(notes(quiet))
        self._output, self._metrics, self._quiet = output, metrics, quiet
        self._n_offsets: int | None = None
        self._batch: int | None = None

    def ended(self) -> str:
        """Return the text at Ctrl-C: the next run repeats a batch that was under way."""
        if self._batch is None:
            return "stopped by Ctrl-C before a batch was done"
        return (
            f"stopped by Ctrl-C; batch {self._batch} is done, the same command continues after it"
        )

    def shown(self, spark: Any) -> AbstractContextManager[None]:
        """Return a progress bar."""
        return spark_bar(spark, "watch", lambda: self._n_offsets, quiet=self._quiet)

    def before_batch(self, n_offsets: int, n_new: int) -> None:
        """Record the number of offsets, for the bar's speed."""
        del n_new
        self._n_offsets = n_offsets

    def after_batch(self, tables: Tables, batch: int) -> None:
        """Write the metrics, and a line."""
        self._batch = batch
        super().after_batch(tables, batch)
        self._write()
        self.note(f"batch {batch}: {tables.rows('rebalances')} rebalances so far")

    def after_look(self, tables: Tables, error: SourceError | None) -> None:
        """Write the metrics, or report why they were not updated."""
        super().after_look(tables, error)
        if error is not None:
            self.note(f"log ends could not be read, retry follows: {error}")
        else:
            self._write()

    def _write(self) -> None:
        if self._metrics is not None:
            write_metrics(self._output, self._metrics)


def write_metrics(folder: StoragePath, target: Path) -> None:
    """Write the text of ``/metrics`` to a file, which a rename replaces at once."""
    from holdfast.fleet.analysis.findings.doctor import Doctor
    from holdfast.fleet.report.metrics import exposition
    from holdfast.fleet.tables.reading import read_tables

    tables = read_tables(folder)
    text = exposition(tables, Doctor(tables=tables).examinations())
    draft = target.with_name(f"{target.name}.tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(target)

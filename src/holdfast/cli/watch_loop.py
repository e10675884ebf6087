"""Update the tables of a live cluster, for ``watch`` and for the updater of ``serve``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.cli import options
from holdfast.cli.durations import parse_duration_ms, window_begin
from holdfast.cli.histories import (
    check_logs,
    live_cluster,
    open_feed,
    report_notes,
    report_open,
)
from holdfast.core.command_lines import option
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.cluster.cluster import LiveCluster
    from holdfast.errors import SourceError
    from holdfast.fleet.tables.reading import Tables
    from holdfast.fleet.tables.storage.paths import StoragePath


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTask:
    """The cluster and the folder of a watch, and its options.

    Without ``every_seconds``, the poll interval, the present records are read once. ``since`` is
    the begin of the window of findings, a moment or a duration before its end.
    """

    bootstrap: str
    output: StoragePath
    watch_options: options.WatchOptions = field(default_factory=options.WatchOptions)
    every_seconds: float | None = None
    max_records: int | None = None
    since: str | None = None

    def check(self) -> None:
        """Refuse a task that cannot run, before anything slow is started.

        Raise ConfigError or SourceError for a wrong duration, a missing log, or a folder that is
        not a stream's.
        """
        from holdfast.fleet.pipeline.batches.watch import check_watched
        from holdfast.fleet.tables.reading import Tables

        self.check_words()
        check_watched(Tables(self.output.absolute()))

    def check_words(self) -> None:
        """Run the part of :meth:`check` that does not read the folder, and is quick."""
        parse_retention(self.watch_options.keep)
        check_logs(self.watch_options.broker_log or ())

    def again(self) -> list[str]:
        """Return options of a command line that starts ``watch`` again; defaults are omitted."""
        watch_options, usual = self.watch_options, options.WatchOptions()
        flags = {
            "--command-config": "command_config",
            "--keep": "keep",
            "--auto-offset-reset": "reset",
            "--timeout": "timeout",
            "--engine": "engine",
        }
        pairs: list[tuple[str, object]] = [("-b", self.bootstrap)]
        for flag, name in flags.items():
            value = getattr(watch_options, name)
            if value != getattr(usual, name):
                pairs.append((flag, value))
        pairs += [("--group", group) for group in watch_options.group or ()]
        pairs += [("--broker-log", log) for log in watch_options.broker_log or ()]
        words = [word for flag, value in pairs for word in option(flag, str(value))]
        return [*words, "--all-groups"] if watch_options.all_groups else words

    def cluster(self) -> LiveCluster:
        """Return the cluster; no request is sent yet."""
        return live_cluster(
            self.bootstrap, self.watch_options.command_config, self.watch_options.timeout
        )


def follow_cluster(task: WatchTask, reporter: BatchReporter, *, started_with: list[str]) -> None:
    """Keep the tables of a cluster, batch after batch.

    ``started_with`` has the options that start it again, noted for people. Raise as
    :meth:`WatchTask.check`, or OperationalError if the cluster cannot be read or Spark cannot
    start.
    """
    from holdfast.fleet.pipeline.batches.watch import watch
    from holdfast.fleet.pipeline.ingest.decode import Selection
    from holdfast.fleet.tables.reading import Tables

    task.check()
    watch_options, cluster = task.watch_options, task.cluster()
    cluster.check()
    selection = Selection(groups=watch_options.group or (), all_groups=watch_options.all_groups)
    tables = Tables(task.output.absolute())
    with open_feed(
        cluster,
        watch_options.engine,
        selection,
        bar=lambda _: reporter.shown,
        note=reporter.note,
        tables=tables,
    ) as feed:
        watch(
            feed,
            task.output,
            selection=selection,
            every_seconds=task.every_seconds,
            max_records=task.max_records,
            since=window_begin(task.since),
            auto_offset_reset=str(watch_options.reset),
            broker_logs=watch_options.broker_log or (),
            retention_days=parse_retention(watch_options.keep),
            started_with=started_with,
            before_batch=reporter.before_batch,
            after_batch=reporter.after_batch,
            after_look=reporter.after_look,
        )


def parse_retention(text: str) -> float | None:
    """Return the days of ``--keep``; None for ``all``; raise ConfigError for 0 or a wrong text."""
    if text == "all":
        return None
    millis = parse_duration_ms(text, "--keep")
    if millis <= 0:
        raise ConfigError(f"--keep: found {text!r}, expected a duration such as 90d, or all")
    return millis / 86_400_000


class BatchReporter:
    """Reports the progress of a watch: here, what batches read that is in no table.

    Every batch reads all of ``__share_group_state`` and the broker logs. So the number of bad
    records of that topic is reported when it changes, an error of a log once, and an open
    transaction once.
    """

    def __init__(self, print_line: Callable[[str], None]):
        self._print = print_line
        self._n_bad_share: int | None = None
        self._open: set[tuple[int, int, int]] = set()

    def note(self, text: str) -> None:
        """Report which engine reads how many records."""
        self._print(text)

    def shown(self, spark: Any) -> AbstractContextManager[None]:
        """Show how far Spark is while the body runs."""
        del spark
        return nullcontext()

    def before_batch(self, n_offsets: int, n_new: int) -> None:
        """Report that a batch of ``n_offsets`` offsets begins; ``n_new`` are new in all."""

    def after_batch(self, tables: Tables, batch: int) -> None:
        """Report that a batch is committed, and which transactions are open."""
        for one in tables.batches():
            if one.id == batch:
                n_bad_share = int(one.notes.get("n_bad_share", 0))
                share, is_first = n_bad_share != self._n_bad_share, self._n_bad_share is None
                report_notes(one, "of the batch's", self._print, share=share, logs=is_first)
                self._n_bad_share = n_bad_share
        self.report_open(tables)

    def after_look(self, tables: Tables, error: SourceError | None) -> None:
        """Report that log ends were read and nothing was new, or that reading failed."""
        if error is None:
            self.report_open(tables)

    def report_open(self, tables: Tables) -> None:
        """Report transactions that are open at the newest poll, each once."""
        from holdfast.fleet.pipeline.ingest.transactions import from_notes

        notes = tables.newest_notes()
        for one in from_notes(notes.get("open_transactions", ())):
            key = one.partition, one.producer_id, one.first_offset
            if key not in self._open:
                said: list[str] = []
                report_open([one], str(notes.get("taken_at", "")), said.append)
                self._open |= {key} if said else set()
                for line in said:
                    self._print(line)

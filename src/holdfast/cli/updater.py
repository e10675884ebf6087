"""Update the tables of a live cluster: for ``watch``, and in a process for the pages of ``serve``.

**Rules.** Whatever happens to the updater of ``serve``, pages show the last committed batch. An
updater that ends is restarted after :data:`RETRY_S`, and the pages show its error until an updater
has read the cluster. It ends with the server's process, however that ends.

**Strategy.** The updater is a process of its own, because a process cannot start a JVM again after
the first one died, and because Spark's driver must not take the interpreter from the pages. A pipe
has two ends: the updater sends its progress, and reads the end of the server. Batches need no
message: the pages see a commit in the folder.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli import options
from holdfast.cli.histories import check_logs, live_cluster, open_feed, report_notes, report_open
from holdfast.cli.option_values import parse_retention, window_begin
from holdfast.cli.output import notes
from holdfast.cli.spark_progress import Stage, followed
from holdfast.core.command_lines import option
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    import subprocess
    from multiprocessing.connection import Connection

    from holdfast.cluster.cluster import LiveCluster
    from holdfast.errors import SourceError
    from holdfast.fleet.report.serving.served_fleet import UpdaterState
    from holdfast.fleet.tables.reading import Tables
    from holdfast.fleet.tables.storage.paths import StoragePath

RETRY_S: Final = 15.0
"""Seconds from the end of an updater to the start of the next one."""
CLOSE_S: Final = 10.0
"""Seconds for an updater to end on request."""
COMMAND: Final = (sys.executable, "-P", "-c", "from holdfast.cli.updater import main; main()")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdaterMessage:
    """What an updater sends: its progress, its error, and whether it has just read the cluster."""

    doing: str = ""
    trouble: str = ""
    has_read: bool = False


class Updater:
    """Keeps tables for served pages; not yet running.

    ``command`` is what its process runs; the number of its end of the pipe is put behind.
    """

    def __init__(
        self,
        task: WatchTask,
        notify: Callable[[str], None],
        *,
        quiet: bool = False,
        command: Sequence[str] = COMMAND,
    ):
        self._task, self._notify, self._quiet, self._command = task, notify, quiet, command
        self._updater_state = _shown(doing="asking the cluster")
        self._closed = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True, name="updater")

    @property
    def updater_state(self) -> UpdaterState:
        """Return the present state."""
        return self._updater_state

    def start(self) -> None:
        """Start updating the tables."""
        self._thread.start()

    def close(self) -> None:
        """End the updater's process; a batch under way is discarded."""
        self._closed.set()
        if self._process is not None:
            self._process.terminate()
        self._thread.join(CLOSE_S)

    def _follow(self) -> None:
        """Run one updater after the other."""
        while not self._closed.is_set():
            try:
                trouble = self._run_one()
            except OSError as error:  # no process could be had
                trouble = str(error)
            if not self._closed.is_set():
                self._note(UpdaterMessage(trouble=trouble or "the updater process has ended"))
            self._closed.wait(RETRY_S)

    def _run_one(self) -> str:
        """Run an updater to its end; return the last error that it named."""
        import subprocess
        from multiprocessing import Pipe

        ours, its = Pipe()
        command = [*self._command, str(its.fileno())]
        with ours, its:
            # In a session of its own: Ctrl-C in a terminal is for the server, which ends this one.
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                command, pass_fds=[its.fileno()], start_new_session=True
            )
            its.close()
            if self._closed.is_set():
                self._process.terminate()
            trouble = self._read_messages(ours)
        self._process.wait()
        return trouble

    def _read_messages(self, pipe: Connection) -> str:
        """Send an updater its task and read its messages until its end; return its last error."""
        last = ""
        with suppress(EOFError, OSError):
            pipe.send((self._task, self._quiet))
            while True:
                message: UpdaterMessage = pipe.recv()
                self._note(message)
                last = "" if message.has_read else message.trouble or last
        return last

    def _note(self, message: UpdaterMessage) -> None:
        """Update the state that pages show: an error stays until the cluster was read."""
        before = self._updater_state
        if message.has_read:
            self._updater_state = _shown(doing=message.doing)
        elif message.trouble:
            since_ms = before.since_ms or time.time_ns() // 1_000_000
            self._updater_state = _shown(
                doing=message.doing, trouble=message.trouble, since_ms=since_ms
            )
            if message.trouble != before.trouble:
                self._notify(f"the tables are not updated at the moment: {message.trouble}")
        else:
            self._updater_state = replace(before, doing=message.doing)


def _shown(**fields: Any) -> UpdaterState:
    """Return a state for the pages; an updater's own process does not load what serves them."""
    from holdfast.fleet.report.serving.served_fleet import UpdaterState

    return UpdaterState(**fields)


def main() -> None:
    """Update tables for the process at the other end of a pipe, whose number is the argument."""
    from multiprocessing.connection import Connection

    from holdfast.cli.sources import load_arrow

    load_arrow()
    update_tables(Connection(int(sys.argv[1])))


def update_tables(pipe: Connection) -> None:
    """Keep the tables that the other end of a pipe names, until that end is closed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C ends `watch`
    task, quiet = pipe.recv()
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    try:
        follow_cluster(task, _ProgressSender(pipe, quiet=quiet), started_with=task.again())
    except KeyboardInterrupt:
        return
    except HoldfastError as error:
        pipe.send(UpdaterMessage(trouble=str(error)))
    except Exception as error:
        from holdfast.cli.app import explained

        pipe.send(UpdaterMessage(trouble=explained(error)))


def _end_with(pipe: Connection) -> None:
    """End this process when the server's process ends."""
    with suppress(EOFError, OSError):
        pipe.recv()
    os.kill(os.getpid(), signal.SIGTERM)


class _ProgressSender(BatchReporter):
    """Sends through a pipe how far it is."""

    def __init__(self, pipe: Connection, *, quiet: bool):
        super().__init__(notes(quiet))
        self._pipe = pipe
        self._n_all: int | None = None
        self._n_done = self._n_batch = 0
        self._is_first = True

    def note(self, text: str) -> None:
        """Report which engine reads how many records."""
        super().note(text)
        self._pipe.send(UpdaterMessage(doing=text))

    def shown(self, spark: Any) -> AbstractContextManager[None]:
        """Report stages until everything was read once."""
        return followed(spark, self._report_stage)

    def _report_stage(self, stage: Stage | None, _: float) -> None:
        if stage is not None and self._is_first and self._n_all is not None:
            tasks = f"{stage.n_done} of {stage.n_tasks} tasks of stage {stage.number} done"
            self._pipe.send(UpdaterMessage(doing=f"{self._progress()}; {tasks}"))

    def before_batch(self, n_offsets: int, n_new: int) -> None:
        """Report how much is to be read."""
        self._n_all = self._n_all or n_new
        self._n_done, self._n_batch = max(self._n_all - n_new, 0), n_offsets
        if self._is_first:
            self._pipe.send(UpdaterMessage(doing=self._progress()))

    def _progress(self) -> str:
        return f"first read: {self._n_done:,} of {self._n_all:,} records"

    def after_batch(self, tables: Tables, batch: int) -> None:
        """Report a new batch."""
        super().after_batch(tables, batch)
        self._n_done += self._n_batch
        self._is_first = self._is_first and self._n_done < (self._n_all or 0)
        self._pipe.send(
            UpdaterMessage(doing=self._progress() if self._is_first else "", has_read=True)
        )

    def after_look(self, tables: Tables, error: SourceError | None) -> None:
        """Report that log ends were read, or why not."""
        super().after_look(tables, error)
        self._is_first = False
        self._pipe.send(
            UpdaterMessage(has_read=True) if error is None else UpdaterMessage(trouble=str(error))
        )

"""The source of a reading command: a folder of tables, a dump, or a live cluster.

**Rules.** A live cluster is only read, and no group is joined. A folder of tables is read as it
is, without Spark. A dump or a cluster goes through the pipeline first, into a temporary folder;
Spark is imported and started when a step of it is too large for this process, and not before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.cli import options
from holdfast.cli.arrow import load_arrow
from holdfast.cli.durations import read_window
from holdfast.cli.histories import make_history
from holdfast.core.command_lines import FOLDER, SERVERS, GivenSource, holdfast_line
from holdfast.errors import ConfigError
from holdfast.fleet.tables.columns.stored import NOT_SHOWN

if TYPE_CHECKING:
    from holdfast.fleet.tables.reading import Tables
    from holdfast.fleet.tables.storage.places import Place


ALL_TIME: Final = options.Window()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTables:
    """Tables, and the topics and groups of their source.

    Parameters
    ----------
    tables : Tables
        A table is read when it is used.
    topics : dict of str to int
        Topic to number of partitions; empty for a folder of tables, which does not hold it.
    groups : tuple of str or None
        Chosen groups of a folder of tables, patterns resolved. None: all groups of the tables; the
        tables of a dump or a cluster hold the chosen groups only.
    are_kept : bool
        They are a folder's, as an earlier run has settled them.
    """

    tables: Tables
    topics: dict[str, int]
    groups: tuple[str, ...] | None
    given: GivenSource
    are_kept: bool = False

    def shown(self, groups: Sequence[str] | None) -> tuple[tuple[str, ...] | None, Tables]:
        """The chosen groups, and what pages and findings show of them, read now."""
        # Tables of a dump or a cluster hold nothing else, and it was said which names they lack.
        chosen = self.tables.choose(groups) if self.are_kept else None
        return chosen, self.tables.hold(chosen, without=NOT_SHOWN)


def is_dump(source: Place) -> bool:
    """Whether a folder is a finished dump."""
    return (source / "dump.json").is_file()


@contextmanager
def open_source(
    asked: options.SourceOptions,
    window: options.Window = ALL_TIME,
    *,
    spark_groups: bool = False,
    auto_offset_reset: str = "latest",
    broker_logs: Sequence[Path] | None = None,
    output: Place | None = None,
    overwrite: bool = False,
) -> Iterator[OpenedTables]:
    """Tables of ``--input`` or ``--bootstrap-server``.

    Parameters
    ----------
    window : Window, optional
        Only what happened then (:mod:`holdfast.fleet.tables.window`).
    spark_groups : bool
        Where no group is asked for, those of Spark's own are taken from a dump or a cluster too.
    auto_offset_reset : str
        What the lag of a partition without a commit is, for a dump or a cluster.
    broker_logs : sequence of Path, optional
        Logs of brokers that state causes, for a dump or a cluster.
    output : path or URL, optional
        Where the tables of a dump or a cluster stay; by default they are gone behind the block.
    overwrite : bool
        Replace what a stream has kept in ``output``, too.

    Raises
    ------
    ConfigError
        If neither or both are given, logs for tables (their causes are settled), a place for tables
        that are there, or a group that they do not hold.
    SourceError
        If what is given cannot be read.
    """
    load_arrow()
    from holdfast.fleet.tables.reading import open_tables
    from holdfast.fleet.tables.window import within

    source, groups = asked.source, asked.group
    if (source is None) == (asked.bootstrap is None):
        raise ConfigError("give either --input PATH or --bootstrap-server HOST:PORT")
    moments = read_window(window.since, window.until)
    given = GivenSource(
        path=str(source or ""),
        servers=asked.bootstrap or "",
        command_config=str(asked.command_config or ""),
    )
    if source is not None and not is_dump(source):
        if broker_logs:
            logs = [word for log in broker_logs for word in ("--broker-log", str(log))]
            line = holdfast_line("history", "-b", SERVERS, *logs, "-o", FOLDER)
            raise ConfigError(
                f"{source} holds tables, whose causes are settled: make others (`{line}`)"
            )
        kept = open_tables(source).pinned()
        if output is not None:
            raise ConfigError(f"{source} holds tables: -o writes those of a dump or of a cluster")
        chosen = kept.choose(groups)
        if window != ALL_TIME:
            kept = kept.hold(chosen)
        cut = within(kept, *moments)
        yield OpenedTables(tables=cut, topics={}, groups=chosen, given=given, are_kept=True)
        return
    with ExitStack() as stack:
        if output is None:
            scratch = tempfile.TemporaryDirectory(prefix="holdfast-")
            output = Path(stack.enter_context(scratch))
        made = make_history(
            asked,
            output,
            all_groups=spark_groups and not groups,
            auto_offset_reset=auto_offset_reset,
            broker_logs=broker_logs or (),
            overwrite=overwrite,
        )
        topics = made.dump.partition_counts()
        cut = within(made.tables, *moments)
        yield OpenedTables(tables=cut, topics=topics, groups=None, given=given)

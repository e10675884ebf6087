"""``holdfast watch``: follow the offsets topic and keep the tables up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli import options
from holdfast.cli.commands.export import write_metrics
from holdfast.cli.commands.history import (
    SMALL_RECORDS,
    check_logs,
    live_cluster,
    tell_bad,
    tell_counts,
)
from holdfast.cli.declared import Option
from holdfast.cli.durations import parse_duration_ms, seconds
from holdfast.cli.output import notes
from holdfast.cli.spark_progress import spark_bar
from holdfast.command_lines import option
from holdfast.errors import ConfigError
from holdfast.pipeline.command_session import open_session

if TYPE_CHECKING:
    from holdfast.adapters.cluster.cluster import LiveCluster
    from holdfast.errors import SourceError
    from holdfast.tables.places import Place
    from holdfast.tables.reading import Tables

KEEP = "90d"

EXAMPLES = """\b
Examples:
  holdfast watch -b localhost:9092 -o tables
  holdfast watch -b localhost:9092 -o tables --every 30 --metrics h.prom
  holdfast watch -b localhost:9092 -o tables --every 30 &
  holdfast export --input tables
"""


def run(  # noqa: PLR0917 (every option is passed by name)
    bootstrap: options.NeededBootstrap,
    output: options.WatchedFolder,
    every: Annotated[
        str | None,
        Option(
            "--every",
            metavar="DURATION",
            help="Between looks: 30s, 5m, or seconds; without it: what is there, once.",
        ),
    ] = None,
    group: options.Groups = None,
    all_groups: options.SparkGroups = False,
    max_records: Annotated[
        int | None, Option("--max-records", help="At most so many records in a batch.")
    ] = None,
    metrics: Annotated[
        Path | None,
        Option("--metrics", help="What `export` serves, to a file after each batch."),
    ] = None,
    keep: Annotated[
        str, Option("--keep", help="Drop rows that are older (90d, 12h); all: keep them.")
    ] = KEEP,
    reset: options.OffsetReset = options.Reset.LATEST,
    broker_log: options.BrokerLogs = None,
    command_config: options.CommandConfig = None,
    timeout: options.Timeout = options.TIMEOUT,
    quiet: options.Quiet = False,
) -> None:
    """Keep the history of every group, batch after batch; stop and start it as you like.

    The tables equal those of one `holdfast history` over all of it, but what is older than --keep
    and does not stand any more. Small files are merged on the way. With --every it runs until
    Ctrl-C; without, it takes what is there since the last time and ends.
    """
    from holdfast.pipeline.batches.watch import check_watched, watch
    from holdfast.pipeline.ingest.selection import Selection
    from holdfast.tables.reading import Tables

    note, keep_days = notes(quiet), kept_days(keep)
    every_seconds = None if every is None else seconds(every, "--every")
    given = {"-b": bootstrap, "--command-config": command_config, "--metrics": metrics}
    usual = {"--keep": keep, "--auto-offset-reset": reset, "--timeout": timeout}
    lists = {"--group": group, "--broker-log": broker_log}
    check_logs(broker_log or ())
    check_watched(Tables(output.absolute()))
    cluster = live_cluster(bootstrap, command_config, timeout)
    spark = _session(cluster)
    held: list[int] = []
    with spark_bar(spark, "watch", lambda: held[-1] if held else None, quiet=quiet):
        watch(
            spark,
            cluster,
            output,
            selection=Selection(groups=group or [], all_groups=all_groups),
            every_seconds=every_seconds,
            max_records=max_records,
            auto_offset_reset=str(reset),
            broker_logs=broker_log or (),
            before_batch=held.append,
            keep_days=keep_days,
            started_with=_again(given, usual, lists, all_groups=all_groups),
            after_batch=_after_batch(output, metrics, note),
            after_look=_after_look(output, metrics, note),
        )


def _session(cluster: LiveCluster) -> Any:
    """A session of Spark that fits what the offsets topic holds."""
    from holdfast.pipeline.ingest.source import OFFSETS_TOPIC

    ends = cluster.partition_ends(OFFSETS_TOPIC)
    quick = sum(end - begin for begin, end in ends.values()) < SMALL_RECORDS
    return open_session(kafka=True, quick=quick)


def _again(
    given: Mapping[str, object],
    usual: Mapping[str, str],
    lists: Mapping[str, Sequence[object] | None],
    *,
    all_groups: bool,
) -> list[str]:
    """Options of a command line that starts ``watch`` again; defaults are left out."""
    defaults = {
        "--keep": KEEP,
        "--auto-offset-reset": options.Reset.LATEST,
        "--timeout": options.TIMEOUT,
    }
    pairs: list[tuple[str, object]] = [(f, v) for f, v in given.items() if v is not None]
    pairs += [(flag, value) for flag, value in usual.items() if value != defaults[flag]]
    pairs += [(flag, value) for flag, values in lists.items() for value in values or ()]
    words = [word for flag, value in pairs for word in option(flag, str(value))]
    return [*words, "--all-groups"] if all_groups else words


def kept_days(text: str) -> float | None:
    """Days of ``--keep``; None for ``all``.

    Raises
    ------
    ConfigError
        It is neither a duration above 0 nor ``all``.
    """
    if text == "all":
        return None
    millis = parse_duration_ms(text, "--keep")
    if millis <= 0:
        raise ConfigError(f"--keep: found {text!r}, expected a duration such as 90d, or all")
    return millis / 86_400_000


def _after_batch(
    output: Place, metrics: Path | None, note: Callable[[str], None]
) -> Callable[[Tables, int], None]:
    """What is done once a batch is there."""
    told: set[int] = set()

    def say(tables: Tables, batch: int) -> None:
        tell_batch(tables, batch, told, note)
        if metrics is not None:
            write_metrics(output, metrics)
        note(f"batch {batch}: {tables.rows('rebalances')} rebalances so far")

    return say


def _after_look(
    output: Place, metrics: Path | None, note: Callable[[str], None]
) -> Callable[[Tables, SourceError | None], None]:
    """What is done once log ends were read, or could not be."""

    def say(_: Tables, error: SourceError | None) -> None:
        if error is not None:
            note(f"log ends could not be read, the next try follows: {error}")
        elif metrics is not None:
            write_metrics(output, metrics)

    return say


def tell_batch(tables: Tables, batch: int, told: set[int], note: Callable[[str], None]) -> None:
    """Say what a batch read that is in no table.

    Every batch reads all of ``__share_group_state``, so its number of bad records is said when it
    changes.

    Parameters
    ----------
    told : set of int
        The number of bad records of that topic that was said last; changed here.
    """
    found = [one for one in tables.batches() if one.id == batch]
    notes_of = found[0].notes if found else {}
    n_bad = sum(one.rows.get("bad_records", 0) for one in found)
    tell_bad(n_bad, "of the batch's", note)
    unknown = {int(number): n for number, n in notes_of.get("unknown_types", {}).items()}
    n_bad_share = int(notes_of.get("n_bad_share", 0))
    tell_counts(unknown, 0 if n_bad_share in told else n_bad_share, "of the batch's", note)
    told.clear()
    told.add(n_bad_share)

"""``holdfast watch``: follow the offsets topic and keep the tables up to date."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.export import write_metrics
from holdfast.cli.history import SMALL_RECORDS, count_records
from holdfast.cli.lag import Reset
from holdfast.cli.options import CommandConfig, NeededBootstrap, Quiet
from holdfast.cli.output import notes
from holdfast.cli.spark_progress import spark_bar

_EXAMPLES = """\b
Examples:
  holdfast watch -b localhost:9092 -o tables
  holdfast watch -b localhost:9092 -o tables --every 30 --metrics h.prom
  holdfast watch -b localhost:9092 -o tables --every 30 &
  holdfast export --input tables
"""


class Stored(StrEnum):
    """``--format`` of what is kept."""

    PARQUET = "parquet"
    DELTA = "delta"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("watch", epilog=_EXAMPLES)(watch)


def watch(  # noqa: PLR0917 (typer passes every option by name)
    bootstrap: NeededBootstrap,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the tables and of the checkpoint.")
    ],
    every: Annotated[
        float | None,
        typer.Option("--every", help="Seconds between looks; without it: what is there, once."),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="A group or a pattern; repeatable.")
    ] = None,
    all_groups: Annotated[
        bool, typer.Option("--all-groups", help="Groups of Spark's own connector too.")
    ] = False,
    max_records: Annotated[
        int | None, typer.Option("--max-records", help="At most so many records in a batch.")
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option("--metrics", help="What `export` serves, to a file after each batch."),
    ] = None,
    reset: Annotated[
        Reset,
        typer.Option("--auto-offset-reset", help="What a partition without a commit lags behind."),
    ] = Reset.LATEST,
    fmt: Annotated[
        Stored, typer.Option("--format", help="delta: Delta tables beside the Parquet files.")
    ] = Stored.PARQUET,
    command_config: CommandConfig = None,
    quiet: Quiet = False,
) -> None:
    """Keep the history of every group, batch after batch; stop and start it as you like.

    The tables equal those of one `holdfast history` over all of it. With --every it runs until
    Ctrl-C; without, it takes what is there since the last time and ends.
    """
    from holdfast.adapters.cluster import LiveCluster, read_properties
    from holdfast.pipeline.delta import append_delta
    from holdfast.pipeline.selection import Selection
    from holdfast.pipeline.session import get_session
    from holdfast.pipeline.storage import Tables
    from holdfast.pipeline.watch import watch as follow

    note = notes(quiet)
    config = read_properties(command_config) if command_config else {}
    cluster = LiveCluster(bootstrap=bootstrap, config=config)
    cluster.check()
    quick = count_records(cluster) < SMALL_RECORDS
    spark = get_session(kafka=True, delta=fmt is Stored.DELTA, quick=quick)

    def say(tables: Tables, batch: int) -> None:
        if fmt is Stored.DELTA:
            append_delta(spark, tables, batch)
        if metrics is not None:
            write_metrics(output, metrics)
        note(f"batch {batch}: {tables.rows('rebalances')} rebalances so far")

    with spark_bar(spark, "watch", quiet=quiet):
        follow(
            spark,
            cluster,
            output,
            selection=Selection(groups=group or [], all_groups=all_groups),
            every_seconds=every,
            max_records=max_records,
            auto_offset_reset=str(reset),
            after_batch=say,
        )

"""``holdfast history``: every rebalance of every group, from a live cluster or a dump."""

from __future__ import annotations

from typing import Annotated, Any

from holdfast.cli import options
from holdfast.cli.declared import Option
from holdfast.cli.histories import rows_of, rows_within
from holdfast.cli.option_values import read_window
from holdfast.cli.output import Format, notes, write_table
from holdfast.cli.sources import ALL_TIME, open_source
from holdfast.errors import ConfigError, suggest
from holdfast.fleet.tables.columns.stored import TABLES

EXAMPLES = """\b
Examples:
  holdfast history -b localhost:9092 -o tables
  holdfast history --input dump --group 'etl-*' --table movements
  holdfast history --input dump --table ownership_gaps --format jsonl | jq .topic
"""


def run(
    *,
    source_options: options.SourceOptions,
    output: options.TablesFolder = None,
    table: Annotated[
        str, Option("--table", metavar="TABLE", help="Table to print (rebalances, movements, ...).")
    ] = "rebalances",
    fmt: options.PrintFormat = Format.TABLE,
    columns: options.ColumnsOfTable = options.Columns.MAIN,
    all_groups: options.SparkGroups = False,
    broker_log: options.BrokerLogs = None,
    overwrite: options.Overwrite = False,
    window: options.Window,
) -> None:
    """Rebuild what every group went through from the offsets topic.

    Installs nothing on the broker and joins no group. Prints one row per rebalance; --table prints
    another table, -o writes all of them as Delta tables. A folder that `holdfast watch` writes is
    refused, unless --overwrite allows to replace all of it. If --input is a folder of tables,
    --table prints a table unchanged.
    """
    if table not in TABLES:
        raise ConfigError(f"no table {table!r}; {suggest(table, TABLES)}")
    definition = TABLES[table]
    # A wrong moment is reported before anything slow begins.
    read_window(window.since, window.until)
    if window != ALL_TIME and output is not None:
        raise ConfigError("--since and --until limit what is printed; -o writes whole tables")
    if window != ALL_TIME and "timestamp" not in definition.names:
        raise ConfigError(f"--since and --until: {table} holds one moment only")
    with open_source(
        source_options,
        spark_groups=all_groups,
        broker_logs=broker_log,
        output=output,
        overwrite=overwrite,
    ) as opened:
        if output is not None:
            notes(source_options.quiet)(f"tables are in {output}")
        now_us = None if opened.end_ms is None else opened.end_ms * 1000
        moments = read_window(window.since, window.until, now_us)
        rows = rows_within(opened.tables.table(table, groups=opened.groups), moments)
        write_table(
            definition,
            rows_of(rows),
            fmt,
            title=_title(definition),
            every_column=columns.are_all,
        )


def _title(definition: Any) -> str:
    """Return a table's name; for a table with gaps, add that the broker saw them so."""
    has_gaps = any(name.startswith("gap_") for name in definition.flat_names)
    return f"{definition.name}; gaps as the broker saw them" if has_gaps else definition.name

"""``holdfast lag``: how far every group is behind, per partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli import options
from holdfast.cli.declared import Option
from holdfast.cli.histories import cluster_of, rows_of
from holdfast.cli.option_values import above_zero_s
from holdfast.cli.output import Format, notes, write_rows, write_table
from holdfast.cli.sources import described_lag, is_described, open_source
from holdfast.errors import ConfigError, nearest
from holdfast.fleet.tables.columns.stored import LAG

if TYPE_CHECKING:
    from holdfast.fleet.tables.reading import Tables

EXAMPLES = """\b
Examples:
  holdfast lag -b localhost:9092 --group etl
  holdfast lag -b localhost:9092 --total --min-lag 1000
  holdfast lag --input dump --topic orders --auto-offset-reset earliest
  holdfast lag --input dump --format csv > lag.csv
  holdfast lag --input described.txt --total
"""

_TOTALS = ("group", "lag", "lag_seconds", "n_partitions", "n_unknown", "catch_up_seconds")
_AGES = ("lag_seconds", "catch_up_seconds")
_WITH_CATCH_UP = replace(
    LAG, first=(*LAG.first[:5], "catch_up_seconds", "lag_per_second", *LAG.first[5:])
)


def run(
    *,
    source_options: options.SourceOptions,
    reset: options.OffsetReset = options.Reset.LATEST,
    fmt: options.PrintFormat = Format.TABLE,
    columns: options.ColumnsOfTable = options.Columns.MAIN,
    all_groups: options.SparkGroups = False,
    topic: Annotated[
        list[str] | None,
        Option("--topic", metavar="TOPIC", help="Show this topic only; repeatable; default: all."),
    ] = None,
    total: Annotated[bool, Option("--total", help="Print one row for each group.")] = False,
    min_lag: Annotated[
        int, Option("--min-lag", min=0, help="Show only partitions with at least N records of lag.")
    ] = 0,
    over: Annotated[
        str | None,
        Option(
            "--over",
            metavar="DURATION",
            help="Time between two reads of lags, to estimate the catch-up; default: one read.",
        ),
    ] = None,
    output: options.TablesFolder = None,
) -> None:
    """Show the lag of groups, the largest first, and the owners of partitions.

    Lists partitions that have a commit or an owner. Joins no group and writes nothing. Queries a
    cluster's coordinators, or reads the offsets topic if there are very many groups. A folder of
    tables has the lag at the moment when it was written.
    """
    note = notes(source_options.quiet)
    over_s = None if over is None else above_zero_s(over, "--over")
    rows = None
    if source_options.bootstrap is not None and source_options.source is None and output is None:
        rows = _of_coordinators(
            source_options, all_groups=all_groups, reset=str(reset), over_s=over_s
        )
    elif over_s:
        raise ConfigError("--over queries a cluster twice: give -b, without --input and -o")
    if is_described(source_options.source) and source_options.source is not None and output is None:
        rows = described_lag(source_options.source, source_options.group, str(reset), note)
    if rows is None:
        with open_source(
            source_options, spark_groups=all_groups, auto_offset_reset=str(reset), output=output
        ) as opened:
            if opened.are_stored and reset is not options.Reset.LATEST:
                raise ConfigError(
                    f"{source_options.source} holds tables, whose lag is already computed: omit "
                    "--auto-offset-reset"
                )
            _report_age(opened.tables, note)
            rows = [*rows_of(opened.tables.table("lag", groups=opened.groups))]
    rows = of_topics(rows, topic or ())
    clamped = sum(row["clamped"] != "none" for row in rows)
    if clamped:
        note(f"{clamped} commits lie beyond the end or before the beginning and are clamped")
    rows = sorted(_totals(rows) if total else rows, key=_most_first)
    if min_lag:
        rows = [row for row in rows if (row["lag"] or 0) >= min_lag]
    if total:
        _report_unknown(rows, note)
        write_rows(rows, _TOTALS, fmt, title="lag")
    else:
        table = _WITH_CATCH_UP if over_s else LAG
        write_table(table, rows, fmt, title="lag", every_column=columns.are_all)


def _of_coordinators(
    source_options: options.SourceOptions, *, all_groups: bool, reset: str, over_s: float | None
) -> list[dict[str, Any]] | None:
    """Return rows as coordinators answer; None if there are too many groups."""
    from holdfast.cli.live_groups import live_lag

    rows = live_lag(
        cluster_of(source_options),
        source_options.group or (),
        all_groups=all_groups,
        reset=reset,
        note=notes(source_options.quiet),
        over_s=over_s,
    )
    if rows is None and over_s:
        raise ConfigError("--over: too many groups to read twice; name some with --group")
    return rows


def _report_age(tables: Tables, note: Callable[[str], None]) -> None:
    """Report the age of lags in tables that ``watch`` should update and does not."""
    from holdfast.fleet.analysis.times import read_age

    age = read_age(tables.newest_notes(), time.time_ns() // 1_000_000)
    if age.is_stale():
        note(
            f"log ends were read {age.seconds / 60:,.0f} minutes ago, and lags date from then: "
            "is `watch` running?"
        )


def of_topics(rows: list[dict[str, Any]], topics: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of some topics, or all; a topic that no group reads is refused."""
    there = {row["topic"] for row in rows}
    for name in topics:
        if name not in there:
            raise ConfigError(f"no group reads a topic {name!r}{nearest(name, sorted(there), 3)}")
    return [row for row in rows if row["topic"] in topics] if topics else rows


def _report_unknown(totals: Iterable[dict[str, Any]], note: Callable[[str], None]) -> None:
    """Report that a sum is a lower bound because lags of partitions are unknown."""
    lacking = [total["n_unknown"] for total in totals if total["n_unknown"]]
    if lacking:
        note(
            f"lags of {sum(lacking)} partitions of {len(lacking)} groups are unknown and in no "
            "sum: n_unknown counts them"
        )


def _totals(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row a group: the sum of the known lags, and the longest times.

    Times cover topics that members subscribe to. The age is null if it may be above 0 unseen, the
    time until caught up is null if that of one partition is unknown.
    """
    found: dict[str, dict[str, Any]] = {}
    untimed: set[str] = set()
    never: set[str] = set()
    for row in rows:
        group = row["group"]
        nothing = {"group": group, "lag": None, **dict.fromkeys(_AGES)}
        total = found.setdefault(group, {**nothing, "n_partitions": 0, "n_unknown": 0})
        total["n_partitions"] += 1
        total["n_unknown"] += row["lag"] is None
        if row["lag"] is not None:
            total["lag"] = (total["lag"] or 0) + row["lag"]
        if row["not_subscribed"]:
            continue
        for name, unknown in zip(_AGES, (untimed, never), strict=True):
            if row[name] is not None:
                total[name] = max(total[name] or 0.0, row[name])
            elif row["lag"]:
                unknown.add(group)
    for group in never:
        found[group]["catch_up_seconds"] = None
    for group in untimed:
        found[group]["lag_seconds"] = found[group]["lag_seconds"] or None
    return [*found.values()]


def _most_first(row: dict[str, Any]) -> tuple[int, str, str, int]:
    """Return a sort key: the largest lag first, then by name; an unknown lag is the smallest."""
    lag = -1 if row["lag"] is None else row["lag"]
    return -lag, row["group"], row.get("topic", ""), row.get("partition", 0)

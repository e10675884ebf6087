"""``holdfast lag``: how far every group is behind, per partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from holdfast.cli import options
from holdfast.cli.declared import Option
from holdfast.cli.histories import rows_of, unchecked_cluster
from holdfast.cli.kept_tables import tell_age
from holdfast.cli.output import Format, notes, write_rows
from holdfast.cli.people import for_people
from holdfast.cli.sources import open_source
from holdfast.errors import ConfigError, nearest

EXAMPLES = """\b
Examples:
  holdfast lag -b localhost:9092 --group etl
  holdfast lag -b localhost:9092 --total --min-lag 1000
  holdfast lag --input dump --topic orders --auto-offset-reset earliest
  holdfast lag --input dump --format csv > lag.csv
"""

_TOTALS = ("group", "lag", "lag_seconds", "n_partitions")


def check_topics(wanted: Sequence[str], there: Collection[str]) -> None:
    """Refuse a topic that no group reads, with the nearest names.

    Raises
    ------
    ConfigError
    """
    for name in wanted:
        if name not in there:
            raise ConfigError(f"no group reads a topic {name!r}{nearest(name, sorted(there), 3)}")


def run(
    *,
    asked: options.SourceOptions,
    reset: options.OffsetReset = options.Reset.LATEST,
    fmt: options.PrintFormat = Format.TABLE,
    all_groups: options.SparkGroups = False,
    topic: Annotated[
        list[str] | None, Option("--topic", metavar="TOPIC", help="Only this topic; repeatable.")
    ] = None,
    total: Annotated[bool, Option("--total", help="One row for each group.")] = False,
    min_lag: Annotated[
        int, Option("--min-lag", min=0, help="Only what is behind by so many records, or more.")
    ] = 0,
    output: options.TablesFolder = None,
) -> None:
    """Show how far groups are behind, the most first, and who owns it.

    A partition is listed when it has a commit or an owner. Nothing is joined and nothing written.
    A cluster's coordinators are asked, and of very many groups the offsets topic is read. A folder
    of tables has the lag as of the moment when they were made.
    """
    note = notes(asked.quiet)
    wanted = _Wanted(topic or (), total, min_lag, fmt)
    if asked.bootstrap is not None and asked.source is None and output is None:
        from holdfast.cli.asked_lag import asked_lag

        cluster = unchecked_cluster(asked.bootstrap, asked.command_config, asked.timeout)
        rows = asked_lag(
            cluster, asked.group or (), all_groups=all_groups, reset=str(reset), note=note
        )
        if rows is not None:
            _print_lag(rows, wanted, note)
            return
    with open_source(
        asked, spark_groups=all_groups, auto_offset_reset=str(reset), output=output
    ) as opened:
        if opened.are_kept and reset is not options.Reset.LATEST:
            raise ConfigError(
                f"{asked.source} holds tables, whose lag is settled: leave --auto-offset-reset out"
            )
        tell_age(opened.tables, note)
        _print_lag([*rows_of(opened.tables.table("lag", groups=opened.groups))], wanted, note)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What of the rows is printed, and how."""

    topics: Sequence[str]
    total: bool
    min_lag: int
    fmt: Format


def _print_lag(rows: list[dict[str, Any]], wanted: _Wanted, note: Callable[[str], None]) -> None:
    from holdfast.fleet.tables.columns.stored import LAG

    if wanted.topics:
        check_topics(wanted.topics, {row["topic"] for row in rows})
        rows = [row for row in rows if row["topic"] in wanted.topics]
    clamped = sum(row["clamped"] != "none" for row in rows)
    if clamped:
        note(f"{clamped} commits lie beyond the end or before the beginning and are clamped")
    columns: Sequence[str] = _TOTALS if wanted.total else LAG.flat_names
    rows = sorted(_totals(rows) if wanted.total else rows, key=_most_first)
    shown: Iterable[dict[str, Any]] = rows
    if wanted.min_lag:
        shown = (row for row in rows if (row["lag"] or 0) >= wanted.min_lag)
    if wanted.fmt is Format.TABLE and not wanted.total:
        shown, columns = for_people(LAG, shown)
    write_rows(shown, columns, wanted.fmt, title="lag")


def _totals(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row a group: the sum of the lags that are known, and the longest time; null for neither."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    found = []
    for group, partitions in groups.items():
        lags = [row["lag"] for row in partitions if row["lag"] is not None]
        times = [row["lag_seconds"] for row in partitions if row["lag_seconds"] is not None]
        found.append(
            {
                "group": group,
                "lag": sum(lags) if lags else None,
                "lag_seconds": max(times, default=None),
                "n_partitions": len(partitions),
            }
        )
    return found


def _most_first(row: dict[str, Any]) -> tuple[int, str, str, int]:
    """The largest lag first, then by name; a lag that is not known is the least."""
    lag = -1 if row["lag"] is None else row["lag"]
    return -lag, row["group"], row.get("topic", ""), row.get("partition", 0)

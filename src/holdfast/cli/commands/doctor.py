"""``holdfast doctor``: what ails a fleet of groups, one screen each, worst first."""

from __future__ import annotations

import time
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Annotated

from click.exceptions import Exit

from holdfast.cli import options
from holdfast.cli.declared import Option
from holdfast.cli.output import (
    Format,
    csv_head,
    json_element,
    print_note,
    rows_text,
    track,
    write_json_list,
    write_texts,
)
from holdfast.cli.screen import print_screens
from holdfast.cli.sorted_texts import SortedTexts
from holdfast.cli.sources import open_source

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from holdfast.fleet.analysis.findings.doctor import Ranked, Verdict

SHOWN = 10
_COLUMNS = (
    "group",
    "code",
    "name",
    "severity",
    "active",
    "ended_at",
    "basis",
    "cost_lower_partition_seconds",
    "cost_upper_partition_seconds",
    "downtime_seconds",
    "text",
    "command",
)


class FailOn(StrEnum):
    """``--fail-on``."""

    NEVER = "never"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


EXAMPLES = """\b
Examples:
  holdfast doctor --input tables
  holdfast doctor -b localhost:9092 --group etl --fail-on warn
  holdfast doctor --input dump --format json -o findings.json
"""


def run(
    *,
    source_options: options.SourceOptions,
    fail_on: Annotated[
        FailOn,
        Option("--fail-on", help="Exit 1 if an active finding has this severity or a worse one."),
    ] = FailOn.NEVER,
    fmt: options.PrintFormat = Format.TABLE,
    output: options.OutputFile = None,
    broker_log: options.BrokerLogs = None,
    window: options.RecentWindow,
) -> None:
    """Examine groups, the worst first: what is wrong, what it cost, what helps.

    A finding is active, or past with the time when it ended; --fail-on counts active findings. The
    ten worst groups are printed; --group '*' prints all. JSON has all, by the schema in the docs.
    Every finding has a stable code; `holdfast explain HF104` explains one.
    """
    from holdfast.fleet.analysis.findings import doctor
    from holdfast.fleet.analysis.group.rebuilding import CommitTimes
    from holdfast.fleet.analysis.source_times import read_age

    with open_source(
        source_options,
        window,
        is_cut=False,
        queries_now=True,
        spark_groups=True,
        broker_logs=broker_log,
    ) as opened:
        groups, tables = opened.shown(source_options.group)
        names = doctor.names_of(tables, groups, opened.live)
        shown = SHOWN if fmt is Format.TABLE and not source_options.group else len(names)
        found = doctor.ranked(
            tables,
            names,
            opened.end_ms,
            since_ms=opened.since_ms(options.SINCE_OF_NOW if source_options.bootstrap else None),
            live=opened.live,
            track=lambda names: track(names, len(names), "groups", quiet=source_options.quiet),
            source=opened.given,
            age=read_age(tables, time.time_ns() // 1_000_000),
            commits=CommitTimes(tables, groups),
        )
        if fmt is Format.TABLE:
            worst = _print_worst(found, shown, output)
        else:
            worst = _print_all(found, fmt, output)
    if len(names) > shown and not source_options.quiet:
        print_note(f"{len(names) - shown} more groups: --group '*' shows all")
    if fail_on is not FailOn.NEVER and worst >= list(FailOn).index(fail_on) - 1:
        raise Exit(1)


def _print_worst(found: Iterable[Ranked], most: int, output: Path | None) -> int:
    """Print the screens of the worst groups; return the rank of the worst active finding."""
    from holdfast.fleet.analysis.findings import doctor

    verdicts = doctor.worst_ranked(found, most)
    print_screens(verdicts, output)
    active = (f.severity.rank for v in verdicts for f in v.findings if f.is_active)
    return max(active, default=-1)


def _print_all(found: Iterable[Ranked], fmt: Format, output: Path | None) -> int:
    """Print all groups, the worst first; return the rank of the worst active finding."""
    from holdfast.fleet.analysis.findings import doctor

    worst = -1
    with SortedTexts() as texts:
        for key, make in found:
            verdict, worst = make(), max(worst, -key[0])
            if fmt is Format.JSON:
                texts.add(key, json_element(doctor.group_json(verdict)))
            else:
                texts.add(key, rows_text(_rows(verdict), _COLUMNS, fmt))
        if fmt is Format.JSON:
            head = {"schema_version": doctor.SCHEMA_VERSION}
            write_json_list(head, "groups", texts, output)
        else:
            write_texts(chain([csv_head(_COLUMNS)] * (fmt is Format.CSV), texts), output)
    return worst


def _rows(verdict: Verdict) -> list[dict[str, object]]:
    from holdfast.fleet.analysis.findings.doctor import moment

    return [
        {
            "group": verdict.heading["group"],
            "code": f.code,
            "name": f.rule.name,
            "severity": str(f.severity),
            "active": f.is_active,
            "ended_at": None if f.ended_ms is None else moment(f.ended_ms),
            "basis": str(f.basis),
            "cost_lower_partition_seconds": round(f.cost_lower_s, 3),
            "cost_upper_partition_seconds": round(f.cost_upper_s, 3),
            "downtime_seconds": round(f.cost_upper_s / verdict.n_owned, 3),
            "text": f.text,
            "command": f.command,
        }
        for f in verdict.findings
    ]

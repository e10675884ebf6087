"""``holdfast doctor``: what ails a fleet of groups, one screen each, worst first."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from click.exceptions import Exit

from holdfast.cli import options
from holdfast.cli.declared import Option
from holdfast.cli.output import Format, print_note, track, write_json, write_rows
from holdfast.cli.screen import print_screens
from holdfast.cli.sources import open_source

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.fleet.report.findings.examination import Examination

SHOWN = 10
_COLUMNS = (
    "group",
    "code",
    "name",
    "severity",
    "basis",
    "cost_lower_partition_seconds",
    "cost_upper_partition_seconds",
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
    asked: options.SourceOptions,
    fail_on: Annotated[
        FailOn, Option("--fail-on", help="Exit 1 on findings this bad or worse.")
    ] = FailOn.NEVER,
    fmt: options.PrintFormat = Format.TABLE,
    output: options.OutputFile = None,
    broker_log: options.BrokerLogs = None,
    window: options.Window,
) -> None:
    """Look at groups, the worst first: what is wrong, what it cost, what helps.

    The ten worst are printed; --group '*' prints all. JSON has all, by the schema in the docs.
    Every finding has a stable code; `holdfast explain HF104` tells more about one.
    """
    from holdfast.fleet.report.findings import doctor

    with open_source(asked, window, spark_groups=True, broker_logs=broker_log) as opened:
        groups, tables = opened.shown(asked.group)
        found = doctor.examine_fleet(
            tables,
            groups,
            track=lambda names: track(names, len(names), "groups", quiet=asked.quiet),
            source=opened.given,
            now_ms=time.time_ns() // 1_000_000,
        )
    _print(found, fmt, output, every=bool(asked.group), quiet=asked.quiet)
    _fail(found, fail_on)


def _fail(found: list[Examination], fail_on: FailOn) -> None:
    """Exit 1 if a finding is as bad as ``--fail-on`` says, or worse."""
    worst = max((f.severity.rank for e in found for f in e.findings), default=-1)
    if fail_on is not FailOn.NEVER and worst >= list(FailOn).index(fail_on) - 1:
        raise Exit(1)


def _print(
    found: list[Examination], fmt: Format, output: Path | None, *, every: bool, quiet: bool
) -> None:
    from holdfast.fleet.report.findings import doctor

    if fmt is Format.JSON:
        write_json(doctor.to_json(found), output)
    elif fmt is Format.TABLE:
        print_screens(found if every else found[:SHOWN], output)
        if len(found) > SHOWN and not (every or quiet):
            print_note(f"{len(found) - SHOWN} more groups: --group '*' shows all")
    else:
        write_rows(_rows(found), _COLUMNS, fmt, output)


def _rows(found: list[Examination]) -> list[dict[str, object]]:
    from holdfast.fleet.report.findings.examination import all_rules

    names = {rule.code: rule.name for rule in all_rules()}
    return [
        {
            "group": e.facts.group,
            "code": f.code,
            "name": names[f.code],
            "severity": str(f.severity),
            "basis": str(f.basis),
            "cost_lower_partition_seconds": round(f.cost_lower_s, 3),
            "cost_upper_partition_seconds": round(f.cost_upper_s, 3),
            "text": f.text,
            "command": f.command,
        }
        for e in found
        for f in e.findings
    ]

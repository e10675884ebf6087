"""``holdfast doctor``: what ails a fleet of groups, one screen each, worst first."""

from __future__ import annotations

import tempfile
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from click.exceptions import Exit
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

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
from holdfast.cli.sources import open_source
from holdfast.core.names import harmless, visible
from holdfast.fleet.tables.storage.file_system import open_private

if TYPE_CHECKING:
    from holdfast.fleet.analysis.findings.doctor import Ranked, Verdict
    from holdfast.fleet.analysis.findings.finding import Evidence, Finding

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
    from holdfast.fleet.analysis.group.rebalances import CommitTimes
    from holdfast.fleet.analysis.times import read_age

    with open_source(
        source_options,
        window,
        for_findings=True,
        spark_groups=True,
        broker_logs=broker_log,
    ) as opened:
        groups, tables = opened.shown(source_options.group)
        examining = doctor.Doctor(
            tables=tables,
            groups=groups,
            last_ms=opened.end_ms,
            since_ms=opened.since_ms(options.SINCE_OF_NOW if source_options.bootstrap else None),
            live=opened.live,
            track=lambda names: track(names, len(names), "groups", quiet=source_options.quiet),
            source=opened.given,
            age=read_age(tables.newest_notes(), time.time_ns() // 1_000_000),
            commits=CommitTimes(tables, groups),
        )
        n_groups, found = len(examining.names), examining.ranked()
        shown = SHOWN if fmt is Format.TABLE and not source_options.group else n_groups
        if fmt is Format.TABLE:
            worst = _print_worst(found, shown, output)
        else:
            worst = _write_all(found, fmt, output)
    if n_groups > shown and not source_options.quiet:
        print_note(f"{n_groups - shown} more groups: --group '*' shows all")
    if fail_on is not FailOn.NEVER and worst >= list(FailOn).index(fail_on) - 1:
        raise Exit(1)


def _print_worst(found: Iterable[Ranked], most: int, output: Path | None) -> int:
    """Print the screens of the worst groups; return the rank of the worst active finding."""
    from holdfast.fleet.analysis.findings import doctor

    verdicts = doctor.worst_ranked(found, most)
    with nullcontext() if output is None else open_private(output) as file:
        _print_screens(Console(file=file, highlight=False), verdicts)
    active = (f.severity.rank for v in verdicts for f in v.findings if f.is_active)
    return max(active, default=-1)


def _write_all(found: Iterable[Ranked], fmt: Format, output: Path | None) -> int:
    """Write all groups, the worst first; return the rank of the worst active finding."""
    from holdfast.fleet.analysis.findings import doctor

    worst = -1
    with tempfile.TemporaryFile(prefix="holdfast-") as file:
        texts = SortedTexts(file)
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


class SortedTexts:
    """Texts that are written in the order of their keys, which is known once all are there.

    An empty file of the caller holds the texts; only their keys are in memory.
    """

    def __init__(self, file: IO[bytes]):
        self._file = file
        self._ends = array("q", [0])
        self._keys: list[Any] = []

    def add(self, key: Any, text: str) -> None:
        """Add a text; keys are comparable with each other."""
        self._ends.append(self._ends[-1] + self._file.write(text.encode()))
        self._keys.append(key)

    def __iter__(self) -> Iterator[str]:
        """Yield the texts by their keys; of equal keys the first one first."""
        for i in sorted(range(len(self._keys)), key=self._keys.__getitem__):
            self._file.seek(self._ends[i])
            yield self._file.read(self._ends[i + 1] - self._ends[i]).decode()


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


_STYLE = {"error": "bold red", "warn": "bold yellow", "info": "bold cyan"}


def _print_screens(console: Console, found: Sequence[Verdict]) -> None:
    from holdfast.fleet.report.drawing.markup import UP_TO

    for verdict in found:
        _print_heading(console, verdict)
        active = [f for f in verdict.findings if f.is_active]
        if not active:
            if _is_unread(verdict):
                _indented(console, "not examined: no record of it could be read", 2)
            else:
                what = "nothing active" if verdict.findings else "nothing found"
                _indented(console, what, 2, style="green")
        for finding in verdict.findings:
            if finding.follows:  # below its cause: what it adds, in a line or two
                head = f"consequence: {finding.code} {finding.rule.name}: {finding.text}"
                _indented(console, head, 8, style="dim")
            else:
                _print_finding(console, finding, verdict.n_owned)
        console.print()
    costs = [_cost(**v.heading["cost_partition_seconds"], n_owned=v.n_owned) for v in found]
    if any(cost.startswith("up to") for cost in costs):
        _indented(console, UP_TO, 2, style="dim")


def _print_heading(console: Console, verdict: Verdict) -> None:
    from holdfast.fleet.analysis.findings.finding import count

    head = verdict.heading
    generation = "none" if head["generation"] is None else head["generation"]
    state = [
        head["state"],
        "/".join(head["group_type"]) or "unknown type",
        visible(head["protocol"] or "no protocol"),
        count(head["members"], "member"),
        count(head["partitions"], "partition"),
        f"generation {generation}",
    ]
    _indented(console, visible(head["group"]), 0, style="bold")
    if head["now"] is not None:
        _indented(console, _now(head["now"]), 2)
    if not _is_unread(verdict):
        _indented(console, ", ".join(state), 2)
    if head["window"]["from"] and not _is_unread(verdict):
        cost = _cost(**head["cost_partition_seconds"], n_owned=verdict.n_owned)
        window = _window(head["window"]["from"], head["window"]["to"])
        rounds = count(head["rebalances"], "rebalance")
        by = " by polls" if head["polled"] else ""
        _indented(console, f"{window} UTC{by}: {rounds}, downtime {cost}", 2, style="dim")


def _is_unread(verdict: Verdict) -> bool:
    """Return whether nothing is known of a group: no record, and no answer of its coordinator."""
    head, now = verdict.heading, verdict.heading["now"]
    if verdict.findings or now is None or now["n_members"] is not None:
        return False
    return head["generation"] is None and not head["group_type"]


def _now(now: dict[str, Any]) -> str:
    """Return the present state: ``now Stable, 2 members: a on /10.0.0.7, b on /10.0.0.8``."""
    from holdfast.cluster.snapshot import member_label
    from holdfast.fleet.analysis.findings.finding import count, more

    when = f"(queried {now['asked_at'][11:19]} UTC)"
    if now["state"] is None:
        return f"now not listed by any broker {when}"
    if now["n_members"] is None:
        why = f": {now['refused']}" if now["refused"] else ""
        return f"now {now['state']} {when}{why}"
    named = [
        visible(
            member_label(
                instance_id=one["group_instance_id"],
                client_id=one["client_id"],
                member_id=one["member_id"],
                client_host=one["client_host"],
            )
        )
        for one in now["members"]
    ]
    said = f": {', '.join(named)}{more(now['n_members'] - len(named))}" if named else ""
    return f"now {now['state']} {when}, {count(now['n_members'], 'member')}{said}"


def _print_finding(console: Console, finding: Finding, n_owned: int) -> None:
    from holdfast.fleet.analysis.findings.doctor import moment

    about = [str(finding.basis)]
    if finding.cost_upper_s:
        about.append(_cost(finding.cost_lower_s, finding.cost_upper_s, n_owned))
    label, style = str(finding.severity), _STYLE[finding.severity]
    if finding.ended_ms is not None:
        ended = moment(finding.ended_ms)[:19].replace("T", " ")
        about.insert(0, f"{label} until {ended}")
        label, style = "past", "dim"
    head = Text.assemble(
        "  ",
        (f"{label:<5}", style),
        (f" {finding.code} ", "bold"),
        f"{finding.rule.name} ",
        (f"({', '.join(about)})", "dim"),
    )
    console.print(head, soft_wrap=not console.is_terminal)
    _indented(console, finding.text, 8)
    _indented(console, _evidence(finding.evidence), 8, style="dim")
    if finding.command:
        console.print(Text(f"        $ {harmless(finding.command)}", style="green"), soft_wrap=True)


def _indented(console: Console, text: str, by: int, *, style: str = "") -> None:
    """Print text with so many blanks before each line; beside a terminal it is one line."""
    if not text:
        return
    if console.is_terminal:
        console.print(Padding(Text(harmless(text), style=style), (0, 0, 0, by), expand=False))
    else:
        console.print(Text(" " * by + harmless(text), style=style), soft_wrap=True)


def _cost(lower: float, upper: float, n_owned: int) -> str:
    """Return a text such as ``up to 12 min a partition``."""
    from holdfast.fleet.report.drawing.markup import downtime

    return f"{downtime(lower / n_owned, upper / n_owned)} a partition"


def _window(first: str, last: str) -> str:
    """Return begin and end; the day of the end only if it differs."""
    begin, end = (text[:19].replace("T", " ") for text in (first, last))
    return f"{begin} to {end[11:] if begin[:10] == end[:10] else end}"


def _evidence(evidence: Evidence) -> str:
    from holdfast.fleet.analysis.findings.doctor import moment
    from holdfast.fleet.analysis.findings.finding import generations_of

    parts = [generations_of(evidence)]
    if evidence.from_ms >= 0:
        first, last = moment(evidence.from_ms), moment(evidence.to_ms)
        is_span = first[:19] != last[:19]
        parts.append(_window(first, last) if is_span else first[:19].replace("T", " "))
    parts += [names.text(" ", 5) for names in (evidence.members, evidence.partitions)]
    return "; ".join(filter(None, parts))

"""The doctor's screen of a group: a heading, then its findings, the worst first.

**Rules.** Every line fits the terminal, except commands: a command is one line, so that it can be
copied. Names are data from strangers and go through :func:`holdfast.core.names.visible`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from holdfast.core.names import harmless, visible
from holdfast.fleet.tables.storage.private import open_private

if TYPE_CHECKING:
    from holdfast.fleet.report.findings.doctor import Verdict
    from holdfast.fleet.report.findings.finding import Evidence, Finding

FILE_WIDTH = 110
_STYLE = {"error": "bold red", "warn": "bold yellow", "info": "bold cyan"}


def print_screens(found: Sequence[Verdict], target: Path | None) -> None:
    """Print the screens of ``found`` to a file or stdout."""
    width = None if target is None else FILE_WIDTH
    with nullcontext() if target is None else open_private(target) as file:
        _print_all(Console(file=file, highlight=False, width=width), found)


def _print_all(console: Console, found: Sequence[Verdict]) -> None:
    for verdict in found:
        _print_heading(console, verdict.heading)
        for finding in verdict.findings:
            if finding.follows:  # below its cause: what it adds, in a line or two
                head = f"so {finding.code} {finding.rule.name}: {finding.text}"
                _indented(console, head, 8, style="dim")
            else:
                _print_finding(console, finding)
        if not verdict.findings:
            console.print(Text("  nothing found", style="green"))
        console.print()


def _print_heading(console: Console, head: dict[str, Any]) -> None:
    from holdfast.fleet.report.findings.finding import count

    generation = "none" if head["generation"] is None else head["generation"]
    state = [
        head["state"],
        "/".join(head["group_type"]) or "unknown type",
        visible(head["protocol"] or "no protocol"),
        count(head["members"], "member"),
        count(head["partitions"], "partition"),
        f"generation {generation}",
    ]
    console.print(Text(visible(head["group"]), style="bold"))
    _indented(console, ", ".join(state), 2)
    if head["window"]["from"]:
        cost = _cost(**head["cost_partition_seconds"])
        window = _window(head["window"]["from"], head["window"]["to"])
        rounds = count(head["rebalances"], "rebalance")
        heading = f"{window} UTC: {rounds}, cost {cost} as the broker saw it"
        _indented(console, heading, 2, style="dim")


def _print_finding(console: Console, finding: Finding) -> None:
    cost = _cost(finding.cost_lower_s, finding.cost_upper_s)
    head = (
        Text(f"{finding.severity:<5}", style=_STYLE[finding.severity])
        + Text(f" {finding.code} ", style="bold")
        + Text(f"{finding.rule.name} ")
        + Text(f"({finding.basis}, {cost})", style="dim")
    )
    console.print(Padding(head, (0, 0, 0, 2), expand=False))
    _indented(console, finding.text, 8)
    _indented(console, _evidence(finding.evidence), 8, style="dim")
    if finding.command:
        console.print(Text(f"        $ {harmless(finding.command)}", style="green"), soft_wrap=True)


def _indented(console: Console, text: str, by: int, *, style: str = "") -> None:
    if text:
        console.print(Padding(Text(harmless(text), style=style), (0, 0, 0, by), expand=False))


def _cost(lower: float, upper: float) -> str:
    """Such as ``12 to 75.6 partition-seconds``."""
    low, high = (f"{value:,.1f}".removesuffix(".0") for value in (lower, max(lower, upper)))
    unit = "partition-second" if high == "1" else "partition-seconds"
    return f"{high} {unit}" if low == high else f"{low} to {high} {unit}"


def _window(first: str, last: str) -> str:
    """From and to, the day of the second one only where it is another."""
    begin, end = (text[:19].replace("T", " ") for text in (first, last))
    return f"{begin} to {end[11:] if begin[:10] == end[:10] else end}"


def _evidence(evidence: Evidence) -> str:
    from holdfast.fleet.report.findings.doctor import moment
    from holdfast.fleet.report.findings.finding import generations_of

    parts = [generations_of(evidence)]
    if evidence.from_ms >= 0:
        first, last = moment(evidence.from_ms), moment(evidence.to_ms)
        is_span = first[:19] != last[:19]
        parts.append(_window(first, last) if is_span else first[:19].replace("T", " "))
    parts += [names.text(" ", 5) for names in (evidence.members, evidence.partitions)]
    return "; ".join(filter(None, parts))

"""``holdfast upgrade-check``: may these members be bounced to those settings, and why not.

**Rules.** The command reads its arguments and joins no group. Exit 1 when a step is unsafe.

**Strategy.** :mod:`holdfast.machine.upgrade` judges the steps; this module has options and shapes.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.options import OutputFile, PrintFormat
from holdfast.cli.output import Format, print_note, write_json, write_rows
from holdfast.errors import ConfigError, SourceError
from holdfast.machine.upgrade import (
    JAVA_NAMES,
    Client,
    Config,
    UpgradeFinding,
    check_step,
    plan_upgrade,
)

_WORDS = ("id", "assignors", "next", "client", "version", "protocol_type")
_COLUMNS = ("step", "verdict", "rule", "text", "advice")

EXAMPLES = """\b
Examples:
  holdfast upgrade-check --from range --to cooperative-sticky
  holdfast upgrade-check --from range --to cooperative-sticky,range
  holdfast upgrade-check --from cooperative-sticky --to holdfast-deferred \\
    --plan
  holdfast upgrade-check members.json
\b
A file: {"members": [{"id": "a", "assignors": ["range"], "client": "java",
"version": "2.3", "next": ["cooperative-sticky", "range"]}]};
a member without "next" is not bounced.
"""


def run(
    *,
    members: Annotated[
        str | None, typer.Argument(metavar="[MEMBERS.json|-]", help="- reads stdin.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="Assignors of all members now: a,b.")
    ] = None,
    goal: Annotated[str | None, typer.Option("--to", help="Assignors after the bounce.")] = None,
    client: Annotated[Client, typer.Option("--client", help="Of all members.")] = Client.HOLDFAST,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say which bounces lead there safely.")
    ] = False,
    fmt: PrintFormat = Format.TABLE,
    output: OutputFile = None,
) -> None:
    """Check whether one rolling bounce to other assignors is safe, and say why not.

    Exit codes: 0 safe; 1 not safe; 2 a wrong option; 3 the file cannot be read.
    """
    if members is not None:
        before, after = _read(members)
    elif start is not None and goal is not None:
        before = [Config(assignors=_names(start), client=client)]
        after = [Config(assignors=_names(goal), client=client)]
    else:
        raise ConfigError("found neither a file nor --from and --to")
    steps = [(before, after)]
    if plan:
        ways = [plan_upgrade(a, b) for a, b in zip(before, after, strict=True)]
        print_note(f"bounces: {' -> '.join(str(c) for c in ways[0]) or 'none needed'}")
        steps = _pairs(before, ways)
    rows = [
        _row(number, finding)
        for number, (a, b) in enumerate(steps, start=1)
        for finding in check_step(a, b)
    ]
    safe = not any(row["verdict"] == "unsafe" for row in rows)
    if fmt is Format.JSON:
        write_json({"schema_version": 1, "safe": safe, "findings": rows}, output)
    else:
        if safe:
            print_note("safe")
        write_rows(rows, _COLUMNS, fmt, output)
    if not safe:
        raise typer.Exit(1)


def _row(step: int, finding: UpgradeFinding) -> dict[str, Any]:
    return {
        "step": step,
        "verdict": "unsafe" if finding.unsafe else "note",
        "rule": finding.rule,
        "text": finding.text,
        "advice": finding.advice,
    }


def _pairs(
    before: list[Config], ways: list[list[Config]]
) -> list[tuple[list[Config], list[Config]]]:
    """Bounce by bounce; a member with fewer bounces stays where it is."""
    steps, now = [], before
    for number in range(max((len(w) for w in ways), default=0)):
        after = [w[min(number, len(w) - 1)] if w else c for w, c in zip(ways, now, strict=True)]
        steps.append((now, after))
        now = after
    return steps


def _names(text: str) -> tuple[str, ...]:
    names = [JAVA_NAMES.get(part.strip(), part.strip()) for part in text.split(",")]
    return tuple(name for name in names if name)


def _read(name: str) -> tuple[list[Config], list[Config]]:
    """Settings of the members in a file, before and after the bounce."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        rows = json.loads(text)["members"]
        before = [_config(row, row["assignors"]) for row in rows]
        after = [_config(row, row.get("next", row["assignors"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise SourceError(
            f"{name}: not a list of members: {why}; `holdfast upgrade-check --help` shows one"
        ) from error
    return before, after


def _config(row: dict[str, Any], assignors: Any) -> Config:
    """One member's settings; a word that is not known might be the one that matters."""
    unknown = sorted(set(row).difference(_WORDS))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}, expected some of {', '.join(_WORDS)}")
    if not isinstance(assignors, list) or not all(isinstance(a, str) for a in assignors):
        raise ValueError(f"assignors {assignors!r}, expected a list of names")
    version = str(row.get("version", ""))
    numbers = re.match(r"\d+(\.\d+)*", version, re.ASCII)
    if version and numbers is None:
        raise ValueError(f"version {version!r}, expected one such as 2.3")
    return Config(
        assignors=tuple(JAVA_NAMES.get(a, str(a)) for a in assignors),
        client=Client(row.get("client", "holdfast")),
        version=tuple(map(int, numbers[0].split("."))) if numbers else (),
        protocol_type=str(row.get("protocol_type", "consumer")),
    )

"""``holdfast upgrade-check``: may these members be bounced to those settings, and why not.

**Rules.** The command reads its arguments and joins no group. Exit 1 when a step is unsafe.

**Strategy.** :mod:`holdfast.core.machine.upgrade` judges the steps; this module has options and
shapes.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from click.exceptions import Exit

from holdfast.cli.declared import Argument, Option
from holdfast.cli.options import OutputFile, PrintFormat
from holdfast.cli.output import Format, print_note, write_json, write_rows
from holdfast.core.assignors.registry import canonical
from holdfast.core.command_lines import holdfast_line
from holdfast.core.machine.upgrade import (
    Client,
    Config,
    UpgradeFinding,
    check_step,
    plan_group,
)
from holdfast.errors import ConfigError, SourceError

_SIDE = ("assignors", "client", "version", "protocol_type")
_WORDS = ("id", "next", *_SIDE)
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
"next" may also be an object with the keys that change, for example
{"assignors": ["cooperative-sticky"], "version": "3.9"}. A member without
"next" goes to --to, and is not bounced if there is no --to either.
"""


def run(
    *,
    members: Annotated[
        str | None, Argument(metavar="[MEMBERS.json|-]", help="- reads stdin.")
    ] = None,
    start: Annotated[
        str | None, Option("--from", help="Assignors of all members now: a,b.")
    ] = None,
    goal: Annotated[str | None, Option("--to", help="Assignors after the bounce.")] = None,
    client: Annotated[Client, Option("--client", help="Of all members.")] = Client.HOLDFAST,
    plan: Annotated[bool, Option("--plan", help="Say which bounces lead there safely.")] = False,
    fmt: PrintFormat = Format.TABLE,
    output: OutputFile = None,
) -> None:
    """Check whether one rolling bounce to other assignors is safe, or why not.

    Exit codes: 0 safe; 1 not safe; 2 a wrong option; 3 the file cannot be read.
    """
    if members is not None:
        if start is not None:
            raise ConfigError("--from: the file says what its members have now; leave one of both")
        bounces = _read(members, None if goal is None else _names(goal))
    elif start is not None and goal is not None:
        before = Config(assignors=_names(start), client=client)
        after = replace(before, assignors=_names(goal))
        bounces = [Bounce(member="all", before=before, after=after)]
    else:
        raise ConfigError("found neither a file nor --from and --to")
    now, then = [b.before for b in bounces], [b.after for b in bounces]
    stages = plan_group(now, then) if plan else [now, then]
    rows = [
        _row(number, finding)
        for number, (a, b) in enumerate(pairwise(stages if len(stages) > 1 else stages * 2), 1)
        for finding in check_step(a, b)
    ]
    safe = not any(row["verdict"] == "unsafe" for row in rows)
    shown = _grouped([b.member for b in bounces], stages) if safe else []
    if plan:
        for line in (text for entry in shown for text in _way_text(entry, len(shown) > 1)):
            print_note(line)
    if fmt is Format.JSON:
        found = {"schema_version": 1, "safe": safe, "findings": rows}
        write_json(found | ({"bounces": shown} if plan else {}), output)
    else:
        if safe:
            print_note("safe")
        write_rows(rows, _COLUMNS, fmt, output)
    if not safe:
        raise Exit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounce:
    """One member, before and after."""

    member: str
    before: Config
    after: Config


def _row(step: int, finding: UpgradeFinding) -> dict[str, Any]:
    return {
        "step": step,
        "verdict": "unsafe" if finding.unsafe else "note",
        "rule": finding.rule,
        "text": finding.text,
        "advice": finding.advice,
    }


def _grouped(members: list[str], stages: list[list[Config]]) -> list[dict[str, Any]]:
    """Members with the same way, once."""
    found: dict[tuple[Config, ...], list[str]] = {}
    for member, way in zip(members, zip(*stages, strict=True), strict=True):
        found.setdefault(way, []).append(member)
    return [
        {
            "members": members,
            "from": _shown(way[0]),
            "steps": [
                {"bounce": number, "before": _shown(before), **_shown(after)}
                for number, (before, after) in enumerate(pairwise(way), 1)
                if before != after
            ],
        }
        for way, members in found.items()
    ]


def _shown(config: Config) -> dict[str, Any]:
    return {
        "client": config.client,
        "assignors": list(config.assignors),
        "setting": config.setting,
    }


def _way_text(entry: dict[str, Any], several: bool) -> list[str]:
    """What the client is configured with before and after, two lines a bounce."""
    who = f" of {', '.join(entry['members'])}" if several else ""
    if not entry["steps"]:
        return [f"bounces{who}: none needed"]
    return [
        f"bounce {step['bounce']}{who}, {when}: {side['client']}: {side['setting']}"
        for step in entry["steps"]
        for when, side in (("before", step["before"]), ("after", step))
    ]


def _names(text: str) -> tuple[str, ...]:
    names = [canonical(part.strip()) for part in text.split(",")]
    return tuple(name for name in names if name)


def _read(name: str, goal: tuple[str, ...] | None) -> list[Bounce]:
    """The members in a file, before and after the bounce."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        return _bounces(json.loads(text)["members"], goal)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error)
        line = holdfast_line("upgrade-check", "--help")
        raise SourceError(f"{name}: not a list of members: {why}; `{line}` shows one") from error


def _bounces(rows: list[dict[str, Any]], goal: tuple[str, ...] | None) -> list[Bounce]:
    if not rows:
        raise ValueError("it is empty")
    return [_bounce(row, number, goal) for number, row in enumerate(rows, start=1)]


def _bounce(row: dict[str, Any], number: int, goal: tuple[str, ...] | None) -> Bounce:
    """One member; a word that is not known might be the one that matters."""
    _check_words(row, _WORDS)
    before = {word: value for word, value in row.items() if word not in ("id", "next")}
    after = row.get("next", before["assignors"] if goal is None else list(goal))
    if not isinstance(after, dict):
        after = {"assignors": after}
    _check_words(after, _SIDE)
    return Bounce(
        member=str(row.get("id", number)), before=_config(before), after=_config(before | after)
    )


def _check_words(row: dict[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(set(row).difference(known))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}, expected some of {', '.join(known)}")


def _config(row: dict[str, Any]) -> Config:
    """One side of a member."""
    assignors = row["assignors"]
    if not isinstance(assignors, list) or not all(isinstance(a, str) for a in assignors):
        raise ValueError(f"assignors {assignors!r}, expected a list of names")
    version = str(row.get("version", ""))
    numbers = re.match(r"\d+(\.\d+)*", version, re.ASCII)
    if version and numbers is None:
        raise ValueError(f"version {version!r}, expected one such as 2.3")
    return Config(
        assignors=tuple(canonical(a) for a in assignors),
        client=Client(row.get("client", "holdfast")),
        version=tuple(map(int, numbers[0].split("."))) if numbers else (),
        protocol_type=str(row.get("protocol_type", "consumer")),
    )

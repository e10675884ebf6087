"""``holdfast upgrade-check``: whether members can be bounced to other settings, and why not.

**Rules.** The command reads its arguments and joins no group. Exit 1 when a step is unsafe.

**Strategy.** :mod:`holdfast.core.machine.upgrade` judges the steps; this module has the options
and the output.
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
from holdfast.cli.option_values import import_from_here
from holdfast.cli.options import OutputFile, PrintFormat
from holdfast.cli.output import Format, write_json, write_rows, write_text
from holdfast.core.assignors.registry import ASSIGNORS, canonical
from holdfast.core.command_lines import holdfast_line
from holdfast.core.machine.policy import DESIGNS, POLICIES
from holdfast.core.machine.upgrade import (
    Client,
    Config,
    ListedAssignor,
    UpgradeFinding,
    check_step,
    default_assignors,
    needs_policy,
    plan_group,
)
from holdfast.core.names import visible
from holdfast.errors import ConfigError, SourceError, suggest

_SIDE = ("assignors", "client", "version", "protocol_type")
_WORDS = ("id", "next", *_SIDE)
_COLUMNS = ("step", "verdict", "rule", "text", "advice")

EXAMPLES = """\b
Examples:
  holdfast upgrade-check --from range --to cooperative-sticky
  holdfast upgrade-check --from range --to cooperative-sticky,range
  holdfast upgrade-check --from cooperative-sticky --to holdfast-deferred \\
    --plan
  holdfast upgrade-check --to failback --plan
  holdfast upgrade-check --to shop.rebalancing:by_size,range
  holdfast upgrade-check members.json
\b
A file: {"members": [{"id": "a", "assignors": ["range"], "client": "java",
"version": "2.3", "next": ["cooperative-sticky", "range"]}]};
"next" may also be an object with the keys that change, for example
{"assignors": ["cooperative-sticky"], "version": "3.9"}. A member without
"assignors" has its client's default. A member without "next" goes to --to, and
is not bounced if there is no --to either.
"""


def run(
    *,
    members: Annotated[
        str | None,
        Argument(metavar="[MEMBERS.json|-]", help="JSON file of members; - reads stdin."),
    ] = None,
    start: Annotated[
        str | None,
        Option(
            "--from",
            metavar="A,B",
            help="Assignors of all members now; default: those of the client.",
        ),
    ] = None,
    goal: Annotated[
        str | None, Option("--to", metavar="A,B", help="Assignors after the bounce.")
    ] = None,
    client: Annotated[
        Client,
        Option("--client", metavar="CLIENT", help=f"Client of all members: {', '.join(Client)}."),
    ] = Client.HOLDFAST,
    plan: Annotated[
        bool, Option("--plan", help="Print the bounces that lead there safely.")
    ] = False,
    fmt: PrintFormat = Format.TABLE,
    output: OutputFile = None,
) -> None:
    """Check whether one rolling bounce to other assignors is safe, or why not.

    Exit codes: 0 safe; 1 not safe; 2 a wrong option; 3 the file cannot be read.
    """
    bounces = _read_bounces(members, start, goal, client)
    sides = [b.before for b in bounces], [b.after for b in bounces]
    stages = plan_group(*sides) if plan else [*sides]
    rows = [
        _row(number, finding)
        for number, (a, b) in enumerate(pairwise(stages if len(stages) > 1 else stages * 2), 1)
        for finding in check_step(a, b)
    ]
    safe = not any(row["verdict"] == "unsafe" for row in rows)
    shown = _grouped([b.member for b in bounces], stages) if safe else []
    if fmt is Format.JSON:
        found = {"schema_version": 1, "safe": safe, "findings": rows}
        write_json(found | ({"bounces": shown} if plan else {}), output)
    else:
        lines = [row for entry in shown for row in _way_rows(entry, len(shown) > 1)] if plan else []
        lines += [
            _verdict_row("safe" if safe else "unsafe", "" if safe else "a reason follows"),
            *rows,
        ]
        if fmt is Format.TABLE:
            write_text("".join(f"{_line(row)}\n" for row in lines), output)
        else:
            write_rows(lines, _COLUMNS, fmt, output)
    if not safe:
        raise Exit(1)


def _read_bounces(
    members: str | None, start: str | None, goal: str | None, client: Client
) -> list[Bounce]:
    """Return what each member has before and after the bounce, by a file or by options."""
    if members is not None:
        if start is not None:
            raise ConfigError(
                "--from and a file exclude each other: the file says what members have now"
            )
        return _read(members, None if goal is None else _words_of(goal))
    if goal is None:
        raise ConfigError("a file or --to is missing: the assignors of members after the bounce")
    now = _Listed(assignors=default_assignors(client))
    now = now if start is None else _listed(_words_of(start), "--from")
    before = now.of(Config(assignors=(), client=client))
    after = _listed(_words_of(goal), "--to").of(before)
    return [Bounce(member="all", before=before, after=after)]


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
    """Merge members whose stages are equal."""
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
    version = {"version": ".".join(map(str, config.version))} if config.version else {}
    return {
        "client": config.client,
        **version,
        "assignors": list(config.assignors),
        "setting": config.setting,
    }


def _client_of(side: dict[str, Any]) -> str:
    """Return a client as a plan names it, with the version that it has or needs."""
    return " ".join(side[key] for key in ("client", "version") if key in side)


def _way_rows(entry: dict[str, Any], several: bool) -> list[dict[str, Any]]:
    """Return the client's configuration before and after, two rows a bounce."""
    who = f" of {', '.join(entry['members'])}" if several else ""
    if not entry["steps"]:
        return [_verdict_row("bounce", f"bounces{who}: none needed")]
    return [
        _verdict_row(
            "bounce",
            f"bounce {step['bounce']}{who}, {when}: {_client_of(side)}: {side['setting']}",
            step["bounce"],
        )
        for step in entry["steps"]
        for when, side in (("before", step["before"]), ("after", step))
    ]


def _verdict_row(verdict: str, text: str, step: int | None = None) -> dict[str, Any]:
    """Return a row without a finding: a bounce of the plan, or the verdict on all."""
    return {"step": step, "verdict": verdict, "rule": "", "text": text, "advice": ""}


def _line(row: dict[str, Any]) -> str:
    """Return the text of a row for people."""
    if row["verdict"] == "bounce":
        return visible(row["text"])
    if not row["rule"]:
        return str(row["verdict"])
    return visible(f"{row['verdict']} {row['rule']}: {row['text']}: {row['advice']}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """What a list of names means for members."""

    assignors: tuple[str, ...]
    policy: str = ""
    own: tuple[ListedAssignor, ...] = ()

    def of(self, config: Config) -> Config:
        """Return the same member with this list."""
        return replace(config, assignors=self.assignors, policy=self.policy, own=self.own)


def _words_of(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _listed(words: list[str], flag: str) -> _Listed:
    """Read a list; ``failback`` means its design's protocol with ``holdfast.policy`` beside it.

    Raise ConfigError for a policy that its members' protocol already implies, for two policies that
    it does not, or for a user's assignor that cannot be imported.
    """
    names: dict[str, None] = {}
    policies, own = [], []
    for name in map(canonical, words):
        if needs_policy(name):
            policies.append(name)
            names |= dict.fromkeys(POLICIES[name].protocols)
            continue
        if name in POLICIES and name not in ASSIGNORS and name not in POLICIES[name].protocols:
            offered = ",".join(POLICIES[name].protocols)
            raise ConfigError(f"{flag}: {name!r} is a policy; its members support {offered}")
        if name not in ASSIGNORS and name not in DESIGNS and ("." in name or ":" in name):
            own.append(_own(name))
        names[name] = None
    if len({*policies}) > 1:
        raise ConfigError(f"{flag}: {' and '.join(policies)}: a member has one policy")
    return _Listed(assignors=tuple(names), policy="".join(policies[:1]), own=tuple(own))


def _own(name: str) -> ListedAssignor:
    """Import a user's assignor as its members import it, from the current folder first."""
    import_from_here()
    from holdfast.members.config.own_assignors import make_assignor, resolve

    found = make_assignor(resolve(name), {})
    return ListedAssignor(
        written=name, protocol=found.name, rebalance_protocols=frozenset(found.rebalance_protocols)
    )


def _read(name: str, goal: list[str] | None) -> list[Bounce]:
    """Read the members of a file, before and after the bounce."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        return _bounces(json.loads(text)["members"], goal)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error)
        line = holdfast_line("upgrade-check", "--help")
        raise SourceError(
            f"{name}: not a list of members: {why}; `{line}` has an example"
        ) from error


def _bounces(rows: list[dict[str, Any]], goal: list[str] | None) -> list[Bounce]:
    if not rows:
        raise ValueError("the list is empty")
    return [_bounce(row, number, goal) for number, row in enumerate(rows, 1)]


def _bounce(row: dict[str, Any], number: int, goal: list[str] | None) -> Bounce:
    """Read one member; an unknown key is an error, since it might be the one that matters."""
    try:
        _check_words(row, _WORDS)
        before = {word: value for word, value in row.items() if word not in ("id", "next")}
        after = row.get("next", {} if goal is None else goal)
        if not isinstance(after, dict):
            after = {"assignors": after}
        _check_words(after, _SIDE)
        ways = _config(before), _config(before | after)
    except ValueError as error:
        raise ValueError(f"members[{number - 1}]: {error}") from None
    return Bounce(member=str(row.get("id", number)), before=ways[0], after=ways[1])


def _check_words(row: dict[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(set(row).difference(known))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}, expected some of {', '.join(known)}")


def _config(row: dict[str, Any]) -> Config:
    """Read the configuration of a member before or after the bounce."""
    version = str(row.get("version", ""))
    numbers = re.match(r"\d+(\.\d+)*", version, re.ASCII)
    if version and numbers is None:
        raise ValueError(f"version {version!r}, expected one such as 2.3")
    parts = tuple(map(int, numbers[0].split("."))) if numbers else ()
    client = str(row.get("client", "holdfast"))
    if client not in list(Client):
        raise ValueError(f"client {client!r}; {suggest(client, list(Client))}")
    assignors = row.get("assignors", list(default_assignors(Client(client), parts)))
    if not isinstance(assignors, list) or not all(isinstance(a, str) for a in assignors):
        raise ValueError(f"assignors {assignors!r}, expected a list of names")
    config = Config(
        assignors=(),
        client=Client(client),
        version=parts,
        protocol_type=str(row.get("protocol_type", "consumer")),
    )
    return _listed(assignors, "assignors").of(config)

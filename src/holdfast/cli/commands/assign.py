"""``holdfast assign``: reads a snapshot of a group and prints an assignment.

**Rules.** The JSON is stable and carries ``schema_version``; the table is for people. With several
assignors, an assignor that refuses the group yields an error entry, and the others still answer.

**Strategy.** :func:`holdfast.core.assignors.registry.follow` computes; this module has the options
and the output.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from holdfast.cli.declared import Argument, Option
from holdfast.cli.option_values import AssignorOptions, parse_assignor, parse_option, split_names
from holdfast.cli.options import OutputFile, PrintFormat, Quiet
from holdfast.cli.output import Format, notes, print_note, write_json, write_rows
from holdfast.cli.sources import described_group, is_described_text
from holdfast.core.assignors.registry import ASSIGNORS, AssignorInfo, assign, find, follow
from holdfast.core.assignors.result import Result
from holdfast.core.model import measure
from holdfast.core.model.group import Group
from holdfast.errors import (
    ConfigError,
    InfeasibleError,
    ModelError,
    PlanError,
    SourceError,
    suggest,
)

SCHEMA_VERSION = 1
_JSON_BEGINS = ("{", "[", '"')

_FLAT = ("assignor", "member_id", "topic", "partition", "state")
_MEMBERS = ("member", "partitions", "lag", "assignment", "waits for")

_COMPARED = (
    *("balance_score", "spread", "kept", "moved", "needed_moves", "rack_matches", "cross_rack"),
    *("topic_excess", "lag_spread", "withheld", "optimal", "proven", "error"),
)

EXAMPLES = """\b
Examples:
  holdfast assign group.json --assignor sticky
  holdfast assign group.json --assignor cooperative-sticky --all-rounds
  holdfast assign group.json --assignor lag-sticky --option max_skew=1
  holdfast assign - --compare range,sticky,lag-sticky < group.json
  holdfast assign group.json --assignor policies:by_host
  holdfast assign described.txt --group etl --assignor sticky
\b
A snapshot: {"partitions": {"orders": 3}, "members": [{"id": "C0", "topics":
["orders"], "owned": [["orders", 0]], "generation": 4}]}; also "lags",
"offsets" and "racks".
"""


def run(
    *,
    snapshot: Annotated[
        str,
        Argument(metavar="SNAPSHOT|-", help="JSON file, or text of Kafka's tools; - reads stdin."),
    ],
    assignor: Annotated[
        str | None,
        Option(
            "--assignor",
            "-a",
            metavar="NAME",
            help=f"Assignor: {', '.join(ASSIGNORS)}, or your own as "
            "module:function; default sticky.",
        ),
    ] = None,
    compare: Annotated[
        str | None,
        Option(
            "--compare", metavar="NAMES", help="Assignors to compare side by side: sticky,lag,..."
        ),
    ] = None,
    all_rounds: Annotated[
        bool,
        Option(
            "--all-rounds", help="Follow a cooperative assignor until no revocation is pending."
        ),
    ] = False,
    option: AssignorOptions = None,
    group: Annotated[
        str | None,
        Option("--group", metavar="GROUP", help="Group to assign, if the text describes several."),
    ] = None,
    fmt: PrintFormat = Format.TABLE,
    output: OutputFile = None,
    quiet: Quiet = False,
) -> None:
    """Assign the partitions of a group as one of the assignors would.

    A snapshot is JSON, or what `kafka-consumer-groups --describe` prints of a group.

    Exit codes: 0 done; 2 a wrong option or snapshot; 3 the snapshot cannot be read; 4 the
    assignor refuses this group.
    """
    if assignor is not None and compare is not None:
        raise ConfigError(
            "--assignor and --compare exclude each other: name every assignor in --compare"
        )
    requested = [assignor or "sticky"] if compare is None else split_names(compare, "--compare")
    rows = list(dict.fromkeys(find(parse_assignor(name)) for name in requested))
    options = dict(parse_option(text) for text in option or ())
    read = read_group(snapshot, group, notes(quiet))
    if compare is None:
        answer = answer_of(read, rows[0], options, all_rounds=all_rounds)
        dropped = answer["quality"]["dropped_claims"]
        if dropped and not quiet:
            text = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
            print_note(f"claims that were ignored: {text}")
        _write_one(answer, fmt, output)
    else:
        _write_several(_compare(read, rows, options, all_rounds), fmt, output)


def read_group(path: str, group: str | None, note: Callable[[str], None]) -> Group:
    """Read a snapshot from a file, or from stdin for ``-``.

    ``group`` is the one to take of a text of `kafka-consumer-groups` that describes several. Raise
    SourceError if the file is neither that nor JSON, ModelError if the JSON is not a snapshot.
    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SourceError(f"{path}: {why}; expected a JSON snapshot of a group") from error
    if not text.strip():
        where = "stdin" if path == "-" else path
        raise SourceError(f"{where} is empty: a JSON snapshot of a group is expected")
    if not text.lstrip().startswith(_JSON_BEGINS) and is_described_text(text):
        return Group.from_dict(described_group(path, text, group, note))
    if group is not None:
        raise ConfigError("--group chooses among described groups; a JSON snapshot holds one group")
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except (json.JSONDecodeError, RecursionError) as error:
        raise SourceError(f"{path} is not JSON: {error}") from error
    except ValueError as error:  # Python reads no integer of more than 4,300 digits
        raise SourceError(f"{path}: holds a number with too many digits to be read") from error
    return Group.from_dict(value)


def answer_of(
    group: Group, row: AssignorInfo, options: dict[str, Any], *, all_rounds: bool
) -> dict[str, Any]:
    """Return the JSON document of one assignor; ``all_rounds`` compares the end with the start."""
    results = follow(group, row, **options) if all_rounds else [assign(group, row, **options)]
    first, last = results[0], results[-1]
    answer: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "assignor": row.name,
        **last.to_json(),
    }
    if all_rounds:
        answer["rounds"] = len(results)
        answer["quality"] |= _from_start(first, last)
    return answer


def _from_start(first: Result, last: Result) -> dict[str, Any]:
    before = first.claims.owner
    return {
        "kept": measure.count_kept(before, last.owner),
        "moved": measure.count_moved(before, last.owner),
        "needed_moves": first.quality.needed_moves,
        "dropped_claims": first.quality.dropped_claims,
        "optimal": first.quality.optimal,
        "proven": first.quality.proven,
    }


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object of the snapshot; a duplicate key is an error."""
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ModelError(f"the key {twice!r} occurs twice in one object", column="snapshot")
    return result


def _compare(
    group: Group, rows: Sequence[AssignorInfo], options: dict[str, Any], all_rounds: bool
) -> list[dict[str, Any]]:
    """Return one answer for each assignor.

    Each assignor takes the options that it knows; an option that none of them knows is an error.
    """
    known = {each for row in rows for each in row.options}
    for unknown in sorted(set(options) - known):
        hint = suggest(unknown, sorted(known)) if known else "they take none"
        names = ", ".join(row.name for row in rows)
        raise ConfigError(f"none of {names} has an option {unknown!r}; {hint}")
    answers = []
    for row in rows:
        own = {key: value for key, value in options.items() if key in row.options}
        try:
            answers.append(answer_of(group, row, own, all_rounds=all_rounds))
        except (InfeasibleError, PlanError) as error:
            answers.append({"assignor": row.name, "error": str(error)})
    return answers


def _write_one(answer: dict[str, Any], fmt: Format, output: Path | None) -> None:
    if fmt is Format.JSON:
        write_json(answer, output)
    elif fmt is Format.TABLE:
        write_rows(_member_rows(answer), _MEMBERS, fmt, output, title=_title(answer))
    else:
        write_rows(_flat_rows([answer]), _FLAT, fmt, output)


def _write_several(answers: list[dict[str, Any]], fmt: Format, output: Path | None) -> None:
    if fmt is Format.JSON:
        write_json({"schema_version": SCHEMA_VERSION, "compare": answers}, output)
    elif fmt is Format.TABLE:
        columns = ("", *(answer["assignor"] for answer in answers))
        write_rows(_side_by_side(answers), columns, fmt, output)
    else:
        write_rows(_flat_rows(answers), _FLAT, fmt, output)


def _title(answer: dict[str, Any]) -> str:
    quality = answer["quality"]
    parts = [
        f"{answer['assignor']}: balance score {quality['balance_score']}",
        f"{quality['kept']} kept",
        f"{quality['moved']} moved",
    ]
    if answer["withheld"]:
        parts.append(f"{len(answer['withheld'])} pending until revoked")
    if "rounds" in answer:
        parts.append(f"{answer['rounds']} rounds")
    if quality["optimal"]:
        parts.append("proven optimal")
    if quality["topic_excess"]:
        parts.append(f"topics {quality['topic_excess']} from even")
    return ", ".join(parts)


def _member_rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    lags = answer["quality"]["lags"] or {}
    waits: dict[str, list[str]] = {}
    for tp, member in answer["withheld"].items():
        waits.setdefault(member, []).append(tp)
    return [
        {
            "member": member,
            "partitions": sum(map(len, own.values())),
            "lag": lags.get(member),
            "assignment": "  ".join(f"{topic}: {_ranges(ps)}" for topic, ps in own.items()),
            "waits for": " ".join(waits.get(member, ())),
        }
        for member, own in answer["assignment"].items()
    ]


def _ranges(partitions: Sequence[int]) -> str:
    """Return ``0-3 7 9-10`` for sorted partition numbers."""
    runs: list[list[int]] = []
    for partition in partitions:
        if runs and partition == runs[-1][1] + 1:
            runs[-1][1] = partition
        else:
            runs.append([partition, partition])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _flat_rows(answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row a topic-partition; a pending one names the member that will get it."""
    rows: list[dict[str, Any]] = []
    for answer in answers:
        cells = [
            (member, topic, partition, "assigned")
            for member, own in answer.get("assignment", {}).items()
            for topic, partitions in own.items()
            for partition in partitions
        ]
        for tp, member in answer.get("withheld", {}).items():
            topic, _, partition = tp.rpartition("-")
            cells.append((member, topic, int(partition), "withheld"))
        rows += [dict(zip(_FLAT, (answer["assignor"], *cell), strict=True)) for cell in cells]
    return rows


def _side_by_side(answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row a metric, with one column an assignor."""
    rows: list[dict[str, Any]] = []
    for key in _COMPARED:
        cells = {answer["assignor"]: _cell(answer, key) for answer in answers}
        if any(cell is not None for cell in cells.values()):
            rows.append({"": key.replace("_", " "), **cells})
    members: dict[str, Any] = next(
        (answer["assignment"] for answer in answers if "error" not in answer), {}
    )
    for member in members:
        cells = {answer["assignor"]: _load(answer, member) for answer in answers}
        rows.append({"": member, **cells})
    return rows


def _cell(answer: dict[str, Any], key: str) -> Any:
    if key == "error" or "error" in answer:
        return answer.get("error") if key == "error" else None
    value = answer["quality"][key]
    return " ".join(value) or None if key == "proven" else value


def _load(answer: dict[str, Any], member: str) -> str | None:
    if "error" in answer:
        return None
    quality = answer["quality"]
    load = str(quality["loads"][member])
    return load if quality["lags"] is None else f"{load}, lag {quality['lags'][member]}"

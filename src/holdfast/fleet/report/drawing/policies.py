"""Policy comparison: costs under other settings, as ``holdfast replay`` computed them.

**Rules.** A row is one group under one policy. Numbers come from the replay alone. The fidelity of
the replay is shown beside them, so that people know how far to trust them. Bars are part of the
table.

**Strategy.** Rows are mappings, from ``replay --format json`` (its ``rows``), with columns
of ``REPLAY``. A missing column is shown as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.command_lines import NOT_KNOWN, holdfast_line
from holdfast.core.model.measure import LOW_FIDELITY
from holdfast.errors import SourceError
from holdfast.fleet.analysis.times import NONE
from holdfast.fleet.report.drawing.markup import Markup, join, name_of, tag
from holdfast.fleet.report.drawing.sections import amount, amount_s, table
from holdfast.fleet.tables.columns.steps import REPLAY
from holdfast.fleet.tables.storage.parquet import BoundedParquet

_CAUTION = "the agreement of these numbers with the records is unknown or low: trust none"
_BAR_CELLS = 12
_MOST = 1e300
"""A larger value was not measured."""


def read_policies(path: Path) -> list[dict[str, Any]]:
    """Read rows of a file that ``holdfast replay`` wrote as JSON, JSON lines or Parquet.

    Raises
    ------
    SourceError
        The file cannot be read, or is something else.
    """
    try:
        content = path.read_bytes()
        if content.startswith(b"PAR1"):
            rows: list[Any] = BoundedParquet(path).read().to_pylist()
        else:
            rows = _json(path, content.decode())
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: cannot be read: {error}") from error
    if not all(isinstance(row, dict) and "policy" in row for row in rows):
        line = holdfast_line("replay", *NOT_KNOWN.options, "--format", "json", "-o", str(path))
        raise SourceError(f"{path}: expected rows with a policy (`{line}`)")
    return rows


def _json(path: Path, text: str) -> list[Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        rows = document.get("rows", document) if isinstance(document, dict) else document
        return rows if isinstance(rows, list) else [rows]
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: neither JSON nor JSON lines: {error}") from error


def policy_section(rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Draw a table of policies, in the order of the replay within a group; None without rows."""
    if not rows:
        return None
    ordered = sorted(rows, key=lambda row: str(row.get("group", "")))
    top = max((_value(row, "revocations") or 0.0 for row in ordered), default=0.0)
    many = len({row.get("group") for row in ordered}) > 1
    heads = [
        *(REPLAY.headings("group") if many else []),
        *REPLAY.headings("policy", "assignor"),
        ("Delay, s", True),
        *REPLAY.headings("rebalances", "moved", "moved_to_third", "revocations"),
        ("", False),
        *REPLAY.headings("partition_seconds_awaited", "longest_wait_seconds"),
        *REPLAY.headings("time_to_balance_seconds", "fidelity"),
    ]
    lead = (
        "The same history under other settings, by the same machines. The actual setting was "
        "replayed too: fidelity is its agreement with the records, 100 % is exact. "
        "Rounds, moves and revocations are counted. Seconds are those in which the group waited "
        "for a member; no record has the duration of a revocation."
    )
    narrow = [heads[0 if not many else 1][0], "Awaited, partition-s", "Fidelity"]
    shown = (_row(row, top)[0 if many else 1 :] for row in ordered)
    body = table(heads, shown, caption="Policies", narrow=narrow)
    return tag(
        "section",
        tag("h2", "What other policies would have done"),
        tag("p", lead, class_="lead"),
        *_cautions(ordered),
        body,
        class_="card",
        id="policies",
    )


def _value(row: Mapping[str, Any], name: str) -> float | None:
    """Return a value of a row, if it is a number: a file may contain anything."""
    value = row.get(name)
    return value if isinstance(value, (int, float)) and -_MOST < value < _MOST else None


def _row(row: Mapping[str, Any], top: float) -> list[object]:
    delay, fidelity = _value(row, "delay_ms"), _value(row, "fidelity")
    return [
        tag("td", name_of(row.get("group", NONE))),
        _policy(row),
        tag("td", name_of(row.get("assignor") or NONE)),
        amount(None if delay is None else delay / 1000, 1),
        amount(_value(row, "rebalances")),
        amount(_value(row, "moved")),
        amount(_value(row, "moved_to_third")),
        amount(_value(row, "revocations")),
        tag("td", _bar(_value(row, "revocations"), top)),
        amount(_value(row, "partition_seconds_awaited"), 1),
        amount_s(_value(row, "longest_wait_seconds")),
        amount_s(_value(row, "time_to_balance_seconds")),
        _fidelity(row, fidelity),
    ]


def _fidelity(row: Mapping[str, Any], fidelity: float | None) -> object:
    """Return the fidelity, and whether it is low."""
    if fidelity is None:
        return tag("td", tag("span", "not known", class_="lozenge s-warn"), data_v="")
    if not _is_low(row):
        return f"{fidelity:.0%}", fidelity
    mark = tag("span", "low", class_="lozenge s-warn", title=_CAUTION)
    return tag("td", f"{fidelity:.0%} ", mark, data_v=fidelity, class_="n")


def _is_low(row: Mapping[str, Any]) -> bool:
    fidelity = _value(row, "fidelity")
    return fidelity is None or fidelity < LOW_FIDELITY


def _cautions(rows: Sequence[Mapping[str, Any]]) -> Iterator[Markup]:
    """Yield one paragraph for each group whose rows are not to be trusted."""
    for group in dict.fromkeys(row.get("group") for row in rows if _is_low(row)):
        name = [] if group is None else [name_of(group), ": "]
        yield tag("p", tag("b", "Low fidelity. "), *name, _CAUTION, ".", class_="caution")


def _policy(row: Mapping[str, Any]) -> Markup:
    """Return the policy, and whether it is the group's own."""
    actual = [" ", tag("b", "(actual)")] if row.get("actual") else []
    return tag("td", name_of(row["policy"]), *actual)


def _bar(number: float | None, top: float) -> Markup:
    """Draw a bar of whole and empty cells; its length is a class, since no style may be inline."""
    if number is None or top <= 0:
        return Markup("")
    full = round(_BAR_CELLS * number / top)
    return tag(
        "span",
        join(tag("i", class_="on" if i < full else None) for i in range(_BAR_CELLS)),
        class_="meter",
        aria_hidden="true",
    )

"""Replace inferred causes of rebalances by those that a broker's own log states.

**Rules.** A log changes only the cause of the rebalance that it names, by a group and a generation
that the tables have. A stated cause never replaces a more specific one: a ``restart`` is a
``join`` of a previous member. A stated cause that contradicts the joined and departed members is
not believed: the cause stays inferred, and an anomaly records that. If the reason is unknown,
``stated_reason`` has its words and the cause stays inferred.

**Strategy.** :mod:`holdfast.fleet.pipeline.ingest.envelopes` extracts the lines as the broker
wrote them, and :mod:`holdfast.fleet.pipeline.history.broker_texts` their meaning. This module
merges the lines of several files into one log, by their times. A rebalance has the reasons of all
numbers since the one before it. Members that joined and left again in between are no
contradiction.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from holdfast.core.kinds import GroupType
from holdfast.fleet.columnar import replaced
from holdfast.fleet.pipeline.history.broker_texts import (
    DEPARTURES,
    Statement,
    Word,
    statements_of,
    words_at,
)
from holdfast.fleet.pipeline.ingest.envelopes import (
    CUT_SHORT,
    CollectedLine,
    TextFile,
    moment_of,
    suffix_of,
    unwrapped,
)
from holdfast.fleet.tables.columns.schemas import arrow_schema

INFERRED: Final = "inferred"
STATED: Final = "stated"
CONTRADICTED: Final = "contradicted_cause"
"""Kind of anomaly: a log states a cause that cannot be."""
MAX_REASON: Final = 1_000
"""Stored characters of a reason."""

_CHANGES: Final = frozenset(
    {
        "announced_leave",
        "cooperative_follow_up",
        "scheduled_rebalance",
        "configuration_change",
        "subscription_change",
        "partition_count_change",
        "protocol_change",
    }
)
MORE_SPECIFIC: Final = {
    "join": frozenset({"restart"}),
    "leave": frozenset({"restart"}),
    "session_timeout": frozenset({"restart"}),
    "rebalance_timeout": frozenset({"restart"}),
    "poll_timeout": frozenset({"restart"}),
    "leave_and_timeout": frozenset({"restart"}),
    "join_and_leave": frozenset({"restart"}),
    "rejoin": _CHANGES,
}
"""Inferred causes that stay although another one is stated."""

_OTHERS: Final = (
    "over_capacity",
    "protocol_change",
    "restart",
    "rejoin",
)
"""Causes without joined or departed members; of several, the first one is stated."""

_SAMPLE: Final = 200
"""Messages that show what the layout of a log has behind a message."""


def read_logs(paths: Sequence[Path], groups: Iterable[str]) -> tuple[list[Statement], list[str]]:
    """Return what logs in any order state about some groups, and notes about files.

    A note is about a file without statements, or without its end. Raises SourceError if a file
    cannot be read.
    """
    notes: list[str] = []
    merged = heapq.merge(*(_timed_messages(path, notes) for path in paths), key=itemgetter(0))
    return statements_of((text for _, text in merged), groups), notes


def _timed_messages(path: Path, notes: list[str]) -> Iterator[tuple[float, str]]:
    """Yield messages of one file; one without a time has that of the message before it."""
    file, time, n_found = TextFile(path), -math.inf, 0
    for entry in messages(file):
        time, n_found = time if entry.time is None else entry.time, n_found + 1
        yield time, entry.text
    if not n_found:
        notes.append(
            f"{path} has no line of a group coordinator, so no cause is taken from it: brokers "
            "log them at INFO (kafka.coordinator.group, org.apache.kafka.coordinator.group)"
        )
    if file.is_cut:
        notes.append(CUT_SHORT.format(path))


def messages(lines: Iterable[str]) -> Iterator[CollectedLine]:
    """Yield the texts of group coordinators in the lines of one log, oldest first."""
    entries, newest_first = unwrapped(lines)
    found = (
        CollectedLine(moment_of(entry), entry.text[at:])
        for entry in entries
        if (at := words_at(entry.text)) >= 0
    )
    sample = [*islice(found, _SAMPLE)]
    suffix = suffix_of([entry.text for entry in sample])
    whole: Iterable[CollectedLine] = chain(sample, found)
    for entry in reversed([*whole]) if newest_first else whole:
        yield CollectedLine(entry.time, suffix.sub("", entry.text))


def together(causes: Collection[str | None]) -> str | None:
    """Return one cause for several: joined and left members, or the first most specific one."""
    went = next((cause for cause in DEPARTURES if cause in causes), None)
    if "leave" in causes and went != "leave":
        went = "leave_and_timeout"
    if "join" in causes:
        return "join_and_leave" if went else "join"
    return went or next((cause for cause in _OTHERS if cause in causes), None)


def reason_of(words: Iterable[Word]) -> str:
    """Return the broker's words, joined and cut."""
    return "; ".join(word.text for word in words if word.text)[:MAX_REASON]


def unmistakable(statements: Sequence[Statement]) -> list[Statement]:
    """Return statements about generations that the log names once.

    A group that was deleted and recreated counts its generations from the start. Only the whole
    history shows which of the two groups a line concerns; a batch of a stream does not have it.
    """
    times = Counter((one.group, one.generation, one.classic) for one in statements)
    return [one for one in statements if times[one.group, one.generation, one.classic] == 1]


def restated(rebalances: pa.Table, statements: Sequence[Statement]) -> tuple[pa.Table, pa.Table]:
    """Return rebalances with the causes that a log states, and the contradicted statements.

    ``rebalances`` has the rows of a group in the order of the log; ``cause``, ``confidence``,
    ``cause_basis`` and ``stated_reason`` may change. ``statements`` are in the order of the
    broker's log. If a group existed several times under one name, its generations are counted
    again; the last statement belongs to the last of them. Contradicted statements are rows of
    ``anomalies``.
    """
    statements_of: dict[_Key, list[Statement]] = {}
    for one in statements:
        key = one.group, one.generation, one.classic
        statements_of.setdefault(key, []).append(one)
    rows = rebalances.select([*_QUERIED, *_CHANGED]).to_pylist()
    anomalies = []
    for row in reversed(rows):
        words = _words_of(row, statements_of)
        if not words:
            continue
        row["stated_reason"] = reason_of(words)
        cause, wrong = resolved(words, row)
        if wrong:
            named = sorted({word.member for word in words if word.member is not None})
            anomalies.append({**row, "kind": CONTRADICTED, "member_ids": named, "detail": wrong})
        elif cause is not None and row["cause"] not in MORE_SPECIFIC.get(cause, ()):
            row |= {"cause": cause, "confidence": 1.0, "cause_basis": STATED}
    rebalances = replaced(rebalances, **{n: [row[n] for row in rows] for n in _CHANGED})
    return rebalances, pa.Table.from_pylist(anomalies[::-1], schema=arrow_schema("anomalies"))


_Key = tuple[str, int, bool]
_CHANGED: Final = ("cause", "confidence", "cause_basis", "stated_reason")
_QUERIED: Final = (
    "group",
    "generation",
    "previous_generation",
    "group_type",
    "timestamp",
    "n_joined",
    "n_left",
    "n_missed_generations",
)


def resolved(words: Sequence[Word], row: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the cause that words state for a rebalance, and a contradiction; "" without one.

    Members that joined and left again, or left and came back, cancel each other out. A generation
    without a record may have had members without a record.
    """
    came, went = row["n_joined"] or 0, row["n_left"] or 0
    if not came:
        words = [w if w.certain or w.cause != "join" else replace(w, cause="rejoin") for w in words]
    cause = together({word.cause for word in words})
    if cause is None or row["previous_generation"] is None:
        return cause, ""
    joins = {word.member for word in words if word.cause == "join"}
    leaves = {word.member for word in words if word.cause in DEPARTURES}
    sure = {w.member for w in words if w.cause in DEPARTURES and w.cause != "sync_timeout"}
    both = (joins & leaves) - {None}
    hidden = bool(row["n_missed_generations"]) or (bool(joins and leaves) and not (came or went))
    wrong = []
    if came and not joins:
        wrong.append(f"{came} joined")
    if went and not leaves:
        wrong.append(f"{went} left")
    if not came and joins - both and not hidden:
        wrong.append("no member joined")
    if not went and sure - both and not hidden:
        wrong.append("no member left")
    return cause, f"the log states {cause!r}, but {' and '.join(wrong)}" if wrong else ""


def _words_of(
    row: Mapping[str, Any], statements_of: Mapping[_Key, list[Statement]]
) -> tuple[Word, ...]:
    """Take the words about a rebalance, of all numbers since the last, out of the statements."""
    group, generation, before = row["group"], row["generation"], row["previous_generation"]
    first = generation
    if isinstance(before, int):
        first = min(max(before + 1, generation - _MAX_NUMBERS), generation)
    words: tuple[Word, ...] = ()
    for number in range(first, generation + 1):
        said = statements_of.get((group, number, row["group_type"] == GroupType.CLASSIC))
        words += said.pop().words if said else ()
    return words


_MAX_NUMBERS: Final = 1_000

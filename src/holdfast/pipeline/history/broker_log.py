"""Causes of rebalances as a broker's own log states them, in place of inferred ones.

**Rules.** A line counts only if it names a group and a generation that the tables have. Group names
and client reasons come from strangers and may look like any line, so if a line can be read in
several ways, the way with the longest known group name is taken. A log changes nothing but the
cause of the rebalance that it names. A stated cause never replaces a cause that says more: a
``restart`` is a ``join`` of a member that was there before. If the reason is not in the table
below, ``stated_reason`` has its words and the cause stays inferred.

**Strategy.** The group coordinator writes at INFO why it begins each rebalance. A classic group's
line names the generation that ends; the next record of the group is the rebalance. For KIP-848 the
lines about members before ``Bumped group epoch to N`` are the reasons of epoch N, and a target
assignment has the reasons of all epochs since the target assignment before it.

===================  =================================================================  ==========
stated cause         the coordinator's words (Kafka 2.x to 4.3)                         stays
===================  =================================================================  ==========
join                 Adding new member; joins the consumer group                        restart
leave                explicit `LeaveGroup`; on LeaveGroup; left the consumer group      restart
session_timeout      on heartbeat expiration; fenced from the group because             restart
restart              static member ... joined with change of protocol; re-joins the     -
rejoin               re-joining group; Updating metadata for member                     the causes
                                                                                        of a change
sync_timeout         pending sync request expiration                                    -
join_and_leave       (KIP-848) members came and members went                            restart
===================  =================================================================  ==========
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from holdfast.errors import SourceError

INFERRED: Final = "inferred"
STATED: Final = "stated"
MAX_REASON: Final = 1_000
"""Characters of a reason that are kept."""

_CHANGES: Final = frozenset(
    {
        "cooperative_follow_up",
        "scheduled_rebalance",
        "configuration_change",
        "subscription_change",
        "partition_count_change",
        "protocol_change",
    }
)
SAYS_MORE: Final = {
    "join": frozenset({"restart"}),
    "leave": frozenset({"restart"}),
    "session_timeout": frozenset({"restart"}),
    "join_and_leave": frozenset({"restart"}),
    "rejoin": _CHANGES,
}
"""Inferred causes that stand although another one is stated."""

_CLASSIC: Final = (
    ("adding new member", "join"),
    ("heartbeat expiration", "session_timeout"),
    ("explicit `leavegroup`", "leave"),
    ("on leavegroup", "leave"),
    ("change of protocol", "restart"),
    ("re-joining group", "rejoin"),
    ("updating metadata for member", "rejoin"),
    ("sync request expiration", "sync_timeout"),
)
_MODERN: Final = (
    ("re-joins the consumer group", "restart"),
    ("joins the consumer group", "join"),
    ("temporarily left the consumer group", "leave"),
    ("left the consumer group", "leave"),
    ("fenced from the group because", "session_timeout"),
)
"""Words of a reason (in lower case, before any client's own), and what they state."""

_PREPARING: Final = "Preparing to rebalance group "
_STATE: Final = re.compile(
    r" in state \w+ with old generation (-?\d+) (?:\(__consumer_offsets-\d+\) )?\(reason: "
)
_END: Final = re.compile(r"\)\.?(?: \([\w.$]+\))?\Z")
_ID: Final = "[GroupId "
_BUMP: Final = re.compile(r"\] Bumped group epoch to (\d+) with ")
_LOGGER: Final = re.compile(r"\.?(?: \([\w.$]+\))?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Why one generation or epoch began, by the log; ``cause`` is None for unknown words."""

    group: str
    generation: int
    cause: str | None
    reason: str


@dataclass(slots=True)
class _LogReader:
    """Takes lines in, gives statements about groups that are known.

    ``lengths`` are those of the groups' names, the longest first. A name may hold what ends a name
    any number of times, so a line is cut where a known name may end and nowhere else.
    """

    groups: frozenset[str]
    lengths: tuple[int, ...]
    found: list[Statement] = field(default_factory=list)
    waiting: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def take(self, line: str) -> None:
        """Read one line, without the space at its end."""
        at = line.find(_PREPARING)
        if at >= 0:
            self._classic(line[at + len(_PREPARING) :])
            return
        at = line.find(_ID)
        if at >= 0:
            self._modern(line[at + len(_ID) :])

    def _classic(self, rest: str) -> None:
        for length in self.lengths:
            match = _STATE.match(rest, length)
            if match is not None and (group := rest[:length]) in self.groups:
                reason = _END.sub("", rest[match.end() :])
                cause = stated_cause(reason, _CLASSIC)
                self._say(group, int(match[1]) + 1, cause, reason)
                return

    def _modern(self, rest: str) -> None:
        ends = (length for length in self.lengths if rest.startswith("] ", length))
        group = next((rest[:end] for end in ends if rest[:end] in self.groups), None)
        if group is None:
            return
        said = rest[len(group) :]
        bump = _BUMP.match(said)
        if bump is None:
            words = _LOGGER.sub("", said[2:])
            cause = stated_cause(words, _MODERN)
            if cause is not None:
                self.waiting.setdefault(group, []).append((cause, words))
            return
        waiting = self.waiting.pop(group, [])
        causes = {cause for cause, _ in waiting}
        reason = "; ".join(words for _, words in waiting) or _LOGGER.sub("", said[2:])
        self._say(group, int(bump[1]), together(causes), reason)

    def _say(self, group: str, generation: int, cause: str | None, reason: str) -> None:
        self.found.append(
            Statement(group=group, generation=generation, cause=cause, reason=reason[:MAX_REASON])
        )


def stated_cause(reason: str, words: Sequence[tuple[str, str]]) -> str | None:
    """The cause that a reason states, by the coordinator's own part of it."""
    own = reason.partition("; client reason: ")[0].lower()
    return next((cause for word, cause in words if word in own), None)


def together(causes: set[str]) -> str | None:
    """One cause for several statements: the same, or that members came and went."""
    if len(causes) < 2:
        return next(iter(causes), None)
    return "join_and_leave" if causes & {"join", "restart"} else "session_timeout"


def read_statements(lines: Iterable[str], groups: Iterable[str]) -> list[Statement]:
    """What the lines of a broker's log say about these groups, in their order."""
    known = frozenset(groups)
    lengths = tuple(sorted({len(group) for group in known}, reverse=True))
    reader = _LogReader(groups=known, lengths=lengths)
    for line in lines:
        reader.take(line.rstrip())
    return reader.found


def read_files(paths: Sequence[Path], groups: Iterable[str]) -> list[Statement]:
    """The same for files, in the order given; ``.gz`` is unpacked.

    Raises
    ------
    SourceError
        A file cannot be read.
    """
    known = frozenset(groups)
    found = []
    for path in paths:
        opener = gzip.open if path.suffix == ".gz" else open
        try:
            with opener(path, "rt", encoding="utf-8", errors="replace", newline="\n") as lines:
                found += read_statements(lines, known)
        except (OSError, EOFError) as error:
            raise SourceError(f"cannot read the broker log {path}: {error}") from error
    return found


def unmistakable(statements: Sequence[Statement]) -> list[Statement]:
    """Statements about generations that the log names once.

    A group that was deleted and made anew counts its generations from the start. Only the whole
    history shows which of the two groups a line is about; a batch of a stream does not have it.
    """
    times = Counter((one.group, one.generation) for one in statements)
    return [one for one in statements if times[one.group, one.generation] == 1]


def restated(rebalances: pa.Table, statements: Sequence[Statement]) -> pa.Table:
    """Rebalances with the causes that a log states.

    Parameters
    ----------
    rebalances : Table
        As the table ``rebalances``; the rows of a group in the order of the log.
    statements : sequence of Statement
        In the order of the broker's log. Where a group lived several times under one name, its
        generations are counted again; the last statement belongs to the last of them.

    Returns
    -------
    Table
        The same rows; ``cause``, ``confidence``, ``cause_basis`` and ``stated_reason`` may differ.
    """
    statements_of: dict[tuple[str, int], list[Statement]] = {}
    for one in statements:
        statements_of.setdefault((one.group, one.generation), []).append(one)
    names = ("group", "generation", "previous_generation", "group_type", "cause", "confidence")
    columns = {name: rebalances[name].to_pylist() for name in (*names, *_CHANGED[2:])}
    for at in reversed(range(rebalances.num_rows)):
        row = {name: columns[name][at] for name in names}
        said = _said_of(row, statements_of)
        if said is None:
            continue
        cause, reason = said
        columns["stated_reason"][at] = reason
        if cause is not None and row["cause"] not in SAYS_MORE.get(cause, ()):
            columns["cause"][at], columns["confidence"][at] = cause, 1.0
            columns["cause_basis"][at] = STATED
    for name in _CHANGED:
        place = rebalances.schema.get_field_index(name)
        dtype = rebalances.schema.field(name).type
        rebalances = rebalances.set_column(place, name, pa.array(columns[name], dtype))
    return rebalances


_CHANGED: Final = ("cause", "confidence", "cause_basis", "stated_reason")


def _said_of(
    row: dict[str, object], statements_of: dict[tuple[str, int], list[Statement]]
) -> tuple[str | None, str] | None:
    """Cause and reason that were stated for a rebalance; taken out of ``statements_of``."""
    group, generation, before = str(row["group"]), row["generation"], row["previous_generation"]
    assert isinstance(generation, int)
    first = generation
    if row["group_type"] == "consumer" and isinstance(before, int):
        first = max(before + 1, generation - _MAX_EPOCHS)
    found = [
        statements_of[group, number].pop()
        for number in range(first, generation + 1)
        if statements_of.get((group, number))
    ]
    if not found:
        return None
    causes = {one.cause for one in found if one.cause is not None}
    return together(causes), "; ".join(one.reason for one in found)[:MAX_REASON]


_MAX_EPOCHS: Final = 1_000

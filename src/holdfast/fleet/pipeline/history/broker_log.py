"""Causes of rebalances as a broker's own log states them, in place of inferred ones.

**Rules.** A line counts only if it names a group and a generation that the tables have. Group names
and client reasons come from strangers and may look like any line, so if a line can be read in
several ways, the way with the longest known group name is taken. A log changes nothing but the
cause of the rebalance that it names. A stated cause never replaces a cause that says more: a
``restart`` is a ``join`` of a member that was there before. A stated cause that contradicts the
members who came and went is not believed: the cause stays inferred, and an anomaly says so. If the
reason is not known, ``stated_reason`` has its words and the cause stays inferred.

**Strategy.** The texts stand in :mod:`holdfast.fleet.pipeline.history.broker_texts`, with the cause
that each of them states. What the lines of a group say is collected until a line gives it a number:

- Classic groups: "Preparing to rebalance" names the generation that ends; the next record of the
  group is the rebalance. Who else comes or goes until the round is over belongs to it too.
- KIP-848: the lines before "Bumped group epoch to N" are the reasons of epoch N.
- Share and streams groups: who leaves bumps the epoch by one, and no line says so.

A rebalance has the reasons of all numbers since the one before it. Members who came and went again
in between are no contradiction.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from holdfast.core.kinds.kind import GroupType
from holdfast.errors import SourceError
from holdfast.fleet.pipeline.history.broker_texts import (
    BUMPS,
    CLASSIC_TEXTS,
    COMPUTED,
    ENDS,
    FENCED,
    LINE_END,
    LOADED,
    MODERN_TEXTS,
    NEXT_REQUEST,
    BrokerText,
    Waits,
)
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.columns.values import replaced

INFERRED: Final = "inferred"
STATED: Final = "stated"
CONTRADICTED: Final = "contradicted_cause"
"""Kind of anomaly: a log states a cause that cannot be."""
MAX_REASON: Final = 1_000
"""Characters of a reason that are kept."""

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
SAYS_MORE: Final = {
    "join": frozenset({"restart"}),
    "leave": frozenset({"restart"}),
    "session_timeout": frozenset({"restart"}),
    "rebalance_timeout": frozenset({"restart"}),
    "leave_and_timeout": frozenset({"restart"}),
    "join_and_leave": frozenset({"restart"}),
    "rejoin": _CHANGES,
}
"""Inferred causes that stand although another one is stated."""

DEPARTURES: Final = ("session_timeout", "rebalance_timeout", "sync_timeout", "leave")
"""Causes by which members go; of several timeouts, the first one is stated."""
_OTHERS: Final = (
    "over_capacity",
    "protocol_change",
    "restart",
    "configuration_change",
    "subscription_change",
    "rejoin",
)
"""Causes by which nobody comes or goes; of several, the first one is stated."""

_WORDS: Final = (
    ("adding new member", "join"),
    ("heartbeat expiration", "session_timeout"),
    ("explicit `leavegroup`", "leave"),
    ("on leavegroup", "leave"),
    ("change of protocol", "restart"),
    ("updating metadata for static member", "restart"),
    ("re-joining group", "rejoin"),
    ("updating metadata for member", "rejoin"),
    ("is joining group during", "rejoin"),
    ("sync request expiration", "sync_timeout"),
    ("is over capacity", "over_capacity"),
    ("downgrade group", "protocol_change"),
)
"""Words of a reason (in lower case, before any client's own), and what they state: Kafka 2.x on."""

_COORDINATOR: Final = re.compile(r"\[Group(?:Coordinator|MetadataManager)[^\]]*\]:? ")
_PREPARING: Final = "Preparing to rebalance group "
_STATE: Final = re.compile(
    r" in state \w+ with old generation (-?\d+) (?:\(__consumer_offsets-\d+\) )?\(reason: "
)
_END: Final = re.compile(r"\)\.?(?: \([\w.$]+\))?\Z")
_LOGGER: Final = re.compile(LINE_END)
_OLD_BUMP: Final = BrokerText(text="[GroupId {}] Bumped group epoch to {}.", fields="gn")
_OLD_END: Final = BrokerText(
    text="Stabilized group {} generation {} ({}) with {} members", fields="gn.."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One thing that a log says about a group.

    Parameters
    ----------
    cause : str or None
        What it states; None for words that are not known.
    text : str
        The broker's words; empty where other words of the same event say it.
    member : str or None
        Id of the member that it is about.
    certain : bool
        False for a join that may be that of a member who was there before.
    """

    cause: str | None
    text: str = ""
    member: str | None = None
    certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Why one generation or epoch began, by the log; ``classic``: a generation, else an epoch."""

    group: str
    generation: int
    words: tuple[Word, ...]
    classic: bool = True


@dataclass(slots=True)
class _GroupSaid:
    """What was said of one group and has no number yet.

    ``present``: ids of members who came and did not go. ``open``: place in ``found`` of the classic
    round that goes on, ``last`` that of the latest statement. ``epoch``: the last one that a line
    named, or that follows. ``silent``: a share or streams group.
    """

    waiting: list[Word] = field(default_factory=list)
    brief: list[Word] = field(default_factory=list)
    present: set[str] = field(default_factory=set)
    open: int | None = None
    last: int | None = None
    epoch: int | None = None
    silent: bool = False


@dataclass(slots=True)
class _LogReader:
    """Takes lines in, gives statements about groups that are known.

    ``lengths`` are those of the groups' names, the longest first. A name may hold what ends a name
    any number of times, so a line is cut where a known name may end and nowhere else.
    """

    groups: frozenset[str]
    lengths: tuple[int, ...]
    found: list[Statement] = field(default_factory=list)
    said: dict[str, _GroupSaid] = field(default_factory=dict)

    def take(self, line: str) -> None:
        """Read one line, without the space at its end."""
        at = _begin(line)
        if at < 0:
            return
        if line.startswith(_PREPARING, at):
            for group, end in self._names(line, at + len(_PREPARING)):
                if match := _STATE.match(line, end):
                    said = _END.sub("", line[match.end() :])
                    word = Word(cause=stated_cause(said), text=said)
                    self._begins(group, int(match[1]) + 1, word)
                    return
        elif line.startswith(_MODERN_HEAD, at):
            for group, end in self._names(line, at + len(_MODERN_HEAD)):
                for text, tail in _MODERN:
                    if match := tail.match(line, end):
                        self._take(text, group, match, None, line[at:])
                        return
        else:
            for text, tail in _CLASSIC:
                if hit := self._read(text, tail, line, at):
                    self._take(text, *hit, line[at:])
                    return

    def _names(self, line: str, begin: int) -> Iterator[tuple[str, int]]:
        """Known groups whose name may stand at a place, and its end; the longest first."""
        for length in self.lengths:
            if (group := line[begin : begin + length]) in self.groups:
                yield group, begin + length

    def _read(
        self, text: BrokerText, tail: re.Pattern[str], line: str, at: int
    ) -> tuple[str, re.Match[str], str | None] | None:
        """The group that a line is about, what stands after its name, and a member before it."""
        before, head = text.text.split("{}", 1)[0], text.head
        if not line.startswith(before, at):
            return None
        begin = at + len(before)
        if text.fields.startswith("g"):
            found = ((group, tail.match(line, end)) for group, end in self._names(line, begin))
            return next(((group, match, None) for group, match in found if match), None)
        match = tail.search(line, begin)
        if match is None:
            return None
        for length in self.lengths:
            start = match.start() - length
            if start - len(head) < begin or not line.endswith(head, begin, start):
                continue
            if (group := line[start : match.start()]) in self.groups:
                named = line[begin : start - len(head)] if text.fields[0] == "m" else None
                return group, match, named
        return None

    def _take(
        self, text: BrokerText, group: str, match: re.Match[str], named: str | None, line: str
    ) -> None:
        """Do what a text means; of a line that begins with the group's name, the rest is said."""
        known = self.said.setdefault(group, _GroupSaid())
        known.silent = known.silent or text.silent
        values = match.groupdict()
        words = line
        if text.text.startswith("[Group"):
            rest = match.group()
            words = rest[rest.find("] ") + 2 :]
        words = _LOGGER.sub("", words)
        if text in LOADED:
            self.said[group] = _GroupSaid(silent=text.silent)
        elif text in _ENDS:
            known.open = None
        elif text in _BUMPS:
            self._numbered(group, known, int(values["number"]), words)
        elif text is COMPUTED:
            self._computed(group, known, int(values["number"]))
        else:
            known.brief = []
            if text not in NEXT_REQUEST:
                self._word(group, known, text, _word(text, values, named, words))

    def _word(self, group: str, known: _GroupSaid, text: BrokerText, word: Word) -> None:
        """Hold what a line says of a member until a line gives it a number."""
        brief, member = text.waits is Waits.BRIEF, word.member
        if member is not None and word.cause == "join":
            if member in known.present:
                word, brief = replace(word, cause="rejoin"), True
            known.present.add(member)
        elif member is not None and word.cause in DEPARTURES:
            known.present.discard(member)
        if text.waits is Waits.NEVER:
            return
        if known.open is not None and text in CLASSIC_TEXTS:
            if not brief:
                one = self.found[known.open]
                self.found[known.open] = replace(one, words=(*one.words, word))
        elif brief:
            known.brief.append(word)
        elif known.silent and known.epoch is not None and word.cause in DEPARTURES:
            known.epoch += 1
            self._say(group, known.epoch, (word,), classic=False)
        else:
            known.waiting.append(word)

    def _numbered(self, group: str, known: _GroupSaid, number: int, text: str) -> None:
        """Everything that waits is the reason of this epoch."""
        words = (*known.waiting, *known.brief) or (Word(cause=None, text=text),)
        self._say(group, number, words, classic=False)
        known.waiting, known.brief, known.epoch = [], [], number

    def _computed(self, group: str, known: _GroupSaid, number: int) -> None:
        """What still waits went into this epoch's target, whichever line named the epoch."""
        if known.waiting and number == known.epoch and known.last is not None:
            one = self.found[known.last]
            self.found[known.last] = replace(one, words=(*one.words, *known.waiting))
        elif known.waiting:
            self._say(group, number, tuple(known.waiting), classic=False)
        known.waiting, known.brief, known.epoch = [], [], number

    def _begins(self, group: str, generation: int, word: Word) -> None:
        """A classic round begins; what waited is part of the same event."""
        known = self.said.setdefault(group, _GroupSaid())
        before = tuple(known.waiting)
        if word.cause == "protocol_change":  # the record that was converted lacks who left
            if before:
                self._say(group, generation - 1, before, classic=True)
            before = ()
        own = tuple(replace(w, text="") if w.cause == word.cause else w for w in before)
        self._say(group, generation, (*own, word), classic=True)
        known.open, known.epoch = len(self.found) - 1, None
        known.waiting, known.brief = [], []

    def _say(self, group: str, number: int, words: tuple[Word, ...], *, classic: bool) -> None:
        self.said[group].last = len(self.found)
        self.found.append(Statement(group=group, generation=number, words=words, classic=classic))


def _begin(line: str) -> int:
    """Where the coordinator's own words begin in a line; -1 for a line of another kind."""
    prefix = _COORDINATOR.search(line)
    first = min((at for text in _HEADS if (at := line.find(text)) >= 0), default=-1)
    if prefix is not None and (first < 0 or prefix.start() < first):
        return prefix.end()
    return first


def _word(
    text: BrokerText, values: Mapping[str, str | None], named: str | None, words: str
) -> Word:
    cause = text.cause
    if " fenced from the group because " in words and cause == "session_timeout":
        why = words.partition(" fenced from the group because ")[2]
        cause = dict(FENCED).get(why, "session_timeout")
    return Word(
        cause=cause,
        text=words,
        member=named or values.get("member"),
        certain=values.get("protocol") != "classic",
    )


_BUMPS: Final = (*BUMPS, _OLD_BUMP)
_ENDS: Final = (*ENDS, _OLD_END)
_LONGEST: Final = sorted(MODERN_TEXTS, key=lambda text: -len(text.text))
_MODERN: Final = [(text, text.tail()) for text in (*_LONGEST, *_BUMPS, COMPUTED, *NEXT_REQUEST)]
"""The longest first: "left" is the end of "temporarily left", too."""
_CLASSIC: Final = [(text, text.tail()) for text in (*CLASSIC_TEXTS, *_ENDS, *LOADED)]
_MODERN_HEAD: Final = "[GroupId "
_HEADS: Final = (_MODERN_HEAD, _PREPARING)
"""Where the words begin in a log whose layout leaves out the coordinator's name."""


def stated_cause(reason: str) -> str | None:
    """The cause that a reason of "Preparing to rebalance" states, by the broker's own part."""
    own = reason.partition("; client reason: ")[0].lower()
    return next((cause for word, cause in _WORDS if word in own), None)


def together(causes: Collection[str | None]) -> str | None:
    """One cause for several: that members came and went, or the first that says most."""
    went = next((cause for cause in DEPARTURES if cause in causes), None)
    if "leave" in causes and went != "leave":
        went = "leave_and_timeout"
    if "join" in causes:
        return "join_and_leave" if went else "join"
    return went or next((cause for cause in _OTHERS if cause in causes), None)


def reason_of(words: Iterable[Word]) -> str:
    """The broker's words, joined and cut."""
    return "; ".join(word.text for word in words if word.text)[:MAX_REASON]


def read_statements(lines: Iterable[str], groups: Iterable[str]) -> list[Statement]:
    """What the lines of a broker's log say about these groups, in their order."""
    known = frozenset(groups)
    lengths = tuple(sorted({len(group) for group in known}, reverse=True))
    reader = _LogReader(groups=known, lengths=lengths)
    for line in lines:
        reader.take(line.rstrip())
    return reader.found


def lines_of(paths: Sequence[Path]) -> Iterator[str]:
    """Lines of logs, in the order given; ``.gz`` is unpacked.

    Raises
    ------
    SourceError
        A file cannot be read.
    """
    for path in paths:
        opener = gzip.open if path.suffix == ".gz" else open
        try:
            with opener(path, "rt", encoding="utf-8", errors="replace", newline="\n") as lines:
                yield from lines
        except (OSError, EOFError) as error:
            raise SourceError(f"cannot read the broker log {path}: {error}") from error


def unmistakable(statements: Sequence[Statement]) -> list[Statement]:
    """Statements about generations that the log names once.

    A group that was deleted and made anew counts its generations from the start. Only the whole
    history shows which of the two groups a line is about; a batch of a stream does not have it.
    """
    times = Counter((one.group, one.generation, one.classic) for one in statements)
    return [one for one in statements if times[one.group, one.generation, one.classic] == 1]


def restated(rebalances: pa.Table, statements: Sequence[Statement]) -> tuple[pa.Table, pa.Table]:
    """Rebalances with the causes that a log states, and the statements that cannot be.

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
    Table
        Rows of ``anomalies``: stated causes that the members who came and went contradict.
    """
    statements_of: dict[_Key, list[Statement]] = {}
    for one in statements:
        key = one.group, one.generation, one.classic
        statements_of.setdefault(key, []).append(one)
    rows = rebalances.select([*_ASKED, *_CHANGED]).to_pylist()
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
        elif cause is not None and row["cause"] not in SAYS_MORE.get(cause, ()):
            row |= {"cause": cause, "confidence": 1.0, "cause_basis": STATED}
    rebalances = replaced(rebalances, **{n: [row[n] for row in rows] for n in _CHANGED})
    return rebalances, pa.Table.from_pylist(anomalies[::-1], schema=arrow_schema("anomalies"))


_Key = tuple[str, int, bool]
_CHANGED: Final = ("cause", "confidence", "cause_basis", "stated_reason")
_ASKED: Final = (
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
    """The cause that words state for a rebalance, and what contradicts it; "" if nothing does.

    Members who came and went again, or went and came back, cancel each other out. A generation that
    no record shows may have had members whom no record shows.
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
        wrong.append(f"{came} came")
    if went and not leaves:
        wrong.append(f"{went} went")
    if not came and joins - both and not hidden:
        wrong.append("nobody came")
    if not went and sure - both and not hidden:
        wrong.append("nobody went")
    return cause, f"the log states {cause!r}, but {' and '.join(wrong)}" if wrong else ""


def _words_of(
    row: Mapping[str, Any], statements_of: Mapping[_Key, list[Statement]]
) -> tuple[Word, ...]:
    """What was said of a rebalance, by all numbers since the last; taken out of the statements."""
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

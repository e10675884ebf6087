"""Log texts of group coordinators that state why a group rebalances: Kafka 2.5 to 4.3.

**Rules.** A line counts only if it is about a known group. Names of groups, clients and reasons
come from strangers and may look like any line: if a line can be parsed in several ways, the one
with the longest known name of a group counts.

The statement of a line waits until a line gives it a number: "Stabilized group" and "is now empty"
the generation of a classic group, "Bumped group epoch" and "Computed a new target assignment" the
epoch of another one. "Preparing to rebalance" names the generation that ends. A text marked ``-``
states nothing. Texts about changes that may lead to no rebalance (a subscription, a static member
that is back) are not read: the records show the change itself. A member that leaves a share or a
streams group increases the epoch by one, without a line.

**Strategy.** :data:`MEMBERS` has a cause and Kafka's own words, with ``{g}`` for the group,
``{m}`` for the member, ``{n}`` for a number, ``{r}`` for a reason, ``{p}`` for a member's protocol
and ``{}`` for anything else. Case is ignored, and the full stop at the end, and ``[GroupId`` is
``[Group``. ``tests/pipeline/test_broker_texts.py`` searches the words in Kafka's classes.

References: KIP-345, KIP-800, KIP-848, KIP-932, KIP-1071.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.fleet.analysis.group.client_library import says_poll_timeout

MEMBERS: Final = """
-            [Group {g}] Static member {m} with instance id {} temporarily left the consumer group
join         Pending dynamic member with id {m} joins group {g} in {} state. Adding to the group now
join         Dynamic member with unknown member id joins group {g} in state {}. Created a new member
             id {m} and added the member to the group
join         Dynamic member with unknown member id joins group {g} in {} state. Created a new member
             id {m} for this member and add to the group
join         Static member with{}unknown member id joins group {g} in {} state. Created a new member
             id {m} for this member and add{} to the group
join         [Group {g}] Member {m} joins the {} group using the {p} protocol
join         [Group {g}] Static member {m} with instance id {} joins the consumer group using the
             {p} protocol
join         [Group {g}][MemberId {m}] Member joins the streams group
leave        Member[group.instance.id {}, member.id {m}] in group {g} has left, removing it from the
             group
leave        Member MemberMetadata(memberId={m}, groupInstanceId={}) has left group {g} through
             explicit `LeaveGroup`; {}
leave        [Group {g}] Member {m} has left group through explicit `LeaveGroup` request; {}
leave        [Group {g}] Dynamic member {m} has left group through explicit `LeaveGroup` request; {}
leave        [Group {g}] Static member {m} with instance id {} has left group through explicit
             `LeaveGroup` request; {}
leave        [Group {g}] Member {m} left the consumer group
leave        [Group {g}] Static member {m} with instance id {} left the consumer group
leave        [Group {g}] Member {m} left the share group
leave        [Group {g}][MemberId {m}] Member {} left the streams group
session_timeout        Member {m} in group {g} has failed, removing it from the group
session_timeout        [Group {g}] Member {m} fenced from the group because {r}
session_timeout        [Group {g}] Streams member {m} fenced from the group because {r}
rebalance_timeout      Group {g} removed dynamic members who haven't joined: {}
"""
"""Texts about members."""

NUMBERS: Final = """
generation   Stabilized group {g} generation {n} {}
generation   Group {g} with generation {n} is now empty{}
epoch        [Group {g}] Bumped group epoch to {n}{}
epoch        [Group {g}][MemberId {}] Bumped streams group epoch to {n} {}
target       [Group {g}] Computed a new target assignment for epoch {n} {}
begins       Preparing to rebalance group {g} in state {s} with old generation {n} {}(reason: {r})
"""
"""Texts that give a number to earlier statements."""

REASONS: Final = """
join                   Adding new member {m} with group instance id {}
session_timeout        removing member {m} on heartbeat expiration
leave                  removing member {m} on LeaveGroup
leave                  explicit `LeaveGroup` request for {}
restart                Group's selectedProtocol will change because static member {}
restart                Updating metadata for static member {}
rejoin                 Updating metadata for member {}
rejoin                 Leader {} re-joining group during {}
rejoin                 Member {} joining group during {}
sync_timeout           Removing {m} on pending sync request expiration
over_capacity          Freshly-loaded group {}
protocol_change        Downgrade group {}
session_timeout        the member session expired
sync_timeout           the member failed to sync within timeout
rebalance_timeout      the classic member failed to join within the rebalance timeout
rebalance_timeout      it failed to transition from epoch {}
"""
"""Texts for ``{r}``, up to "; client reason: "."""

DEPARTURES: Final = (
    *("session_timeout", "rebalance_timeout", "sync_timeout", "poll_timeout"),
    "leave",
)
"""Causes by which members go; of several timeouts, the first one is stated."""


_VALUES: Final = {
    "m": r"(?P<member>.*?)",
    "n": r"(?P<number>-?\d+)",
    "p": r"(?P<protocol>.*?)",
    "r": r"(?P<reason>.*?)",
    "s": r"\w+",
    "": r".*?",
}
_COORDINATOR: Final = re.compile(
    r"\[Group(?:Coordinator \d+\]: |Coordinator id=\d+ [^\]]*\] |MetadataManager brokerId=\d+\] )"
)
_HEADS: Final = ("[GroupId ", "Preparing to rebalance group ")
"""Begin of the words in a log whose layout omits the coordinator's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One statement of a log about a group.

    ``cause`` is None for unknown words. ``text`` has the broker's words, empty if other words of
    the same event state them. ``certain`` is False for a join that may be that of a previous
    member.
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


def rows_of(table: str) -> list[tuple[str, str]]:
    """Return the rows of a table above: the cause, and the text."""
    rows = re.sub(r"\n +", " ", table).strip().splitlines()
    return [(mark, text) for mark, text in (re.split(" {2,}", row, maxsplit=1) for row in rows)]


def _pattern(text: str, end: str = r"\.?") -> re.Pattern[str]:
    """Return the pattern of a text with letters, up to the end of a line."""
    parts = re.split(r"\{(\w?)\}", text)  # literal, letter, literal, ...
    values = [re.escape(part) if at % 2 == 0 else _VALUES[part] for at, part in enumerate(parts)]
    return re.compile("".join(values) + end + r"\Z", re.DOTALL | re.IGNORECASE)


class BrokerText:
    """One text, and how a line is read by it."""

    def __init__(self, mark: str, text: str):
        self.mark = mark
        self.silent = "share group" in text or "treams" in text
        front, _, suffix = text.partition("{g}")
        self._begin = front.partition("{")[0].lower()
        self._front = _pattern(front, "") if "{" in front else None
        self._suffix = _pattern(suffix)

    def read(self, line: str, groups: _Groups) -> tuple[str, int, dict[str, str]] | None:
        """Return the longest known group of a line, the end of its name, and other values.

        A name may contain the text that ends a name any number of times, so a line is cut only
        where a known name may end.
        """
        begin = len(self._begin)
        if self._begin == "[group " and line.startswith("[GroupId "):
            begin = len("[GroupId ")
        elif line[:begin].lower() != self._begin:
            return None
        if self._front is None:
            for group in groups.at(line, begin):
                if match := self._suffix.match(line, begin + len(group)):
                    return group, begin + len(group), match.groupdict()
        elif match := self._suffix.search(line, begin):
            for group in groups.before(line, match.start()):
                if front := self._front.match(line[: match.start() - len(group)]):
                    return group, match.start(), match.groupdict() | front.groupdict()
        return None


class _Groups:
    """Known groups; if several match at one position, the longest name first."""

    def __init__(self, names: Iterable[str]):
        self._names = frozenset(names)
        self._lengths = sorted({len(name) for name in self._names}, reverse=True)
        self._line, self._at = "", dict[int, list[str]]()

    def at(self, line: str, begin: int) -> list[str]:
        """Return groups whose name begins at a position of a line."""
        if line is not self._line:
            self._line, self._at = line, {}
        if begin not in self._at:
            found = (line[begin : begin + length] for length in self._lengths)
            self._at[begin] = [group for group in found if group in self._names]
        return self._at[begin]

    def before(self, line: str, end: int) -> Iterator[str]:
        """Yield groups whose name ends at a position of a line."""
        found = (line[end - length : end] for length in self._lengths if length <= end)
        return (group for group in found if group in self._names)


_MEMBERS: Final = [BrokerText(*row) for row in rows_of(MEMBERS)]
_NUMBERS: Final = [BrokerText(*row) for row in rows_of(NUMBERS)]
_REASONS: Final = [(cause, _pattern(text)) for cause, text in rows_of(REASONS)]


def stated(reason: str) -> Word:
    """Return what a reason states, by the broker's own part of it."""
    own = reason.partition("; client reason: ")[0]
    for cause, pattern in _REASONS:
        if match := pattern.match(own):
            member = match.groupdict().get("member")
            return Word(cause=_why_it_left(cause, reason), text=reason, member=member)
    return Word(cause=None, text=reason)


def _why_it_left(cause: str, words: str) -> str:
    """Return the cause of a departure, by the member's own reason."""
    is_late = cause == "leave" and says_poll_timeout(words)
    return "poll_timeout" if is_late else cause


def words_at(line: str) -> int:
    """Return where a coordinator's own words begin in a line; -1 for a line of another kind."""
    prefix = _COORDINATOR.search(line)
    first = min((at for head in _HEADS if (at := line.find(head)) >= 0), default=-1)
    if prefix is not None and (first < 0 or prefix.start() < first):
        return prefix.end()
    return first


@dataclass(slots=True)
class _PendingWords:
    """Statements about one group without a number yet.

    ``present``: ids of members that joined and did not leave; ``gone``: of those that left.
    ``begun``: the generation that a classic group prepares. ``epoch``: the last one that a line
    named, or that follows; ``last``: index of its statement. ``silent``: a share or streams group.
    """

    waiting: list[Word] = field(default_factory=list)
    present: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    begun: int | None = None
    epoch: int | None = None
    last: int | None = None
    silent: bool = False

    def take(self) -> tuple[Word, ...]:
        """Take all waiting words."""
        words, self.waiting = tuple(self.waiting), []
        return words


def statements_of(messages: Iterable[str], groups: Iterable[str]) -> list[Statement]:
    """Return what coordinators state about some groups, by their own words, oldest first."""
    reader = _LogReader(groups)
    for line in messages:
        reader.take(line)
    for group in reader.pending:
        reader.ends(group)
    return reader.found


class _LogReader:
    """Takes lines in, gives statements about known groups."""

    def __init__(self, groups: Iterable[str]):
        self.groups = _Groups(groups)
        self.found: list[Statement] = []
        self.pending: dict[str, _PendingWords] = {}

    def take(self, line: str) -> None:
        """Read one line, which begins with the coordinator's words."""
        read = [(text, text.read(line, self.groups)) for text in (*_MEMBERS, *_NUMBERS)]
        hits = [(text, hit) for text, hit in read if hit is not None]
        if not hits:
            return
        text, (group, end, values) = max(hits, key=lambda one: len(one[1][0]))
        pending = self.pending.setdefault(group, _PendingWords())
        pending.silent = pending.silent or text.silent
        words = line[end:].partition("] ")[2] if line.startswith("[") else line
        reason, words = values.get("reason"), words.removesuffix(".")
        if text in _NUMBERS:
            self._number(
                group, text.mark, int(values["number"]), words if reason is None else reason
            )
            return
        if line.startswith("[GroupId "):
            self.ends(group)
        if text.mark != "-":
            cause = (reason and stated(reason).cause) or _why_it_left(text.mark, words)
            certain = values.get("protocol") != "classic"
            word = Word(cause=cause, text=words, member=values.get("member"), certain=certain)
            self._word(group, word)

    def _word(self, group: str, word: Word) -> None:
        """Store a line's statement about a member until a line gives it a number."""
        pending, member, goes = self.pending[group], word.member, word.cause in DEPARTURES
        if goes and member in pending.gone:  # Kafka 3 logs it again when the round ends
            return
        if member is not None and word.cause == "join":
            if member in pending.present:  # a classic member joins whenever it reconciles
                return
            pending.present.add(member)
            pending.gone.discard(member)
        elif member is not None and goes:
            pending.present.discard(member)
            pending.gone.add(member)
        if goes and pending.silent and pending.epoch is not None:
            pending.epoch += 1
            self._add_statement(group, pending.epoch, (word,), classic=False)
        else:
            pending.waiting.append(word)

    def _number(self, group: str, what: str, number: int, words: str) -> None:
        """Give a number to what waits."""
        pending = self.pending[group]
        if what == "begins":
            self._begins(group, number + 1, stated(words))
            return
        if what == "generation":
            pending.begun = pending.begun or number
        self.ends(group)
        if what == "generation":
            return
        waiting = pending.take()
        if what == "epoch":
            self._add_statement(
                group, number, waiting or (Word(cause=None, text=words),), classic=False
            )
        elif waiting and number == pending.epoch and pending.last is not None:
            one = self.found[pending.last]
            self.found[pending.last] = replace(one, words=(*one.words, *waiting))
        elif waiting:
            self._add_statement(group, number, waiting, classic=False)
        pending.epoch = number

    def _begins(self, group: str, generation: int, word: Word) -> None:
        """Begin a classic round; waiting words are part of it, and may be the same event."""
        self.ends(group)
        pending = self.pending[group]
        if word.cause == "protocol_change" and pending.waiting:
            # the converted record lacks the members that left
            self._add_statement(group, generation - 1, pending.take(), classic=True)
        before = pending.take()
        if word.cause == "leave" and "poll_timeout" in (why := {w.cause for w in before}):
            # The client's reason is in the line before.
            word = word if "leave" in why else replace(word, cause="poll_timeout", text="")
        same = [replace(w, text="") if word.text and w.cause == word.cause else w for w in before]
        if word.cause in DEPARTURES and word.member is not None:
            pending.gone.add(word.member)
        pending.waiting, pending.begun, pending.epoch = [*same, word], generation, None

    def ends(self, group: str) -> None:
        """End the round of a classic group, if one is open."""
        pending = self.pending[group]
        if pending.begun is not None and (words := pending.take()):
            self._add_statement(group, pending.begun, words, classic=True)
        pending.begun = None

    def _add_statement(
        self, group: str, number: int, words: tuple[Word, ...], *, classic: bool
    ) -> None:
        self.pending[group].last = len(self.found)
        self.found.append(Statement(group=group, generation=number, words=words, classic=classic))

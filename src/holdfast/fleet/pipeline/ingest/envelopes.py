"""Lines of a text file as a program printed them, without what collectors added.

=========  =====================================================================================
envelope   form
=========  =====================================================================================
gzip       known by its first bytes, whatever the name of the file
UTF-16     as PowerShell writes files, known by its byte order mark
ANSI       colours
CSV        a header that names a column of messages (CloudWatch, Kibana), or quoted cells
JSON       an object on a line, over several lines, or in a list: Docker, log4j 2 (JsonLayout,
           JsonTemplateLayout, ECS), Filebeat, Fluent Bit, journald, exports of stores
CRI        ``TIME stdout F LINE``, as containerd writes; the parts of a long line are joined
=========  =====================================================================================

**Rules.** The first lines of a file determine the envelopes of all of it, nested. A line without
these envelopes stays unchanged. No line is parsed unless the file as a whole requires it: what a
client writes into a name is text, whatever it looks like.

**Strategy.** Each envelope is a function that reads the first lines and returns a function over
all of them, or None. :func:`unwrapped` tries the envelopes until none matches.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.errors import SourceError

CUT_SHORT: Final = "{} lacks the end of its gzip data: what comes before was read"
"""Note about a file that was cut short."""
SAMPLE_LINES: Final = 1_000
"""First lines of a file that determine its envelopes."""
_DEEPEST: Final = 4
"""Envelopes in each other, and objects of JSON around a message."""
_MOST_LINES: Final = 10_000
"""Lines of one object of JSON."""

_MESSAGES: Final = (
    *("message", "@message", "log", "msg", "_raw", "textpayload", "short_message", "line"),
    *("full_message", "original", "content", "body"),
)
"""Names of the field that contains the line; of several, the first."""
_TIMES: Final = (
    "@timestamp",
    "timestamp",
    "time",
    "instant",
    "timemillis",
    "ts",
    "_time",
    "date",
    "timegenerated",
)

_ANSI: Final = re.compile(r"(?:\x1b|\^\[|#033)\[[0-9;?]*[A-Za-z]")
_CRI: Final = re.compile(r"(\d{4}-\d\d-\d\dT\S+) (stdout|stderr) ([FP])(?: (.*))?\Z", re.DOTALL)
_ISO: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?"
)
_OTHER_TIMES: Final = (
    (re.compile(r"(\d\d? \w{3} \d{4} \d\d:\d\d:\d\d)[.,](\d{3})"), "%d %b %Y %H:%M:%S%f"),
    (re.compile(r"(\w{3} \d\d?, \d{4} @ \d\d:\d\d:\d\d)\.(\d{3})"), "%b %d, %Y @ %H:%M:%S%f"),
    (re.compile(r"(\d\d:\d\d:\d\d)[.,](\d{3})"), "%H:%M:%S%f"),
)
_SUFFIXES: Final = tuple(
    re.compile(rf"\s+{suffix}\Z")
    for suffix in (
        r"\([\w.$]+(?::\d+)?\)",  # (%c), (%c:%L), (%F:%L)
        r"\[[^\[\]]*\]",  # [%t]
        r"\{[^{}]*\}",  # %X
        r"[\w.$]+\([\w.$]+:\d+\)",  # %l
        r"- \S+",  # - %c{1}
        r"[\w$]+(?:\.[\w$]+){2,}(?::\d+)?",  # %c
    )
)
"""What a pattern of log4j may have behind the message."""


class CollectedLine(NamedTuple):
    """A line, and its time by the envelope: seconds since 1970, or None."""

    time: float | None
    text: str


Layer = Callable[[Iterable[CollectedLine]], Iterator[CollectedLine]]
"""Takes one envelope off all lines."""


@dataclass(slots=True)
class TextFile:
    """Lines of a file, packed or not; a SourceError while they are read if the file cannot be.

    ``is_cut``, known when the lines were read: a packed file lacks its end.
    """

    path: Path
    is_cut: bool = False

    def __iter__(self) -> Iterator[str]:
        try:
            with self.path.open("rb") as file:
                start = file.read(2)
            opener: Any = gzip.open if start == b"\x1f\x8b" else open
            with opener(self.path, "rb") as file:
                mark = file.read(2) if start == b"\x1f\x8b" else start
            encoding = "utf-16" if mark in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
            with opener(
                self.path, "rt", encoding=encoding, errors="replace", newline="\n"
            ) as lines:
                yield from lines
        except (EOFError, zlib.error):
            self.is_cut = True
        except OSError as error:
            raise SourceError(f"cannot read {self.path}: {error.strerror or error}") from error


def unwrapped(lines: Iterable[str]) -> tuple[Iterator[CollectedLine], bool]:
    """Take the envelopes off the lines of one file; return whether its newest line is the first."""
    rest = iter(lines)
    sample = [*islice(rest, SAMPLE_LINES)]
    layers: list[Layer] = []
    entries = [*_plain(sample)]
    for _ in range(_DEEPEST):
        shown = [entry for entry in entries if entry.text.strip()]
        found = next((layer for ask in (_csv, _cri, _json) if (layer := ask(shown))), None)
        if found is None:
            break
        layers.append(found)
        entries = [*found(entries)]
    whole: Iterator[CollectedLine] = _plain(chain(sample, rest))
    for layer in layers:
        whole = layer(whole)
    times = [time for time in map(moment_of, entries) if time is not None]
    steps = Counter(later > earlier for earlier, later in pairwise(times) if later != earlier)
    return whole, steps[False] > steps[True]


def suffix_of(texts: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern of the common text behind the messages of a layout: a logger, a thread."""
    found = ""
    for _ in range(_DEEPEST):
        cut = {suffix: [suffix.sub("", text) for text in texts] for suffix in _SUFFIXES}
        hits = {suffix: sum(map(str.__ne__, texts, rest)) for suffix, rest in cut.items()}
        best = max(_SUFFIXES, key=hits.__getitem__)
        if not texts or hits[best] < 0.8 * len(texts):
            break
        found, texts = best.pattern.removesuffix(r"\Z") + found, cut[best]
    return re.compile(rf"{found}\s*\Z")


def _plain(lines: Iterable[str]) -> Iterator[CollectedLine]:
    """Yield lines of the file, without colours and line ends."""
    for line in lines:
        text = line.rstrip("\r\n")
        yield CollectedLine(None, _ANSI.sub("", text) if "[" in text else text)


def moment_of(entry: CollectedLine) -> float | None:
    """Return when a line was written; a time in the line itself wins over its envelope."""
    own = _time_of(entry.text)
    return entry.time if own is None else own


def _time_of(value: object) -> float | None:
    """Parse a time in a field of JSON, or near the begin of a line, possibly without a date."""
    if isinstance(value, Mapping):
        seconds, nanos = value.get("epochSecond"), value.get("nanoOfSecond", 0)
        known = isinstance(seconds, int) and isinstance(nanos, int)
        return seconds + nanos / 1e9 if known else None
    if isinstance(value, str) and value.replace(".", "", 1).isdecimal() and len(value) < 25:
        value = float(value)
    if isinstance(value, int | float):
        unit = next((unit for unit in (1e9, 1e6, 1e3) if value >= 1e8 * unit), 1.0)
        return value / unit if value >= 1e8 else None
    text = value[:80] if isinstance(value, str) else ""
    try:
        if match := _ISO.search(text):
            moment = datetime.fromisoformat(match[0].replace(" +", "+").replace(" -", "-"))
            return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
        for pattern, form in _OTHER_TIMES:
            if match := pattern.search(text):
                moment = datetime.strptime("".join(match.groups()), form)
                return moment.replace(tzinfo=UTC).timestamp()
    except ValueError:  # a day that no month has
        pass
    return None


# CSV


def _csv(first: Sequence[CollectedLine]) -> Layer | None:
    """Unwrap rows of which one cell is the line."""
    for delimiter in ",;\t" if first else "":
        rows = [*_rows(first, delimiter)]
        header = [name.strip().lower().rpartition(".")[2] for name in rows[0]] if rows else []
        message = next((name for name in _MESSAGES if name in header), None)
        if message is not None:
            time = next((header.index(name) for name in _TIMES if name in header), None)
            return _cells(delimiter, header.index(message), time, skip=1)
        if first[0].text.startswith('"') and len({len(row) for row in rows}) == 1:
            sizes = [sum(map(len, column)) for column in zip(*rows, strict=True)]
            return _cells(delimiter, sizes.index(max(sizes)), 0, skip=0)
    return None


def _rows(entries: Iterable[CollectedLine], delimiter: str) -> Iterator[list[str]]:
    """Yield rows of CSV; an unreadable row is skipped."""
    rows = csv.reader((f"{entry.text}\n" for entry in entries), delimiter=delimiter)
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error:
            continue


def _cells(delimiter: str, message: int, time: int | None, *, skip: int) -> Layer:
    def take(entries: Iterable[CollectedLine]) -> Iterator[CollectedLine]:
        for row in islice(_rows(entries, delimiter), skip, None):
            if len(row) > message:
                known = time is not None and time < len(row)
                moment = _time_of(row[time]) if known and time is not None else None
                yield from (CollectedLine(moment, text) for text in row[message].splitlines())

    return take


# CRI


def _cri(first: Sequence[CollectedLine]) -> Layer | None:
    """Unwrap lines of containerd: a part ``P`` continues in the next part of its stream."""
    n_found = sum(_CRI.match(entry.text) is not None for entry in first)
    return _without_cri if 2 * n_found > len(first) else None


def _without_cri(entries: Iterable[CollectedLine]) -> Iterator[CollectedLine]:
    parts: dict[str, list[str]] = {}
    for entry in entries:
        if match := _CRI.match(entry.text):
            own = parts.setdefault(match[2], [])
            own.append(match[4] or "")
            if match[3] == "F":
                yield CollectedLine(_time_of(match[1]), "".join(own))
                own.clear()
        else:
            yield entry


# JSON


def _json(first: Sequence[CollectedLine]) -> Layer | None:
    """Unwrap objects of which one field is the line."""
    found = [_message_of(part) for part in _documents(first) if isinstance(part, dict)]
    lines = [said for said in found if said is not None]
    n_others = sum(not isinstance(part, dict) for part in _documents(first))
    if not lines or len(lines) <= n_others + len(found) - len(lines):
        return None
    # Docker cuts a long line into objects, of which only the last one ends with a line's end.
    joined = 10 * sum(said.text.endswith("\n") for said in lines) > len(lines)
    return _joined if joined else _messages


def _messages(entries: Iterable[CollectedLine]) -> Iterator[CollectedLine]:
    for said in _texts(entries):
        yield from (CollectedLine(said.time, text) for text in said.text.splitlines())


def _joined(entries: Iterable[CollectedLine]) -> Iterator[CollectedLine]:
    parts: list[str] = []
    for said in _texts(entries):
        parts.append(said.text)
        if said.text.endswith("\n"):
            yield from (CollectedLine(said.time, text) for text in "".join(parts).splitlines())
            parts.clear()
    yield from (CollectedLine(None, text) for text in "".join(parts).splitlines())


def _texts(entries: Iterable[CollectedLine]) -> Iterator[CollectedLine]:
    """Yield the line of each object; other lines, and objects without a line, unchanged."""
    for part in _documents(entries):
        said = part if isinstance(part, CollectedLine) else _message_of(part)
        yield (
            said if said is not None else CollectedLine(None, json.dumps(part, ensure_ascii=False))
        )


def _documents(entries: Iterable[CollectedLine]) -> Iterator[dict[str, Any] | CollectedLine]:
    """Yield objects of JSON that end where a line ends, and all other lines."""
    waiting: list[str] = []
    for entry in entries:
        text = entry.text.strip()
        if waiting:
            waiting.append(text)
            done = _decoded("\n".join(waiting)) if text[:1] in ("}", "]") else None
            if done is not None:
                yield from done
                waiting = []
            elif len(waiting) > _MOST_LINES:
                yield from (CollectedLine(None, line) for line in waiting)
                waiting = []
        elif done := _decoded(text[text.find("{") :] if text[:2] != "[{" else text):
            yield from done
        elif _OPENING.match(text):
            waiting = [text]
        elif text not in ("[", "]", ",", ""):
            yield entry
    yield from (CollectedLine(None, line) for line in waiting)


_OPENING: Final = re.compile(r"[\[, ]*\{\Z")


def _decoded(text: str) -> list[dict[str, Any]] | None:
    """Return the objects of a text that is only JSON, in a list or a part of one; else None."""
    text = text.strip(" \n,")
    for part in (text, text.removeprefix("["), text.removesuffix("]")):
        if part[:1] in ("{", "[") and part[-1:] in ("}", "]"):
            try:
                found = json.loads(part)
            except (ValueError, RecursionError):
                continue
            found = found if isinstance(found, list) else [found]
            return found if all(isinstance(one, dict) for one in found) else None
    return None


def _message_of(document: Mapping[str, Any], deep: int = _DEEPEST) -> CollectedLine | None:
    """Return the line of an object, and its time."""
    fields = {name.lower(): value for name, value in document.items()}
    text = next((fields[name] for name in _MESSAGES if isinstance(fields.get(name), str)), None)
    times = (_time_of(fields[name]) for name in _TIMES if name in fields)
    time = next((moment for moment in times if moment is not None), None)
    if text is not None:
        return CollectedLine(time, text)
    inner = (value for value in document.values() if deep and isinstance(value, Mapping))
    found = next((said for value in inner if (said := _message_of(value, deep - 1))), None)
    return found and CollectedLine(found.time if time is None else time, found.text)

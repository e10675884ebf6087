"""The output of ``kafka-dump-log --offsets-decoder`` about segments, as the records of their log.

**Rules.** A section (``Dumping FILE``) is one segment; its folder names the partition, and a
folder of another name gets the lowest free number. Sections of indexes are skipped. A batch has a
number of records: fewer mean that the text was cut short. Raw output of old versions may contain
line ends, so a line without the begin of a record belongs to the record before it.

References: ``DumpLogSegments`` of Kafka 2.8 to 4.3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final, NoReturn

from holdfast.core.wire.many.record_batches import ABORT, COMMIT, DATA, OTHER
from holdfast.errors import WireError
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC
from holdfast.fleet.pipeline.ingest.printed.console import (
    PrintedRecord,
    UnknownTypeError,
    is_noise,
    record_of_json,
    wrong_line,
)
from holdfast.fleet.pipeline.ingest.printed.old_console import BETWEEN, DELETED, record_of_log

_SECTION: Final = re.compile(r"Dumping (.+?)\s*$")
_BATCH: Final = re.compile(
    r"baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) .*?"
    r"producerId: (?P<producer>-?\d+) .*?"
    r"isTransactional: (?P<transactional>true|false) isControl: (?P<control>true|false)"
)
_RECORD: Final = re.compile(
    r"\| offset: (?P<offset>\d+) (?P<about>[^\[]*?)headerKeys: \[[^\]]*\] ?(?P<rest>.*)", re.DOTALL
)
_TIME: Final = re.compile(r"(?:CreateTime|LogAppendTime|NoTimestampType): (-?\d+)")
_KEY_SIZE: Final = re.compile(r"[kK]ey[sS]ize: (-?\d+)")
_HEAD: Final = re.compile(r"Dumping |baseOffset: \d|\| offset: \d|(?:Log s|S)tarting offset: \d")
_GOES_ON: Final = re.compile(r"\| offset: (?!.*headerKeys: \[[^\]]*\] key: \{)")
"""A record of raw text: JSON has no line ends of its own."""
_MARKER: Final = re.compile(r"endTxnMarker: (COMMIT|ABORT)\b")
_PARTITION: Final = re.compile(re.escape(OFFSETS_TOPIC) + r"-(\d+)")
_MARKERS: Final = {"COMMIT": COMMIT, "ABORT": ABORT}

BEGINS: Final = re.compile(r"Dumping \S|baseOffset: \d+ lastOffset|\| offset: \d+ .*[sS]ize: ")
"""A line that begins a text of this tool."""


@dataclass(slots=True)
class _PrintedBatch:
    line: int
    left: int  # records that are still missing
    producer_id: int
    transactional: bool
    control: bool


@dataclass(slots=True)
class PrintedLog:
    """Records of a text, in its order.

    ``ends`` has the span of printed offsets of each partition, complete when the records were read;
    ``n_unknown`` counts records of types that the tool did not know. ``is_old``: the text is of a
    version before Kafka's JSON.
    """

    path: object
    lines: Iterable[str]
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    n_unknown: int = 0
    is_old: bool = False
    _folders: dict[str, int] = field(default_factory=dict)
    _partition: int | None = 0
    _batch: _PrintedBatch | None = None

    def records(self) -> Iterator[PrintedRecord]:
        """Yield records, including control records; a SourceError names a wrong line."""
        for line, text in self._whole():
            if section := _SECTION.match(text):
                self._end_batch(line)
                self._partition = self._partition_of(section[1])
            elif self._partition is None:
                continue
            elif batch := _BATCH.match(text):
                self._end_batch(line)
                self._begin(line, batch)
            elif text.startswith("| offset:"):
                found = self._record(line, text)
                if found is not None:
                    yield found
            elif text.startswith("baseOffset:"):
                self._fail(line, "a batch is expected, with its offsets, count and producer")
        self._end_batch(line=None)

    def _whole(self) -> Iterator[tuple[int, str]]:
        """Yield complete lines with the number of each, continuation lines joined."""
        begun, parts = 0, list[str]()
        last = ""
        for number, text in enumerate(self.lines, 1):
            last = text
            if _HEAD.match(text):
                if parts:
                    yield begun, "".join(parts).rstrip("\r\n")
                begun, parts = number, [text]
            elif parts and _GOES_ON.match(parts[0]) and not is_noise(text):
                parts.append(text)
            elif self._partition is not None and not is_noise(text):
                self._fail(number, f"{text.rstrip()!r:.60} is neither a batch nor a record")
        if parts:
            if not last.endswith("\n") and (self.is_old or f"{BETWEEN}offset=" in parts[-1]):
                self._fail(begun, "its end is missing: was the text cut short?")
            yield begun, "".join(parts).rstrip("\r\n")

    def _partition_of(self, file: str) -> int | None:
        """Return the partition of a segment; None for a file without records."""
        path = PurePosixPath(file.replace("\\", "/"))
        if path.suffix and path.suffix not in {".log", ".deleted", ".cleaned", ".swap"}:
            return None
        if named := _PARTITION.fullmatch(path.parent.name):
            return int(named[1])
        folder = str(path.parent)
        if folder not in self._folders:
            taken = {*self.ends, *self._folders.values()}
            self._folders[folder] = next(n for n in range(len(taken) + 1) if n not in taken)
        return self._folders[folder]

    def _begin(self, line: int, batch: re.Match[str]) -> None:
        self._batch = _PrintedBatch(
            line=line,
            left=int(batch["count"]),
            producer_id=int(batch["producer"]),
            transactional=batch["transactional"] == "true",
            control=batch["control"] == "true",
        )
        self._reach(int(batch["base"]), int(batch["last"]))

    def _reach(self, first: int, last: int) -> None:
        assert self._partition is not None
        begin, end = self.ends.get(self._partition, (first, last + 1))
        self.ends[self._partition] = min(begin, first), max(end, last + 1)

    def _end_batch(self, line: int | None) -> None:
        batch, self._batch = self._batch, None
        if batch is not None and batch.left:
            where = "the end of the text" if line is None else f"line {line}"
            self._fail(
                batch.line,
                f"the batch lacks {batch.left} of its records before {where}: was the text cut, or "
                "printed without --offsets-decoder?",
            )

    def _record(self, line: int, text: str) -> PrintedRecord | None:
        found = _RECORD.match(text)
        batch = self._batch
        time = None if found is None else _TIME.search(found["about"])
        size = None if found is None else _KEY_SIZE.search(found["about"])
        if found is None or time is None or size is None:
            self._fail(line, "a record is expected, with its offset, time, sizes and key")
        if batch is None or not batch.left:
            self._fail(line, "a record is outside its batch: a line is missing before it")
        batch.left -= 1
        marker = DATA
        key: bytes | None = None
        value: bytes | None = None
        if batch.control:
            said = _MARKER.match(found["rest"])
            marker = OTHER if said is None else _MARKERS[said[1]]
        else:
            made = self._content(line, found["rest"], int(size[1]), int(time[1]))
            if made is None:
                self.n_unknown += 1
                return None
            key, value = made
        assert self._partition is not None
        return PrintedRecord(
            line=line,
            partition=self._partition,
            offset=int(found["offset"]),
            timestamp_ms=int(time[1]),
            key=key,
            value=value,
            producer_id=batch.producer_id,
            transactional=batch.transactional,
            marker=marker,
        )

    def _content(
        self, line: int, rest: str, key_bytes: int, time_ms: int
    ) -> tuple[bytes, bytes | None] | None:
        """Return key and value; None if the tool did not know the type."""
        if not rest.startswith("key: "):
            self._fail(line, "the record has no key: print with --offsets-decoder")
        text = rest.removeprefix("key: ")
        if text.startswith("unknown::"):
            return None
        try:
            if text.startswith("{"):
                return record_of_json(*_cut_json(text))
            self.is_old = True
            return record_of_log(text, key_bytes, time_ms)
        except UnknownTypeError:
            return None
        except (ValueError, WireError) as error:
            raise wrong_line(self.path, line, str(error)) from error

    def _fail(self, line: int, why: str) -> NoReturn:
        raise wrong_line(self.path, line, why)


def _cut_json(text: str) -> tuple[Any, Any]:
    """Split ``{...} payload: {...}`` into key and value; a ValueError if one is not JSON."""
    key, at = json.JSONDecoder().raw_decode(text)
    if not text.startswith(BETWEEN, at):
        raise ValueError("the record has a key and no payload: was the text cut short?")
    payload = text[at + len(BETWEEN) :]
    return key, None if payload.strip() == DELETED else json.loads(payload)

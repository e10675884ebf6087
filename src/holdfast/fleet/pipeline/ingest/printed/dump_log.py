"""The output of ``kafka-dump-log --offsets-decoder`` about segments, as the records of their log.

**Rules.** A section (``Dumping FILE``) is one segment; its folder names the partition, and a
folder of another name gets the lowest free number. Sections of indexes are skipped. A batch has a
number of records: fewer mean that the text was cut short. Raw output of old versions may contain
line ends, so a line without the begin of a record belongs to the record before it.

Records are JSON as of :mod:`~holdfast.fleet.pipeline.ingest.printed.console`, or in old versions::

    key: offset_commit::group=G,partition=TOPIC-0 payload: offset=5,metadata=M
    key: group_metadata::group=G payload: {"protocolType":..., "assignment":"{MEMBER=[TOPIC-0]}"}

Names come from strangers, so an ambiguous old text is parsed by the size of the key. Missing fields
have their default: no leader, no client, no subscription, and a timeout of 0, which means unknown.

References: ``DumpLogSegments`` of Kafka 2.8 to 4.3; the formatters of ``GroupMetadataManager``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final, NoReturn

from holdfast.cluster.snapshot import SeenMember
from holdfast.core.model.partitions import grouped
from holdfast.core.wire.layouts.consumer_protocol import AssignmentMessage, encode_assignment
from holdfast.core.wire.many.record_batches import ABORT, COMMIT, DATA, OTHER
from holdfast.errors import WireError
from holdfast.fleet.pipeline.ingest.described_records import (
    KeyValue,
    commit_record,
    deleted_group,
    generation_record,
)
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC
from holdfast.fleet.pipeline.ingest.printed.console import (
    PrintedRecord,
    TextNotes,
    UnknownTypeError,
    is_noise,
    record_of_json,
    wrong_line,
)

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

DELETED: Final = "<DELETE>"
BETWEEN: Final = " payload: "
_COMMIT_KEY: Final = re.compile(r"offset_commit::group=(.*),partition=([\w.-]+)-(\d+)", re.DOTALL)
_GROUP_KEY: Final = re.compile(r"group_metadata::group=(.*)", re.DOTALL)
_LOGGED_COMMIT: Final = re.compile(r"offset=(-?\d+)(?:,metadata=(.*))?", re.DOTALL)
_MEMBER: Final = re.compile(
    r"(?P<id>.+?)=(?:\[(?P<own>(?:[\w.-]+-\d+(?:, )?)*)\](?::[0-9A-F]+)?|[0-9A-F]*)(?:,|$)",
    re.DOTALL,
)
_LACKS_OF_OLD: Final = (
    "the text has no leaders, clients, subscriptions and timeouts of members, and no leader "
    "epochs and times of commits except those of their records"
)


@dataclass(slots=True)
class _PrintedBatch:
    line: int
    left: int  # records that are still missing
    producer_id: int
    transactional: bool
    control: bool


def read_log(path: object, lines: Iterable[str], notes: TextNotes) -> Iterator[PrintedRecord]:
    """Yield records, including control records; a SourceError names a wrong line."""
    log = _PrintedLog(path, lines, notes)
    notes.ends = log.ends
    yield from log.records()
    if log.is_old:
        notes.lacks.append(_LACKS_OF_OLD)


@dataclass(slots=True)
class _PrintedLog:
    """A text while it is read; ``is_old``: it is of a version before Kafka's JSON."""

    path: object
    lines: Iterable[str]
    notes: TextNotes
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    is_old: bool = False
    _folders: dict[str, int] = field(default_factory=dict)
    _partition: int | None = 0
    _batch: _PrintedBatch | None = None

    def records(self) -> Iterator[PrintedRecord]:
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
        assert self._partition is not None
        first, behind = int(batch["base"]), int(batch["last"]) + 1
        begin, end = self.ends.get(self._partition, (first, behind))
        self.ends[self._partition] = min(begin, first), max(end, behind)

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
                self.notes.n_unknown += 1
                return None
            key, value = made
        assert self._partition is not None
        return PrintedRecord(
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


# Records before JSON


def record_of_log(text: str, key_bytes: int, time_ms: int) -> KeyValue:
    """Return key and value of the text that ``kafka-dump-log`` printed behind ``key: ``.

    A key of ``key_bytes`` was printed. Raises ValueError or WireError if the text is neither kind
    of record, or a field does not fit.
    """
    found = [
        made for key, payload in _cuts(text) if (made := _of_log(key, payload, time_ms)) is not None
    ]
    if not found:
        raise ValueError(f"{text!r:.80} is not a record of a commit or a group")
    return next((made for made in found if len(made[0]) == key_bytes), found[0])


def _cuts(text: str) -> Iterator[tuple[str, str]]:
    """Yield every way to cut a text into a key and a payload, the longest key first."""
    at = text.rfind(BETWEEN)
    while at >= 0:
        yield text[:at], text[at + len(BETWEEN) :]
        at = text.rfind(BETWEEN, 0, at)


def _of_log(key: str, payload: str, time_ms: int) -> KeyValue | None:
    if commit := _COMMIT_KEY.fullmatch(key):
        group, topic, partition = commit.groups()
        value = _LOGGED_COMMIT.fullmatch(payload)
        if value is None and payload != DELETED:
            return None
        offset, metadata = (None, "") if value is None else (int(value[1]), value[2] or "")
        return commit_record(group, topic, int(partition), offset, time_ms, metadata=metadata)
    if group_key := _GROUP_KEY.fullmatch(key):
        if payload == DELETED:
            return deleted_group(group_key[1])
        try:
            return _group(group_key[1], json.loads(payload), time_ms)
        except (ValueError, WireError):
            return None
    return None


def _group(group: str, printed: dict[str, Any], time_ms: int) -> KeyValue:
    messages = {name: (b"", given) for name, given in _members(str(printed["assignment"]))}
    members = [
        SeenMember(member_id=name, instance_id=None, client_id="", client_host="")
        for name in messages
    ]
    return generation_record(
        group,
        int(printed["generationId"]),
        members,
        time_ms,
        protocol=printed.get("protocol"),
        protocol_type=str(printed["protocolType"] or ""),
        messages=messages,
    )


def _members(text: str) -> Iterator[tuple[str, bytes]]:
    """Yield members and their assignments, of ``{ID=[topic-0, topic-1]:DIGITS,ID=[]}``.

    An assignor's addition, and the whole assignment of another protocol than that of consumers, is
    printed as digits without leading zeros, from which the bytes cannot be recovered.
    """
    inside, at = text.removeprefix("{").removesuffix("}"), 0
    while at < len(inside):
        found = _MEMBER.match(inside, at)
        if found is None:
            raise ValueError(f"{inside[at:]!r:.60} is not a member with its assignment")
        own, given = found["own"], b""
        if own is not None:
            cut = (one.rpartition("-") for one in own.split(", ") if one)
            pairs = sorted((topic, int(number)) for topic, _, number in cut)
            given = encode_assignment(AssignmentMessage(version=0, partitions=grouped(pairs)))
        yield found["id"], given
        at = found.end()

"""The output of the console consumer with the formatters of the offsets topic, as records.

Since Kafka 3.9 it is JSON, which ``kafka-dump-log`` shares; before::

    [G,TOPIC,0]::OffsetAndMetadata(offset=5, leaderEpoch=Optional[0], metadata=M, ...)
    G::GroupMetadata(groupId=G, generation=1, protocolType=Some(consumer), ...)
    G::NULL

**Rules.** The text has neither partition nor offset: all records get partition 0, and their
positions are those of the text, which has the records of a group in their order. The time of a
record is that of its commit, or of its group's state; a record without one has that of the record
before it.

In JSON fields have Kafka's names, bytes are base64 and ids their 22 characters. A tagged field that
is absent has its default. Subscriptions and assignments are objects without their version: the
lowest version with all of their fields is written. A record of a type that the tool does not know
has no bytes here.

The old text of a group has neither a time nor assignments, and no history can be made of it: such
records are counted and omitted. Metadata may contain line ends, so a line that begins no record
belongs to the one before. Names come from strangers, so an ambiguous text is parsed with the
longest name of a group.

References: ``OffsetsMessageFormatter`` and ``GroupMetadataMessageFormatter`` of Kafka 2.8 to 4.3.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from holdfast.core.wire.layouts.offsets_records import Record, encode_record, encode_schema
from holdfast.core.wire.layouts.offsets_schemas import (
    CONSUMER_ASSIGNMENT,
    CONSUMER_SUBSCRIPTION,
    RECORD_SCHEMAS,
    Field,
    Kind,
    RecordType,
    Schema,
    schema_layout,
)
from holdfast.core.wire.many.record_batches import DATA, NO_PRODUCER
from holdfast.errors import SourceError, WireError
from holdfast.fleet.pipeline.ingest.described_records import CLASSIC_VERSION, KeyValue, encoded

BEGINS: Final = re.compile(r'\s*\{"key":\s*\{')
"""A line that begins a text of this tool, since Kafka 3.9."""
BEGINS_OLD: Final = re.compile(
    r"\[.*,[\w.-]+,\d+\]::(?:NULL$|OffsetAndMetadata\()|.*::GroupMetadata\(groupId=|.*::NULL$"
)
"""A line that begins a record before that."""
_COMMIT: Final = re.compile(
    r"\[(?P<group>.*),(?P<topic>[\w.-]+),(?P<partition>\d+)\]::"
    r"(?:NULL|OffsetAndMetadata\(offset=(?P<offset>-?\d+), "
    r"leaderEpoch=Optional(?:\[(?P<epoch>\d+)\]|\.empty), metadata=(?P<metadata>.*), "
    r"commitTimestamp=(?P<time>-?\d+), expireTimestamp=(?:None|Some\((?P<expires>-?\d+)\)|null)\))",
    re.DOTALL,
)
_GROUP: Final = re.compile(
    r"(?P<group>.*)::(?:NULL|GroupMetadata\(groupId=(?P=group), generation=-?\d+, "
    r"protocolType=(?:None|Some\(.*?\)), currentState=\w+, members=\w*\(.*\)\))",
    re.DOTALL,
)
_NO_TIME: Final = -1

NO_GROUPS: Final = (
    "what the console consumer printed of groups before Kafka 4 has neither times nor what members "
    "were given; kafka-dump-log --offsets-decoder prints both"
)
_LACKS: Final = (
    "the text does not show which commits are of aborted or open transactions (all count), nor "
    "the positions of records in the topic"
)
_TIMES: Final = ("commitTimestamp", "currentStateTimestamp", "assignmentTimestamp")
_EMBEDDED: Final[Mapping[str, Schema]] = {
    "subscription": CONSUMER_SUBSCRIPTION,
    "assignment": CONSUMER_ASSIGNMENT,
}
_NUMBERS: Final = frozenset({Kind.INT8, Kind.INT16, Kind.UINT16, Kind.INT32, Kind.INT64})
_NOISE: Final = re.compile(
    r"\s*$|Processed a total of \d+ messages|Picked up \w+_OPTIONS|Option --[\w-]+ is deprecated"
    r"|SLF4J[:(]|WARNING: |OpenJDK |log4j:|The consumer rebalance protocol \(KIP-848\)"
    r"|\[?\d{4}-\d\d-\d\d[T ][\d:.,]+Z?\]? .*\b(?:WARN|INFO|ERROR|DEBUG)\b"
    r"|(?:[\w$]+\.)+[\w$]*(?:Exception|Error)\b|\s+at [\w.$/<>]+\(|Caused by: "
)
"""Lines that the tools, their JVM and their logging print beside records."""


class PrintedRecord(NamedTuple):
    """A record with the bytes of the topic, as far as the text has them."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    producer_id: int = NO_PRODUCER
    transactional: bool = False
    marker: int = DATA


@dataclass(slots=True)
class TextNotes:
    """What a text has beside its records, complete when they were read.

    ``lacks`` has sentences about what it lacks. ``ends`` has the span of the printed offsets of
    each partition; None if they are not printed. ``n_unknown`` counts records of types that the
    tool did not know, ``n_groups`` those of groups that are omitted.
    """

    lacks: list[str] = field(default_factory=list)
    ends: dict[int, tuple[int, int]] | None = None
    n_unknown: int = 0
    n_groups: int = 0


def read_console(path: object, lines: Iterable[str], notes: TextNotes) -> Iterator[PrintedRecord]:
    """Yield the records of a text in JSON; a SourceError names a wrong line."""
    notes.lacks.append(_LACKS)
    time_ms = 0
    for offset, (line, key, value) in enumerate(_objects(path, lines)):
        time_ms = _time_of(value, time_ms)
        try:
            yield PrintedRecord(0, offset, time_ms, *record_of_json(key, value))
        except UnknownTypeError:
            notes.n_unknown += 1
        except ValueError as error:
            raise wrong_line(path, line, str(error)) from error


def _objects(path: object, lines: Iterable[str]) -> Iterator[tuple[int, Any, Any]]:
    """Yield keys and values with their lines; Kafka 4 prints one object behind the other."""
    decoder = json.JSONDecoder()
    for line, text in enumerate(lines, 1):
        at = _first_of(text, 0)
        while at < len(text):
            if not text.startswith("{", at):
                if is_noise(text[at:]):
                    break
                raise wrong_line(path, line, f"{text[at:]!r:.60} is not a record")
            try:
                found, at = decoder.raw_decode(text, at)
                yield line, found["key"], found["value"]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                why = f"{text[at : at + 60]!r} is not a whole record: was the text cut short?"
                raise wrong_line(path, line, f"{why} ({error})") from error
            at = _first_of(text, at)


def _first_of(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _time_of(value: Any, before_ms: int) -> int:
    data = value.get("data") if isinstance(value, dict) else None
    if isinstance(data, dict):
        for name in _TIMES:
            if isinstance(data.get(name), int) and data[name] >= 0:
                return int(data[name])
    return before_ms


def read_old_console(
    path: object, lines: Iterable[str], notes: TextNotes
) -> Iterator[PrintedRecord]:
    """Yield the commits of a text before JSON; a SourceError names a wrong line."""
    notes.lacks.append(_LACKS)
    time_ms = -1
    for offset, (line, text) in enumerate(_whole(path, lines)):
        found = _COMMIT.fullmatch(text)
        if found is None:
            if not _GROUP.fullmatch(text):
                why = f"{text!r:.60} is not a whole record: was the text cut short?"
                raise wrong_line(path, line, why)
            notes.n_groups += 1
            continue
        time_ms = int(found["time"] or time_ms)
        try:
            made = _commit(found)
        except WireError as error:
            raise wrong_line(path, line, str(error)) from error
        yield PrintedRecord(0, offset, time_ms, *made)


def _whole(path: object, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    begun, parts = 0, list[str]()
    for number, text in enumerate(lines, 1):
        if BEGINS_OLD.match(text):
            if parts:
                yield begun, "".join(parts).rstrip("\r\n")
            begun, parts = number, [text]
        elif is_noise(text) and (not parts or _is_whole("".join(parts))):
            continue
        elif parts:
            parts.append(text)
        else:
            raise wrong_line(path, number, f"{text.rstrip()!r:.60} is not a record")
    if parts:
        yield begun, "".join(parts).rstrip("\r\n")


def _is_whole(text: str) -> bool:
    text = text.rstrip("\r\n")
    return bool(_COMMIT.fullmatch(text) or _GROUP.fullmatch(text))


def _commit(found: re.Match[str]) -> KeyValue:
    key = {"group": found["group"], "topic": found["topic"], "partition": int(found["partition"])}
    if found["offset"] is None:
        return encoded(RecordType.OFFSET_COMMIT, key, None)
    value: dict[str, Any] = {
        "offset": int(found["offset"]),
        "metadata": found["metadata"],
        "commitTimestamp": int(found["time"]),
    }
    if found["expires"] is not None:
        value["expireTimestamp"] = int(found["expires"])
        return encoded(RecordType.OFFSET_COMMIT, key, value, 1)
    value["leaderEpoch"] = -1 if found["epoch"] is None else int(found["epoch"])
    return encoded(RecordType.OFFSET_COMMIT, key, value, CLASSIC_VERSION)


# JSON of a record


class UnknownTypeError(Exception):
    """The tool knew no fields of a record of this type."""


def record_of_json(key: Any, value: Any) -> tuple[bytes, bytes | None]:
    """Return key and value of a record; a value of None is a tombstone.

    A ValueError says why the JSON is not a record.
    """
    try:
        number = int(key["type"] if "type" in key else key["version"])
        fields = key["data"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the key {key!r:.60} has no type and data") from error
    schemas = RECORD_SCHEMAS.get(number)
    if schemas is None or not isinstance(fields, dict):
        raise UnknownTypeError(number)
    version, own = _versioned(value)
    if value is not None and not isinstance(own, dict):
        raise UnknownTypeError(number)
    try:
        record = Record(
            record_type=number,
            name=schemas.name,
            key=_struct(schemas.key, 0, fields),
            value_version=version,
            value=None if own is None else _struct(schemas.value, version or 0, own),
        )
        return encode_record(record)
    except (WireError, binascii.Error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{schemas.name}: {error}") from error


def _versioned(value: Any) -> tuple[int | None, Any]:
    if value is None:
        return None, None
    try:
        return int(value["version"]), value["data"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the value {value!r:.60} has no version and data") from error


def _struct(schema: Schema, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    parts = schema_layout(schema, version)
    return _fields((*parts.plain, *parts.tagged), fields)


def _fields(known: tuple[Field, ...], fields: Mapping[str, Any]) -> dict[str, Any]:
    by_name = {field.name: field for field in known}
    return {
        name: _value(by_name[name], value) if name in by_name else value
        for name, value in fields.items()
    }


def _value(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_one(field, element) for element in value]
    return _one(field, value)


def _one(field: Field, value: Any) -> Any:
    if field.kind is Kind.STRUCT:
        return None if value is None else _fields(field.fields, value)
    if field.kind is Kind.BYTES:
        return _bytes(field.name, value)
    if field.kind in _NUMBERS and (not isinstance(value, int) or isinstance(value, bool)):
        raise TypeError(f"{field.name}: {value!r:.60} is not a whole number")
    if field.kind is Kind.STRING and not isinstance(value, str):
        raise TypeError(f"{field.name}: {value!r:.60} is not a string")
    return value


def _bytes(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return b64decode(value, validate=True)
    schema = _EMBEDDED[name]
    version = max((field.since for field in schema.fields if field.name in value), default=0)
    return encode_schema(schema, _struct(schema, version, value), version)


# Lines


def is_noise(line: str) -> bool:
    """Return whether a line is not part of a record: a note, a log line, or blank."""
    return _NOISE.match(line) is not None


def wrong_line(path: object, line: int, why: str) -> SourceError:
    """Return the error of a text that is malformed or cut short."""
    return SourceError(f"{path}, line {line}: {why}")

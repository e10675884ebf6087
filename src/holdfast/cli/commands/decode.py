"""``holdfast decode``: reads hex and prints JSON.

**Rules.** Each input line gives one output line, in order. A bad line gives its error, and the run
continues; its exit code is 3. Bytes are hex; partitions are a flat list of [topic, partition],
tasks one of [subtopology, partition], offset sums one of [subtopology, partition, sum], failed
resources one of [kind, error, number]. Keys are the names of the fields in
:mod:`holdfast.core.wire`.

**Strategy.** ``SCHEMAS`` is the only list of messages, ``READ_RECORD`` that of records. The type of
a field in the dataclass decides how the field looks in JSON, by the table ``_SHAPES``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import UnionType
from typing import IO, Annotated, Any, get_args, get_type_hints

from click.exceptions import Exit

from holdfast.cli.declared import Argument, Option
from holdfast.cli.options import JsonFormat, OutputFile, Quiet
from holdfast.cli.output import print_error, track
from holdfast.core.model.constants import Design
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.layouts import (
    consumer_protocol,
    container,
    other_protocols,
    share_state,
    state_shard,
)
from holdfast.core.wire.layouts.container import Leaving
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.errors import ConfigError, SourceError, WireError, nearest
from holdfast.fleet.tables.storage.file_system import open_private

RECORD, SHARE_STATE = "record", "share-state"
READ_RECORD: Mapping[str, Callable[[bytes | None, bytes | None], dict[str, Any]]] = {
    RECORD: lambda key, value: decode_record(key, value).to_dict(),
    SHARE_STATE: lambda key, value: to_json(share_state.decode_share_state(key or b"", value)),
}
"""Schemas of records, which have a key and a value."""
BAD_HEX = "bad-hex"


SCHEMAS: Mapping[str, Callable[[bytes], Any]] = {
    "subscription": consumer_protocol.decode_subscription,
    "assignment": consumer_protocol.decode_assignment,
    "sticky-user-data": consumer_protocol.decode_sticky_user_data,
    "cooperative-sticky-user-data": lambda data: consumer_protocol.StickyUserData(
        partitions=(), generation=consumer_protocol.decode_cooperative_user_data(data)
    ),
    "design-subscription": other_protocols.decode_design_subscription,
    "design-assignment": other_protocols.decode_design_assignment,
    "claim": container.decode_member_subscription,
    "verdict": container.decode_member_assignment,
    "state-shard": state_shard.decode_shard,
    "connect-metadata": other_protocols.decode_connect_metadata,
    "connect-assignment": other_protocols.decode_connect_assignment,
    "streams-subscription": other_protocols.decode_streams_subscription,
    "streams-assignment": other_protocols.decode_streams_assignment,
}
"""Schemas of messages, and what reads each."""


def decode_line(schema: str, line: str) -> dict[str, Any]:
    """Decode one message in hex to JSON types; a record is ``KEYHEX VALUEHEX`` or ``KEYHEX null``.

    Raise WireError if the line is not hex (``bad-hex``), or the bytes break their schema.
    """
    if schema not in READ_RECORD:
        return to_json(SCHEMAS[schema](_from_hex(line.strip(), schema, "data")))
    key, _, value = line.strip().partition(" ")
    return decode_record_hex(schema, key, value.strip() or "null")


def decode_record_hex(schema: str, key: str, value: str) -> dict[str, Any]:
    """Decode one record in hex to JSON types; ``null`` is null."""
    return READ_RECORD[schema](
        None if key == "null" else _from_hex(key, schema, "key"),
        None if value == "null" else _from_hex(value, schema, "value"),
    )


def to_json(value: Any) -> dict[str, Any]:
    """Convert a message to JSON types."""
    kind: Any = type(value)
    fields = {name: write(getattr(value, name)) for name, write in _fields_of(kind).items()}
    sizes: dict[str, Any] = fields.pop("sizes", {})  # of a state shard, beside its other fields
    return fields | sizes


def _from_hex(text: str, schema: str, field: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise WireError(BAD_HEX, schema=schema, field=field, detail=str(error)) from error


_Shape = Callable[[Any], Any]

_SHAPES: Mapping[object, _Shape] = {
    int: int,
    bool: bool,
    str: str,
    bytes: bytes.hex,
    tuple[str, ...]: list,
    TopicPartitions: lambda value: [[topic, n] for topic, numbers in value for n in numbers],
    tuple[container.FailedPartitions, ...]: lambda value: [
        [one.topic, one.error, number] for one in value for number in one.partitions
    ],
    Design: int,
    Leaving: int,
    state_shard.Sizes: state_shard.Sizes._asdict,
    tuple[state_shard.MemberEntry, ...]: lambda value: [to_json(member) for member in value],
    tuple[other_protocols.Task, ...]: lambda value: [list(task) for task in value],
    tuple[tuple[other_protocols.Task, int], ...]: lambda value: [
        [*task, offset] for task, offset in value
    ],
}


def _shape(hint: Any) -> _Shape:
    if not isinstance(hint, UnionType):
        return _SHAPES[hint]
    write = _SHAPES[get_args(hint)[0]]  # the other one is None
    return lambda value: None if value is None else write(value)


@cache
def _fields_of(kind: Any) -> Mapping[str, _Shape]:
    """Return the JSON form of each field of a message, by its name."""
    return {name: _shape(hint) for name, hint in get_type_hints(kind).items()}


EXIT_BAD_BYTES = 3
NAMES = (*SCHEMAS, *READ_RECORD)

EXAMPLES = """\b
Examples:
  holdfast decode subscription 00000000000100017400000000
  holdfast decode record --key 0001000365746c00017400000000 --format json
  holdfast decode assignment - < assignments.hex
"""


def run(
    *,
    schema: Annotated[str, Argument(help=f"Schema of the bytes: {', '.join(NAMES)}.")],
    data: Annotated[
        str | None,
        Argument(metavar="HEX|-", help="Bytes in hex; - reads stdin, one message a line."),
    ] = None,
    key: Annotated[
        str | None, Option("--key", metavar="HEX", help="Key of a record, in hex.")
    ] = None,
    value: Annotated[
        str | None,
        Option(
            "--value", metavar="HEX", help="Value of a record, in hex; null or absent: a tombstone."
        ),
    ] = None,
    fmt: Annotated[
        JsonFormat,
        Option("--format", help="Output format: json is indented, jsonl one line a message."),
    ] = JsonFormat.JSONL,
    output: OutputFile = None,
    quiet: Quiet = False,
) -> None:
    """Read messages of group rebalancing, and records of the offsets topic, as JSON.

    A record on stdin is KEYHEX VALUEHEX, or KEYHEX null. Bad bytes give
    {"error": {"reason", "schema", "version", "field", "position"}} and exit code 3.
    """
    if schema not in NAMES:
        hint = nearest(schema, NAMES, 3, before="") or f"known are {', '.join(NAMES)}"
        raise ConfigError(f"no schema is called {schema!r}; {hint}")
    indent = 2 if fmt is JsonFormat.JSON else None
    answers = (
        json.dumps(document, indent=indent) for document in _documents(schema, data, key, value)
    )
    _write_lines(answers, output, quiet)


def _documents(
    schema: str, data: str | None, key: str | None, value: str | None
) -> Iterator[dict[str, Any]]:
    of_record = key is not None or value is not None
    if data == "-" and not of_record:
        return (_answer(partial(decode_line, schema, line)) for line in _stdin_lines())
    if (
        (schema in READ_RECORD) != of_record
        or (data is None) != of_record
        or (of_record and not key)
    ):
        raise ConfigError(
            f"decode: expected --key HEX [--value HEX] for {' and '.join(READ_RECORD)}, HEX for "
            "other schemas; - reads stdin"
        )
    read = partial(decode_line, schema, str(data))
    if of_record:
        read = partial(decode_record_hex, schema, str(key), value or "null")
    return iter((_answer(read, is_argument=True),))


def _answer(read: Callable[[], dict[str, Any]], *, is_argument: bool = False) -> dict[str, Any]:
    """Return a message or its error; an argument that is not hex is a usage error."""
    try:
        return read()
    except WireError as error:
        if is_argument and error.reason == BAD_HEX:
            raise ConfigError(f"{error.field}: expected pairs of hex digits") from error
        names = ("reason", "schema", "version", "field", "position")
        return {"error": {name: getattr(error, name) for name in names}}


def _write_lines(lines: Iterator[str], output: Path | None, quiet: bool) -> None:
    """Write the lines; end with exit code 3 if one of them is an error.

    On a terminal the lines themselves show how far it is, elsewhere a bar does.
    """
    n_bad = 0
    seen = output is None and sys.stdout.isatty()
    with _opened(output) as stream:
        for line in track(lines, None, "messages", quiet=quiet or seen):
            n_bad += line.startswith(('{"error"', '{\n  "error"'))
            stream.write(line + "\n")
    if n_bad:
        if not quiet:
            print_error(f"{n_bad} message{'s' if n_bad > 1 else ''} could not be read")
        raise Exit(EXIT_BAD_BYTES)


def _stdin_lines() -> Iterator[str]:
    """Yield lines of stdin without their ends; invalid UTF-8 becomes U+FFFD, an error later."""
    for line in sys.stdin.buffer:
        yield line.decode("utf-8", errors="replace").rstrip("\r\n")


@contextmanager
def _opened(path: Path | None) -> Iterator[IO[str]]:
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        stream = open_private(path)
    except OSError as error:
        raise SourceError(f"cannot write {path}: {error.strerror}") from error
    with stream:
        yield stream

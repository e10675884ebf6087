"""``holdfast decode``: reads hex and prints JSON.

**Rules.** Each input line gives one output line, in order. A bad line gives its error, and the run
continues; its exit code is 3.

**Strategy.** :mod:`holdfast.cli.wire_json` reads the messages; this module reads and writes lines.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

from click.exceptions import Exit

from holdfast.cli.declared import Argument, Option
from holdfast.cli.options import JsonFormat, OutputFile, Quiet
from holdfast.cli.output import print_error, track
from holdfast.cli.wire_json import (
    BAD_HEX,
    READ_RECORD,
    SCHEMAS,
    decode_line,
    decode_record_hex,
    error_json,
)
from holdfast.errors import ConfigError, SourceError, WireError, nearest
from holdfast.fleet.tables.storage.private import open_private

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
    _check_name(schema)
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
        return error_json(error)


def _check_name(schema: str) -> None:
    """Refuse a schema that is not known, with the nearest names."""
    if schema not in NAMES:
        hint = nearest(schema, NAMES, 3, before="") or f"known are {', '.join(NAMES)}"
        raise ConfigError(f"no schema is called {schema!r}; {hint}")


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

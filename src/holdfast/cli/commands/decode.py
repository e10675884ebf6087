"""``holdfast decode``: hex in, JSON out.

**Rules.** Each input line gives one output line, in order. A bad line gives its error, and the run
goes on.

**Strategy.** :mod:`holdfast.cli.wire_json` reads the messages; this module reads and writes lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

from holdfast.cli.declared import Argument, Option
from holdfast.cli.message_lines import NAMES, check_name, stdin_lines, write_lines
from holdfast.cli.options import JsonFormat, OutputFile, Quiet
from holdfast.cli.wire_json import BAD_HEX, READ_RECORD, decode_line, decode_record_hex, error_json
from holdfast.errors import ConfigError, WireError

EXAMPLES = """\b
Examples:
  holdfast decode subscription 00000000000100017400000000
  holdfast decode record --key 0001000365746c00017400000000 --format json
  holdfast decode assignment - < assignments.hex
"""


def run(
    *,
    schema: Annotated[str, Argument(help=f"What the bytes are: {', '.join(NAMES)}.")],
    data: Annotated[
        str | None, Argument(metavar="HEX|-", help="The bytes; - reads many, one a line.")
    ] = None,
    key: Annotated[str | None, Option("--key", metavar="HEX", help="Of a record.")] = None,
    value: Annotated[
        str | None,
        Option("--value", metavar="HEX", help="Of a record; null or absent: a tombstone."),
    ] = None,
    fmt: Annotated[
        JsonFormat, Option("--format", help="json is indented, jsonl one line each.")
    ] = JsonFormat.JSONL,
    output: OutputFile = None,
    quiet: Quiet = False,
) -> None:
    """Read messages of group rebalancing, and records of the offsets topic, as JSON.

    A record on stdin is KEYHEX VALUEHEX, or KEYHEX null. Bad bytes give
    {"error": {"reason", "schema", "version", "field", "position"}} and exit code 3.
    """
    check_name(schema)
    indent = 2 if fmt is JsonFormat.JSON else None
    answers = (
        json.dumps(document, indent=indent) for document in _documents(schema, data, key, value)
    )
    write_lines(answers, output, quiet)


def _documents(
    schema: str, data: str | None, key: str | None, value: str | None
) -> Iterator[dict[str, Any]]:
    of_record = key is not None or value is not None
    if data == "-" and not of_record:
        return (_answer(partial(decode_line, schema, line)) for line in stdin_lines())
    if (
        (schema in READ_RECORD) != of_record
        or (data is None) != of_record
        or (of_record and not key)
    ):
        raise ConfigError(
            f"decode wants --key HEX [--value HEX] for {' and '.join(READ_RECORD)}, HEX for any "
            "other schema; - reads stdin"
        )
    read = partial(decode_line, schema, str(data))
    if of_record:
        read = partial(decode_record_hex, schema, str(key), value or "null")
    return iter((_answer(read, is_argument=True),))


def _answer(read: Callable[[], dict[str, Any]], *, is_argument: bool = False) -> dict[str, Any]:
    """A message, or its error; of an argument that is no hex at all, a mistake in the command."""
    try:
        return read()
    except WireError as error:
        if is_argument and error.reason == BAD_HEX:
            raise ConfigError(f"{error.field}: pairs of hex digits are expected") from error
        return error_json(error)

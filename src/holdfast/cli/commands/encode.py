"""``holdfast encode``: JSON in, hex out; the way back of ``holdfast decode``.

**Rules.** As :mod:`holdfast.cli.commands.decode`. Bytes are those that Kafka writes: a
subscription's topics come out sorted, whatever the order in the JSON.

**Strategy.** :mod:`holdfast.cli.wire_json` writes the messages; this module reads and writes lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from holdfast.cli.declared import Argument, Option
from holdfast.cli.message_lines import NAMES, check_name, stdin_lines, write_lines
from holdfast.cli.options import OutputFile, Quiet
from holdfast.cli.wire_json import encode_line, error_json
from holdfast.errors import SourceError, WireError

EXAMPLES = """\b
Examples:
  holdfast decode subscription 00000000000100017400000000 > s.json
  holdfast encode subscription s.json
  holdfast encode subscription --version 3 - < s.json
"""


def run(
    *,
    schema: Annotated[str, Argument(help=f"What the bytes shall be: {', '.join(NAMES)}.")],
    source: Annotated[
        str,
        Argument(metavar="FILE|-", help="JSON as decode prints it; - reads many, one a line."),
    ],
    version: Annotated[
        int | None, Option("--version", help="Layout to write; by default the JSON's own.")
    ] = None,
    output: OutputFile = None,
    quiet: Quiet = False,
) -> None:
    """Write messages and records as hex, from the JSON that decode prints.

    A FILE holds one document, or one a line. What cannot be written gives
    {"error": {"reason", "schema", "version", "field", "position"}} and exit code 3.
    """
    check_name(schema)
    lines = stdin_lines() if source == "-" else _documents_in(Path(source))
    write_lines((_error_or(schema, line, version) for line in lines), output, quiet)


def _documents_in(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read {path}: {error}") from error
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return iter(line for line in text.splitlines() if line.strip())
    return iter((text,))


def _error_or(schema: str, line: str, version: int | None) -> str:
    try:
        return encode_line(schema, line, version)
    except WireError as error:
        return json.dumps(error_json(error))

"""Lines of messages, as ``decode`` and ``encode`` read and write them.

**Rules.** Each input line gives one output line, in order. A line that is an error does not end the
run; it ends with exit code 3 then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from click.exceptions import Exit

from holdfast.cli.output import print_error, track
from holdfast.cli.wire_json import READ_RECORD, SCHEMAS
from holdfast.errors import ConfigError, SourceError, nearest
from holdfast.fleet.tables.storage.private import open_private

EXIT_BAD_BYTES = 3
NAMES = (*SCHEMAS, *READ_RECORD)


def check_name(schema: str) -> None:
    """Refuse a schema that is not known, with the nearest names."""
    if schema not in NAMES:
        hint = nearest(schema, NAMES, 3, before="") or f"known are {', '.join(NAMES)}"
        raise ConfigError(f"no schema is called {schema!r}; {hint}")


def write_lines(lines: Iterator[str], output: Path | None, quiet: bool) -> None:
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
            print_error(f"{n_bad} message{'s' if n_bad > 1 else ''} could not be read or written")
        raise Exit(EXIT_BAD_BYTES)


def stdin_lines() -> Iterator[str]:
    """Lines of stdin without their ends; bytes that are not UTF-8 become U+FFFD, an error later."""
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

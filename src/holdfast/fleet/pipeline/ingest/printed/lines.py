"""Common parts of the readers of printed text: a record, and the error that names a line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from holdfast.core.wire.many.record_batches import DATA, NO_PRODUCER
from holdfast.errors import SourceError

_NOISE: Final = re.compile(
    r"\s*$|Processed a total of \d+ messages|Picked up \w+_OPTIONS|Option --[\w-]+ is deprecated"
    r"|SLF4J[:(]|WARNING: |OpenJDK |log4j:|The consumer rebalance protocol \(KIP-848\)"
    r"|\[?\d{4}-\d\d-\d\d[T ][\d:.,]+Z?\]? .*\b(?:WARN|INFO|ERROR|DEBUG)\b"
    r"|(?:[\w$]+\.)+[\w$]*(?:Exception|Error)\b|\s+at [\w.$/<>]+\(|Caused by: "
)
"""Lines that the tools, their JVM and their logging print beside records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedRecord:
    """A record with the bytes of the topic, as far as the text has them."""

    line: int  # of the text, from 1
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    producer_id: int = NO_PRODUCER
    transactional: bool = False
    marker: int = DATA


def is_noise(line: str) -> bool:
    """Return whether a line is not part of a record: a note, a log line, or blank."""
    return _NOISE.match(line) is not None


def wrong_line(path: object, line: int, why: str) -> SourceError:
    """Return the error of a text that is malformed or cut short."""
    return SourceError(f"{path}, line {line}: {why}")

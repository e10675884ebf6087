"""The output of the console consumer with the formatters of the offsets topic, as records.

**Rules.** The text has neither partition nor offset: all records get partition 0, and their
positions are those of the text, which has the records of a group in their order. The time of a
record is that of its commit, or of its group's state; a record without one has that of the record
before it.

References: ``OffsetsMessageFormatter`` and ``GroupMetadataMessageFormatter`` of Kafka 2.8 to 4.3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.fleet.pipeline.ingest.printed.kafka_json import UnknownTypeError, record_of_json
from holdfast.fleet.pipeline.ingest.printed.lines import PrintedRecord, is_noise, wrong_line

BEGINS: Final = re.compile(r'\s*\{"key":\s*\{')
"""A line that begins a text of this tool, since Kafka 3.9."""

_TIMES: Final = ("commitTimestamp", "currentStateTimestamp", "assignmentTimestamp")


@dataclass(slots=True)
class PrintedConsole:
    """Records of a text, in its order.

    Parameters
    ----------
    n_unknown : int
        Records of types that the tool did not know; known when the records were read.
    """

    path: object
    lines: Iterable[str]
    n_unknown: int = 0

    def records(self) -> Iterator[PrintedRecord]:
        """Yield records, each with its position in the text as its offset.

        Raises
        ------
        SourceError
            A line is malformed, or the text is cut short.
        """
        time_ms = 0
        for offset, (line, key, value) in enumerate(self._objects()):
            time_ms = _time_of(value, time_ms)
            try:
                made = record_of_json(key, value)
            except UnknownTypeError:
                self.n_unknown += 1
                continue
            except ValueError as error:
                raise wrong_line(self.path, line, str(error)) from error
            yield PrintedRecord(
                line=line,
                partition=0,
                offset=offset,
                timestamp_ms=time_ms,
                key=made[0],
                value=made[1],
            )

    def _objects(self) -> Iterator[tuple[int, Any, Any]]:
        """Yield keys and values with their lines; Kafka 4 prints one object behind the other."""
        decoder = json.JSONDecoder()
        for line, text in enumerate(self.lines, 1):
            at = _first_of(text, 0)
            while at < len(text):
                if not text.startswith("{", at):
                    if is_noise(text[at:]):
                        break
                    raise wrong_line(self.path, line, f"{text[at:]!r:.60} is not a record")
                try:
                    found, at = decoder.raw_decode(text, at)
                    yield line, found["key"], found["value"]
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    raise wrong_line(
                        self.path,
                        line,
                        f"{text[at : at + 60]!r} is not a whole record: was the text cut short? "
                        f"({error})",
                    ) from error
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

"""The output of the console consumer with the formatters of the offsets topic before Kafka 4.

::

    [G,TOPIC,0]::OffsetAndMetadata(offset=5, leaderEpoch=Optional[0], metadata=M, ...)
    G::GroupMetadata(groupId=G, generation=1, protocolType=Some(consumer), ...)
    G::NULL

**Rules.** As of :mod:`~holdfast.fleet.pipeline.ingest.printed.console`. The text of a group has
neither a time nor assignments, and no history can be made of it: such records are counted and
omitted. Metadata may contain line ends, so a line that begins no record belongs to the one before.

References: ``OffsetsMessageFormatter`` and ``GroupMetadataMessageFormatter`` of
``GroupMetadataManager``, Kafka 2.8 to 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.fleet.pipeline.ingest.printed.lines import PrintedRecord, is_noise, wrong_line
from holdfast.fleet.pipeline.ingest.printed.old_texts import record_bytes

BEGINS: Final = re.compile(
    r"\[.*,[\w.-]+,\d+\]::(?:NULL$|OffsetAndMetadata\()|.*::GroupMetadata\(groupId=|.*::NULL$"
)
"""A line that begins a record."""

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


@dataclass(slots=True)
class OldConsole:
    """Records of a text, in its order.

    Parameters
    ----------
    n_groups : int
        Records of groups, which are left out; known when the records were read.
    """

    path: object
    lines: Iterable[str]
    n_groups: int = 0
    n_unknown: int = 0  # every record here has a known type

    def records(self) -> Iterator[PrintedRecord]:
        """Yield records, each with its position in the text as its offset.

        Raises
        ------
        SourceError
            A line is malformed, or the text is cut short.
        """
        time_ms = _NO_TIME
        for offset, (line, text) in enumerate(self._whole()):
            found = _COMMIT.fullmatch(text)
            if found is None:
                if not _GROUP.fullmatch(text):
                    why = f"{text!r:.60} is not a whole record: was the text cut short?"
                    raise wrong_line(self.path, line, why)
                self.n_groups += 1
                continue
            time_ms = int(found["time"] or time_ms)
            try:
                key, value = _commit(found)
            except ValueError as error:
                raise wrong_line(self.path, line, str(error)) from error
            yield PrintedRecord(
                line=line,
                partition=0,
                offset=offset,
                timestamp_ms=time_ms,
                key=key,
                value=value,
            )

    def _whole(self) -> Iterator[tuple[int, str]]:
        begun, parts = 0, list[str]()
        for number, text in enumerate(self.lines, 1):
            if BEGINS.match(text):
                if parts:
                    yield begun, "".join(parts).rstrip("\r\n")
                begun, parts = number, [text]
            elif is_noise(text) and (not parts or _is_whole("".join(parts))):
                continue
            elif parts:
                parts.append(text)
            else:
                raise wrong_line(self.path, number, f"{text.rstrip()!r:.60} is not a record")
        if parts:
            yield begun, "".join(parts).rstrip("\r\n")


def _is_whole(text: str) -> bool:
    text = text.rstrip("\r\n")
    return bool(_COMMIT.fullmatch(text) or _GROUP.fullmatch(text))


def _commit(found: re.Match[str]) -> tuple[bytes, bytes | None]:
    key = {"group": found["group"], "topic": found["topic"], "partition": int(found["partition"])}
    if found["offset"] is None:
        return record_bytes(RecordType.OFFSET_COMMIT, key, 3, None)
    value: dict[str, Any] = {
        "offset": int(found["offset"]),
        "metadata": found["metadata"],
        "commitTimestamp": int(found["time"]),
    }
    if found["expires"] is not None:
        value["expireTimestamp"] = int(found["expires"])
        return record_bytes(RecordType.OFFSET_COMMIT, key, 1, value)
    value["leaderEpoch"] = -1 if found["epoch"] is None else int(found["epoch"])
    return record_bytes(RecordType.OFFSET_COMMIT, key, 3, value)

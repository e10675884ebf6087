"""The output of the console consumer with the formatters of the offsets topic before Kafka 4.

::

    [G,TOPIC,0]::OffsetAndMetadata(offset=5, leaderEpoch=Optional[0], metadata=M, ...)
    G::GroupMetadata(groupId=G, generation=1, protocolType=Some(consumer), ...)
    G::NULL

and of ``kafka-dump-log --offsets-decoder`` before its JSON::

    key: offset_commit::group=G,partition=TOPIC-0 payload: offset=5,metadata=M
    key: group_metadata::group=G payload: {"protocolType":..., "assignment":"{MEMBER=[TOPIC-0]}"}

**Rules.** As of :mod:`~holdfast.fleet.pipeline.ingest.printed.console`. The text of a group has
neither a time nor assignments, and no history can be made of it: such records are counted and
omitted. Metadata may contain line ends, so a line that begins no record belongs to the one before.
Names come from strangers, so an ambiguous text is parsed by the size of the key if it is printed,
and else with the longest name of a group. Missing fields have their default: no leader, no client,
no subscription, and a timeout of 0, which means unknown.

References: ``OffsetsMessageFormatter`` and ``GroupMetadataMessageFormatter`` of
``GroupMetadataManager``, Kafka 2.8 to 3.9.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.cluster.snapshot import SeenMember
from holdfast.core.model.partitions import grouped
from holdfast.core.wire.layouts.consumer_protocol import AssignmentMessage, encode_assignment
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.errors import WireError
from holdfast.fleet.pipeline.ingest.described_records import (
    CLASSIC_VERSION,
    KeyValue,
    commit_record,
    deleted_group,
    encoded,
    generation_record,
)
from holdfast.fleet.pipeline.ingest.printed.console import PrintedRecord, is_noise, wrong_line

DELETED: Final = "<DELETE>"
BETWEEN: Final = " payload: "
_COMMIT_KEY: Final = re.compile(r"offset_commit::group=(.*),partition=([\w.-]+)-(\d+)", re.DOTALL)
_GROUP_KEY: Final = re.compile(r"group_metadata::group=(.*)", re.DOTALL)
_LOGGED_COMMIT: Final = re.compile(r"offset=(-?\d+)(?:,metadata=(.*))?", re.DOTALL)
_MEMBER: Final = re.compile(
    r"(?P<id>.+?)=(?:\[(?P<own>(?:[\w.-]+-\d+(?:, )?)*)\](?::[0-9A-F]+)?|[0-9A-F]*)(?:,|$)",
    re.DOTALL,
)


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
    """Records of a text, in its order; ``n_groups`` records of groups are left out."""

    path: object
    lines: Iterable[str]
    n_groups: int = 0
    n_unknown: int = 0  # every record here has a known type

    def records(self) -> Iterator[PrintedRecord]:
        """Yield records, their positions as offsets; a SourceError names a wrong line."""
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
            except WireError as error:
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

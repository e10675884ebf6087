"""Records of the offsets topic from the text of Kafka's tools before their JSON.

``kafka-dump-log --offsets-decoder``::

    key: offset_commit::group=G,partition=TOPIC-0 payload: offset=5,metadata=M
    key: group_metadata::group=G payload: {"protocolType":..., "assignment":"{MEMBER=[TOPIC-0]}"}

**Rules.** Names come from strangers, so an ambiguous text is parsed by the size of the key if it
is printed, and else with the longest name of a group. Missing fields have their default: no
leader, no client, no subscription, and a timeout of 0, which means unknown. The time of a group's
record and of a commit is the one that was printed beside it.

References: ``GroupMetadataManager.formatRecordKeyAndValue``, Kafka 2.8 to 3.8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from holdfast.core.model.partitions import grouped
from holdfast.core.wire.layouts.consumer_protocol import AssignmentMessage, encode_assignment
from holdfast.core.wire.layouts.offsets_records import Record, encode_record
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.errors import WireError

DELETED: Final = "<DELETE>"
BETWEEN: Final = " payload: "
_COMMIT_KEY: Final = re.compile(r"offset_commit::group=(.*),partition=([\w.-]+)-(\d+)", re.DOTALL)
_GROUP_KEY: Final = re.compile(r"group_metadata::group=(.*)", re.DOTALL)
_COMMIT: Final = re.compile(r"offset=(-?\d+)(?:,metadata=(.*))?", re.DOTALL)
_MEMBER: Final = re.compile(
    r"(?P<id>.+?)=(?:\[(?P<own>(?:[\w.-]+-\d+(?:, )?)*)\](?::[0-9A-F]+)?|[0-9A-F]*)(?:,|$)",
    re.DOTALL,
)
_Bytes = tuple[bytes, bytes | None]


def record_of_log(text: str, key_bytes: int, time_ms: int) -> _Bytes:
    """Return key and value of the text that ``kafka-dump-log`` printed behind ``key: ``.

    Parameters
    ----------
    key_bytes : int
        Size of the key, as printed.
    time_ms : int
        Time of the record.

    Raises
    ------
    ValueError
        The text is neither kind of record.
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


def _of_log(key: str, payload: str, time_ms: int) -> _Bytes | None:
    if commit := _COMMIT_KEY.fullmatch(key):
        group, topic, partition = commit.groups()
        value = _COMMIT.fullmatch(payload)
        if value is None and payload != DELETED:
            return None
        printed = None if value is None else (int(value[1]), value[2] or "")
        return _commit(group, topic, int(partition), printed, time_ms)
    if group_key := _GROUP_KEY.fullmatch(key):
        if payload == DELETED:
            return _group(group_key[1], None, time_ms)
        try:
            return _group(group_key[1], json.loads(payload), time_ms)
        except ValueError:
            return None
    return None


def _commit(
    group: str,
    topic: str,
    partition: int,
    printed: tuple[int, str] | None,
    time_ms: int,
) -> _Bytes:
    value = None
    if printed is not None:
        value = {
            "offset": printed[0],
            "leaderEpoch": -1,
            "metadata": printed[1],
            "commitTimestamp": time_ms,
        }
    key = {"group": group, "topic": topic, "partition": partition}
    return record_bytes(RecordType.OFFSET_COMMIT, key, 3, value)


def _group(group: str, printed: dict[str, Any] | None, time_ms: int) -> _Bytes:
    value = None
    if printed is not None:
        protocol_type = str(printed["protocolType"] or "")
        members = _members(str(printed["assignment"]))
        value = {
            "protocolType": protocol_type,
            "generation": int(printed["generationId"]),
            "protocol": printed.get("protocol"),
            "leader": None,
            "currentStateTimestamp": time_ms,
            "members": [member_of(name, given) for name, given in members],
        }
    return record_bytes(RecordType.GROUP_METADATA, {"group": group}, 3, value)


def member_of(name: str, given: bytes = b"", **printed: Any) -> dict[str, Any]:
    """Return a member of a group's record with the printed fields; the rest has defaults."""
    return {
        "memberId": name,
        "groupInstanceId": None,
        "clientId": "",
        "clientHost": "",
        "rebalanceTimeout": 0,
        "sessionTimeout": 0,
        "subscription": b"",
        "assignment": given,
        **printed,
    }


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


def record_bytes(
    kind: RecordType, key: dict[str, Any], version: int | None, value: dict[str, Any] | None
) -> _Bytes:
    """Return key and value of a record.

    Raises
    ------
    ValueError
        A field does not fit.
    """
    record = Record(
        record_type=kind,
        name=kind.schema_name,
        key=key,
        value_version=None if value is None else version,
        value=value,
    )
    try:
        return encode_record(record)
    except WireError as error:
        raise ValueError(str(error)) from error

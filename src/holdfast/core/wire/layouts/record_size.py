"""Sizes of records of the offsets topic: a broker's limit, and the size of a group's record.

A group's record holds every member with its subscription and its assignment. A broker writes it as
a batch of its own and refuses a batch above ``message.max.bytes`` (of the topic:
``max.message.bytes``). The leader's SyncGroup then ends in error -1 for every member that waits.

**Rules.** :func:`batch_bytes` is what the broker compares with its limit, to the byte. A member
cannot see client ids, hosts and the group's name in the answer to its JoinGroup, so
:func:`estimate_group_bytes` estimates them from the parts of Kafka's member ids.

**Strategy.** Sums of lengths; nothing is encoded.

References: Kafka's DefaultRecordBatch (61 bytes before the first record) and DefaultRecord
(varints); GroupMetadataValue v3 (KIP-345). Kafka 4.3.1: a group record of key and value together
1,048,516 bytes is written with the default limit, one of 1,048,517 is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from holdfast.core.model.columns import I64

Lengths = TypeVar("Lengths", int, I64)

MESSAGE_MAX_BYTES: Final = 1_048_588
"""The default of a broker's ``message.max.bytes``: the largest batch that it writes."""

BATCH_HEADER_BYTES: Final = 61
_RANDOM_ID_BYTES: Final = len("-00000000-0000-0000-0000-000000000000")
_HOST_BYTES: Final = len("/255.255.255.255")
_MEMBER_FIELDS_BYTES: Final = 4 * 2 + 2 * 4 + 2 * 4  # four strings, two times, two byte arrays
_GROUP_FIELDS_BYTES: Final = 2 + 2 + 4 + 2 + 2 + 8 + 4  # version to the count of the members
_KEY_FIELDS_BYTES: Final = 2 + 2  # type, length of the group's name


def batch_bytes(key_bytes: Lengths, value_bytes: Lengths) -> Lengths:
    """Return the bytes of a batch of one record, as a broker compares them with its limit.

    Parameters
    ----------
    key_bytes, value_bytes : int, or int64[n_records]
        Bytes of the record's key and value, as in the log.

    Returns
    -------
    int, or int64[n_records]

    References: Kafka's DefaultRecordBatch and DefaultRecord.
    """
    around = 1 + 1 + 1 + 1  # attributes, time delta, offset delta, count of headers
    key, value = _varint_bytes(key_bytes) + key_bytes, _varint_bytes(value_bytes) + value_bytes
    body = around + key + value
    return BATCH_HEADER_BYTES + _varint_bytes(body) + body


def estimate_group_bytes(
    members: Iterable[tuple[str, str | None, int]], *, group_id: str = "", protocol_name: str = ""
) -> int:
    """Return the bytes of a group record's batch, from the data that the leader has.

    Parameters
    ----------
    members : iterable of (member id, instance id, bytes)
        Every member, and the bytes of its subscription and its assignment together.

    Returns
    -------
    int
        The size, exact but for three things. A host is counted as 16 characters, the longest that
        IPv4 has. A client id is counted as long as the text before the UUID in the member's id:
        that is the client id of a dynamic member and the instance id of a static one. Without
        ``group_id`` the group's name counts as empty.

    References: GroupMetadataValue v3; KIP-345 (a static member's id begins with its instance id).
    """
    total, longest_id = 0, 0
    for member_id, instance_id, n_bytes in members:
        own_id = len(member_id.encode())
        client_id = max(0, own_id - _RANDOM_ID_BYTES)
        instance = 0 if instance_id is None else len(instance_id.encode())
        total += _MEMBER_FIELDS_BYTES + own_id + instance + client_id + _HOST_BYTES + n_bytes
        longest_id = max(longest_id, own_id)
    value = _GROUP_FIELDS_BYTES + len("consumer") + len(protocol_name.encode()) + longest_id + total
    return batch_bytes(_KEY_FIELDS_BYTES + len(group_id.encode()), value)


def _varint_bytes(count: Lengths) -> Lengths:
    """Return the bytes of a length in a record: a zigzag varint of seven bits a byte."""
    return 1 + (count >= 1 << 6) + (count >= 1 << 13) + (count >= 1 << 20) + (count >= 1 << 27)

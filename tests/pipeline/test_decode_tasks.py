"""Tasks of Connect, Streams and our workers: columns against the scalar readers.

The same records are decoded twice, the second time with batch readers that refuse everything, so
that the scalar readers decide alone. The answers are equal for captured records, for records of
every version with random fields, and for records whose embedded messages were spoiled.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline.test_decode import batch_of

from holdfast.pipeline.ingest import decode, decode_classic, decode_streams, decode_tasks
from holdfast.wire.layouts import connect, streams_user_data
from holdfast.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.wire.layouts.container import (
    MemberAssignment,
    MemberSubscription,
    encode_member_assignment,
    encode_member_subscription,
)
from holdfast.wire.layouts.frames import Leaving
from holdfast.wire.layouts.offsets_schemas import Kind, layout
from holdfast.wire.many import offsets_tasks
from holdfast.wire.one.offsets_records import Record, decode_record, encode_record
from holdfast.wire.one.writer import Writer

CAPTURED = Path(__file__).parent.parent / "wire" / "captured"
KINDS = ("connect", "worker", "streams_classic")
READERS = {
    "connect": ("connect", "sessioned"),
    "holdfast": ("holdfast", "holdfast-deferred"),
    "stream": ("consumer", "stream"),
}


def decoded(pairs) -> list[list[dict]]:
    tables = []
    for gens in decode.generations(iter([batch_of(pairs)])):
        for table in (gens.head, gens.members, gens.owned):
            table.validate(full=True)
            tables.append(table.to_pylist())
    return tables


def refuse_all(monkeypatch) -> None:
    """Make the batch readers refuse every message."""

    def nothing(read):
        return lambda messages, rows: read(messages, rows[:0])

    for name in ("read_connect_metadata", "read_connect_assignments"):
        monkeypatch.setattr(decode_tasks, name, nothing(getattr(offsets_tasks, name)))
    for name in ("read_streams_assignments", "read_streams_subscriptions"):
        monkeypatch.setattr(decode_streams, name, nothing(getattr(offsets_tasks, name)))

    def refused(frames):
        none = np.zeros(len(frames), np.int64)
        return offsets_tasks.Frames(read=none > 0, leaving=none, delay_ms=none.copy(), lists=[])

    for module in (decode_classic, decode_tasks):
        for name in ("read_claims", "read_verdicts"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, refused)


def assert_alike(pairs, monkeypatch) -> list[list[dict]]:
    quick = decoded(pairs)
    with monkeypatch.context() as patch:
        refuse_all(patch)
        slow = decoded(pairs)
    assert quick == slow
    return quick


def captured(kind: str) -> list[tuple[bytes, bytes | None]]:
    rows = map(json.loads, (CAPTURED / f"{kind}.jsonl").read_text().splitlines())
    return [
        (bytes.fromhex(row["key"]), bytes.fromhex(row["value"]) if row["value"] else None)
        for row in rows
        if "topic" not in row and row["key"][:4] == "0002"
    ]


def group_of(messages, reader: str, generation: int = 1) -> tuple[bytes, bytes | None]:
    protocol_type, protocol = READERS[reader]
    members = [
        {
            "memberId": f"m{number:03d}",
            "groupInstanceId": None,
            "clientId": "c",
            "clientHost": "/h",
            "rebalanceTimeout": 60_000,
            "sessionTimeout": 10_000,
            "subscription": subscription,
            "assignment": assignment,
        }
        for number, (subscription, assignment) in enumerate(messages)
    ]
    value = {
        "protocolType": protocol_type,
        "generation": generation,
        "protocol": protocol,
        "leader": "m000",
        "currentStateTimestamp": 1,
        "members": members,
    }
    key = {"group": reader}
    record = Record(record_type=2, name="GroupMetadata", key=key, value_version=3, value=value)
    return encode_record(record)


def written(fields, layout_version: int, rng, **given) -> bytes:
    """A struct with random fields, or those given."""
    writer = Writer("random")
    for field in layout(fields, layout_version, False).plain:
        write_field(writer, field, layout_version, rng, given.get(field.name))
    return writer.done()


def write_field(writer: Writer, field, version: int, rng, value) -> None:
    if field.is_array:
        if field.nullable and rng.random() < 0.2:
            writer.int32(-1, field.name)
            return
        n = 0 if field.name == "namedTopology" and rng.random() < 0.97 else int(rng.integers(0, 5))
        writer.int32(n, field.name)
        for _ in range(n):
            if field.kind is Kind.STRUCT:
                writer.raw(written(field.fields, version, rng))
            else:
                write_value(writer, field, rng, None)
    else:
        write_value(writer, field, rng, value)


def write_value(writer: Writer, field, rng, value) -> None:
    small = int(rng.integers(-2, 5)) if value is None else value
    match field.kind:
        case Kind.STRING if field.name == "namedTopology":
            writer.string("named" if rng.random() < 0.03 else None, "", nullable=True)
        case Kind.STRING:
            writer.string(f"näme-{small}", "")
        case Kind.BYTES:
            writer.bytes_(value if isinstance(value, bytes) else b"abc", "", nullable=True)
        case Kind.UUID:
            writer.raw(bytes(range(16)))
        case Kind.INT64:
            writer.int64(small, "")
        case Kind.INT32:
            writer.int32(small, "")
        case Kind.INT16:
            writer.int16(small, "")
        case _:
            writer.int8(small, "")


def random_connect(rng) -> tuple[bytes, bytes]:
    version = int(rng.integers(1, 5))
    had, now = (
        written(connect.ASSIGNMENT_FIELDS, 1, rng, version=version, delay=int(rng.integers(0, 3)))
        for _ in range(2)
    )
    allocation = had if rng.random() < 0.9 else b""
    return written(connect.METADATA_FIELDS, 1, rng, version=version, allocation=allocation), now


def random_streams(rng) -> tuple[bytes, bytes]:
    asked, given = rng.integers(1, 13, 2).tolist()
    fields = streams_user_data
    data = written(fields.SUBSCRIPTION_FIELDS, min(asked, 11), rng, version=asked)
    next_ms = [streams_user_data.NEVER_MS, 0, 5, 10**12][int(rng.integers(0, 4))]
    more = written(
        fields.ASSIGNMENT_FIELDS, min(given, 11), rng, version=given, nextRebalanceMs=next_ms
    )
    topics = tuple((f"t{n}", tuple(range(int(rng.integers(0, 4))))) for n in range(3))
    return (
        encode_subscription(Subscription(topics=("t0",), user_data=data)),
        encode_assignment(AssignmentMessage(partitions=topics, user_data=more)),
    )


def random_worker(rng) -> tuple[bytes, bytes]:
    def sets():
        return tuple(
            (f"kind{n}", tuple(sorted(set(rng.integers(0, 300, 3).tolist())))) for n in range(2)
        )

    had = MemberSubscription(
        topics=("kind0",),
        owned=sets(),
        nonce=int(rng.integers(0, 2**20)),
        leaving=list(Leaving)[int(rng.integers(0, 3))],
        delay_ms=int(rng.integers(0, 2) * 300),
        memory_age_ms=int(rng.integers(0, 2) * 70),
        given_up=sets() if rng.random() < 0.3 else (),
        memory=b"memory" if rng.random() < 0.5 else None,
        assignor_data=b"x" if rng.random() < 0.1 else None,
    )
    now = MemberAssignment(
        assigned=sets(),
        revoked=[None, (), (("kind1", (3, 5, 9)),), sets()][int(rng.integers(0, 4))],
        delay_ms=int(rng.integers(0, 2) * 20_000),
        nonce=int(rng.integers(0, 300)),
        memory=b"memory" if rng.random() < 0.5 else None,
        planned=b"x" if rng.random() < 0.1 else None,
    )
    return encode_member_subscription(had), encode_member_assignment(now)


RANDOM = {"connect": random_connect, "stream": random_streams, "holdfast": random_worker}


def spoiled(data: bytes, rng) -> bytes:
    """The bytes, cut off, made longer, or with some of them changed."""
    changed = bytearray(data)
    match int(rng.integers(0, 4)):
        case 0:
            return bytes(changed[: int(rng.integers(0, len(changed) + 1))])
        case 1:
            return bytes(changed) + bytes(rng.integers(0, 256, 3).tolist())
        case _:
            for at in rng.integers(0, max(len(changed), 1), int(rng.integers(1, 4))).tolist():
                if changed:
                    changed[at] = int(rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, changed[at] ^ 1]))
            return bytes(changed)


@pytest.mark.parametrize("kind", KINDS)
def test_captured_records_are_read_alike(kind, monkeypatch):
    tables = assert_alike(captured(kind), monkeypatch)
    assert sum(map(len, tables)) > 30


@pytest.mark.parametrize("reader", READERS)
def test_random_records_of_every_version_are_read_alike(reader, monkeypatch):
    rng = np.random.default_rng(16)
    pairs = [
        group_of([RANDOM[reader](rng) for _ in range(int(rng.integers(0, 5)))], reader, number)
        for number in range(150)
    ]
    _, members, owned = assert_alike(pairs, monkeypatch)
    assert np.mean([row["readable"] for row in members]) > 0.8
    assert len(owned) > len(members)


@pytest.mark.parametrize("reader", READERS)
def test_spoiled_records_are_read_alike(reader, monkeypatch):
    rng = np.random.default_rng(61)
    pairs = []
    for number in range(300):
        whole = [RANDOM[reader](rng) for _ in range(3)]
        at = int(rng.integers(0, 3))
        whole[at] = tuple(spoiled(one, rng) if rng.random() < 0.7 else one for one in whole[at])
        pairs.append(group_of(whole, reader, number))
    _, members, _ = assert_alike(pairs, monkeypatch)
    assert not all(row["readable"] for row in members)


@pytest.mark.parametrize("kind", KINDS)
def test_spoiled_captured_records_are_read_alike(kind, monkeypatch):
    rng = np.random.default_rng(4)
    pairs = []
    for key, value in captured(kind) * 10:
        record = decode_record(key, value)
        if record.value is None or not record.value["members"]:
            continue
        fields = record.to_dict()["value"]
        for member in fields["members"]:
            for name in ("subscription", "assignment"):
                if rng.random() < 0.5:
                    member[name] = spoiled(bytes.fromhex(member[name]), rng)
        more = Record(
            record_type=2, name=record.name, key=record.key, value_version=3, value=fields
        )
        pairs.append(encode_record(more))
    assert_alike(pairs, monkeypatch)


@pytest.mark.parametrize("kind", KINDS)
def test_captured_records_need_no_scalar_reader(kind, monkeypatch):
    def never(*_):
        raise AssertionError("a captured message was read alone")

    monkeypatch.setattr(decode_tasks, "blob", never)
    monkeypatch.setattr(decode_streams, "blob", never)
    monkeypatch.setattr(decode_classic, "blob", never)
    assert decoded(captured(kind))


def test_records_of_all_kinds_stand_in_one_batch(monkeypatch):
    rng = np.random.default_rng(7)
    pairs = []
    for number in range(20):
        for reader, one in RANDOM.items():
            pairs.append(group_of([one(rng) for _ in range(2)], reader, number))
    together = assert_alike(pairs, monkeypatch)
    apart = [decoded([pair]) for pair in pairs]
    assert [row["role"] for row in together[2]].count(4) == sum(
        [row["role"] for row in owned].count(4) for *_, owned in apart
    )
    assert len(together[2]) == sum(len(owned) for *_, owned in apart)

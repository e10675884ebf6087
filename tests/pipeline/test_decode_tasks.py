"""Tasks of Connect, Streams and our workers: what is read of one member touches no other one."""

from __future__ import annotations

import numpy as np
import pytest
from tests.pipeline.kinds import kind
from tests.pipeline.test_decode import batch_of

from holdfast.core.kinds import KINDS, Given, mark_warm_ups
from holdfast.core.wire.layouts.offsets_records import Record, decode_record, encode_record
from holdfast.core.wire.layouts.other_protocols import (
    CONNECT_ASSIGNMENT,
    CONNECT_METADATA,
    NEVER_MS,
)
from holdfast.core.wire.one.writer import Writer
from holdfast.fleet.pipeline.ingest import decode_classic

CAPTURED = ("connect", "worker", "streams_classic")
NAMES = ("subscription", "assignment")
READ = {row.name: row for row in KINDS if row.read is not None}


def decoded(pairs) -> list[list[dict]]:
    tables = []
    for gens in decode_classic.generations(batch_of(pairs)):
        for table in (gens.head, gens.members, gens.owned):
            table.validate(full=True)
            tables.append(table.to_pylist())
    return tables


def captured(name: str) -> list[tuple[bytes, bytes]]:
    """Records of generations with members."""
    rows = [row for row in kind(name).records if row["key"][:4] == "0002" and row["value"]]
    pairs = [(bytes.fromhex(row["key"]), bytes.fromhex(row["value"])) for row in rows]
    return [pair for pair in pairs if decode_record(*pair).to_dict()["value"]["members"]]


def changed(pair, change) -> tuple[bytes, bytes | None]:
    """The record with what ``change`` makes of its members' messages."""
    record = decode_record(*pair)
    value = record.to_dict()["value"]
    for number, member in enumerate(value["members"]):
        for name in NAMES:
            member[name] = change(number, name, bytes.fromhex(member[name]))
    return encode_record(
        Record(record_type=2, name=record.name, key=record.key, value_version=3, value=value)
    )


def spoiled(data: bytes, rng) -> bytes:
    """The bytes, cut off, made longer, or with some of them changed."""
    bytes_ = bytearray(data)
    match int(rng.integers(0, 4)):
        case 0:
            return bytes(bytes_[: int(rng.integers(0, len(bytes_) + 1))])
        case 1:
            return bytes(bytes_) + bytes(rng.integers(0, 256, 3).tolist())
        case _:
            for at in rng.integers(0, max(len(bytes_), 1), int(rng.integers(1, 4))).tolist():
                if bytes_:
                    bytes_[at] = int(rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, bytes_[at] ^ 1]))
            return bytes(bytes_)


def of_member(tables, number: int) -> tuple[dict, list[dict]]:
    """What the tables of one generation say of a member, but for roles."""
    _, members, owned = tables
    return members[number], [
        row | {"role": None} for row in owned if row["member"] == number and row["role"] != 4
    ]


@pytest.mark.parametrize("name", CAPTURED)
def test_a_spoiled_message_touches_no_other_member(name):
    rng = np.random.default_rng(61)
    unreadable = 0
    for pair in captured(name) * 5:
        whole = decoded([pair])
        victim = int(rng.integers(0, len(whole[1])))

        def change(number, _, data, victim=victim):
            return spoiled(data, rng) if number == victim else data

        found = decoded([changed(pair, change)])
        for number in {*range(len(whole[1]))} - {victim}:
            before, after = of_member(whole, number), of_member(found, number)
            assert after[0] == before[0]
            assert {row["topic"]: row["partitions"] for row in after[1]}.keys() == {
                row["topic"] for row in before[1]
            }
        unreadable += not found[1][victim]["readable"]
    assert unreadable


@pytest.mark.parametrize("name", CAPTURED)
def test_an_empty_assignment_gives_nothing_and_is_no_damage(name):
    pair = changed(captured(name)[-1], lambda _, name, data: b"" if name == NAMES[1] else data)
    _, members, owned = decoded([pair])
    assert all(row["readable"] for row in members) and not owned


@pytest.mark.parametrize("name", CAPTURED)
def test_a_message_that_does_not_parse_gives_nothing(name):
    pair = changed(
        captured(name)[-1], lambda _, name, data: data[:-1] if name == NAMES[1] else data
    )
    _, members, owned = decoded([pair])
    if name != "streams_classic":  # its last byte is in the user data, and topics parse
        assert not owned
    assert not any(row["readable"] for row in members)


def test_records_of_all_kinds_stand_in_one_batch():
    pairs = [pair for group in zip(*map(captured, CAPTURED), strict=False) for pair in group]
    together, apart = decoded(pairs), [decoded([pair]) for pair in pairs]
    strip = dict.fromkeys(("row", "member", "timestamp", "log_offset"))
    for place in range(3):
        assert [row | strip for row in together[place]] == [
            row | strip for tables in apart for row in tables[place]
        ]


def connect_messages(version: int) -> tuple[bytes, bytes]:
    """A worker that had a task, and is given a connector."""
    had, now = Writer(CONNECT_ASSIGNMENT), Writer(CONNECT_ASSIGNMENT)
    for writer, number in ((had, 3), (now, -1)):
        writer.int16(version, "")
        writer.int16(0, "")
        writer.string("leader", "")
        writer.string("http://leader", "")
        writer.int64(7, "")
        writer.int32(1, "")
        writer.string("sink", "")
        writer.int32(1, "")
        writer.int32(number, "")
    metadata = Writer(CONNECT_METADATA)
    metadata.int16(version, "")
    metadata.string("http://me", "")
    metadata.int64(5, "")
    if version:
        metadata.bytes_(had.done(), "")
    return metadata.done(), now.done()


@pytest.mark.parametrize(("version", "has", "revoked"), [(0, [-1], -1), (1, [-1, 3], 0)])
def test_before_increments_an_assignment_of_connect_is_everything(version, has, revoked):
    read = READ["connect"].read
    assert read is not None
    given = read(*connect_messages(version))
    assert given.owned == [(0, "sink", has)]
    assert (given.n_revoked, given.config_offset) == (revoked, 7)


def test_of_copies_only_those_beyond_what_every_task_has_are_warm_ups():
    # Subtopology 0 has two copies of task 0 and one of task 1: one copy of task 0 is to take over.
    first = Given(owned=[(0, "0", [0]), (1, "0", [1])], next_ms=5)
    second = Given(owned=[(0, "0", [1]), (1, "0", [0])])
    third = Given(owned=[(1, "0", [0])])
    given = mark_warm_ups([b"", b"", b""], [first, second, third])
    assert [one.owned for one in given] == [
        [(0, "0", [0]), (1, "0", [1])],
        [(0, "0", [1]), (2, "0", [0])],  # whose state nobody knows: the first one of these
        [(1, "0", [0])],
    ]
    calm = [Given(owned=one.owned, next_ms=NEVER_MS) for one in (first, second, third)]
    assert mark_warm_ups([b"", b"", b""], calm) == calm

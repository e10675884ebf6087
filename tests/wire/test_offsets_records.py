"""One record of the offsets topic: against Kafka's own classes, and against bad bytes."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from tests.wire.records_twin import records

from holdfast.core.wire.layouts.offsets_records import (
    Record,
    decode_key,
    decode_record,
    default_of,
    encode_record,
)
from holdfast.core.wire.layouts.offsets_schemas import (
    CONSUMER_ASSIGNMENT,
    CONSUMER_SUBSCRIPTION,
    RECORD_SCHEMAS,
    Field,
    Kind,
    Schema,
    layout,
    schema_layout,
)
from holdfast.errors import WireError

GOLDEN = json.loads((Path(__file__).parent / "golden/offsets_records.json").read_text("utf-8"))
COMMIT_KEY = bytes.fromhex("0001 0001 67 0001 74 00000002")


def id_of(vector: dict[str, Any]) -> str:
    return f"{vector['type']}-v{vector['version']}-{len(vector['value_hex'] or '')}"


# Kafka's own classes


def as_kafka_prints(fields: tuple[Field, ...], value: Any, version: int, flexible: bool) -> Any:
    """Kafka's JSON of a struct: bytes and ids in base 64, tagged defaults left out."""
    if value is None:
        return None
    here = layout(fields, version, flexible)
    out = {f.name: _print(f, value[f.name], version, flexible) for f in here.plain}
    for field in here.tagged:
        if value[field.name] != default_of(field):
            out[field.name] = _print(field, value[field.name], version, flexible)
    return out


def _print(field: Field, value: Any, version: int, flexible: bool) -> Any:
    if field.is_array and value is not None:
        one = replace(field, is_array=False)
        return [_print(one, element, version, flexible) for element in value]
    match value:
        case UUID():
            return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return as_kafka_prints(field.fields, value, version, flexible)
        case _:
            return value


@pytest.mark.parametrize("vector", GOLDEN, ids=id_of)
def test_reads_and_writes_what_kafka_writes(vector):
    key = bytes.fromhex(vector["key_hex"])
    value = None if vector["value_hex"] is None else bytes.fromhex(vector["value_hex"])
    record = decode_record(key, value)
    kind = RECORD_SCHEMAS[vector["type"]]
    assert (record.record_type, record.value_version) == (vector["type"], vector["version"])
    assert record.n_unknown_tags == vector.get("unknown_tags", 0)
    assert record.name.upper() == vector["name"].replace("_", "")
    assert as_kafka_prints(kind.key.fields, record.key, 0, False) == vector["key"]
    if value is not None:
        flexible = schema_layout(kind.value, record.value_version).flexible
        printed = as_kafka_prints(kind.value.fields, record.value, record.value_version, flexible)
        assert printed == vector["value"]
    if not vector.get("unknown_tags"):
        assert encode_record(record) == (key, value)


# Laws


@given(records())
def test_round_trip_through_json(record):
    back = json.loads(json.dumps(record.to_dict()))
    assert encode_record(Record(**back)) == encode_record(record)


@pytest.mark.parametrize("number", sorted(set(range(-2, 30)) - set(RECORD_SCHEMAS)))
def test_unknown_types_are_an_error_of_their_own(number):
    key = number.to_bytes(2, "big", signed=True)
    for read in (lambda: decode_key(key), lambda: decode_record(key, b"")):
        with pytest.raises(WireError, match="unknown-type") as error:
            read()
        assert error.value.position == 0
    record = Record(record_type=number, name="", key={})
    with pytest.raises(WireError, match="unknown-type"):
        encode_record(record)


# Cases


def test_a_key_is_not_null():
    with pytest.raises(WireError, match="unexpected-null"):
        decode_record(None, b"")


def test_errors_name_the_field():
    key, value = b"\x00\x07\x00\x01g\x00\x01m", b"\x00\x00\x02" + bytes(16) + b"\x05\x00\x00"
    with pytest.raises(WireError) as error:
        decode_record(key, value)
    assert error.value.field == "topicPartitions[0].partitions"


def test_unknown_tags_are_counted_at_every_depth():
    tag = b"\x01\x2a\x03abc"
    topic = bytes(16) + b"\x02" + bytes(4) + tag
    value = b"\x00\x00" + b"\x03" + topic * 2 + tag
    record = decode_record(b"\x00\x07\x00\x01g\x00\x01m", value)
    assert record.n_unknown_tags == 3
    assert [topic["partitions"] for topic in record.value["topicPartitions"]] == [(0,), (0,)]


def test_of_a_tag_written_twice_the_last_one_counts():
    tags = b"\x02" + b"\x00\x08" + (5).to_bytes(8, "big") + b"\x00\x08" + (6).to_bytes(8, "big")
    record = decode_record(b"\x00\x03\x00\x01g", b"\x00\x00" + bytes(4) + tags)
    assert record.value == {"epoch": 0, "metadataHash": 6}


def test_defaults_of_tagged_fields_are_not_written():
    commit = {"offset": 1, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 2}
    key = {"group": "g", "topic": "t", "partition": 0}
    bare = Record(record_type=1, name="", key=key, value_version=4, value=commit)
    zero = Record(
        record_type=1, name="", key=key, value_version=4, value={**commit, "topicId": UUID(int=0)}
    )
    _, value = encode_record(bare)
    assert encode_record(zero)[1] == value
    assert value[-1] == 0
    assert decode_record(COMMIT_KEY, value).value["topicId"] == UUID(int=0)


KEY = {"group": "g", "topic": "t", "partition": 0}
COMMIT = {"offset": 1, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 2}
STREAMS = {
    "instanceId": None,
    "rackId": None,
    "clientId": "c",
    "clientHost": "h",
    "rebalanceTimeoutMs": 1,
    "topologyEpoch": 0,
    "processId": "p",
    "userEndpoint": {"host": "h", "port": 65_536},
    "clientTags": (),
}
PROTOCOL = {"name": "n", "metadata": "no hex"}
MEMBER = {
    "instanceId": None,
    "rackId": None,
    "clientId": "c",
    "clientHost": "h",
    "subscribedTopicNames": (),
    "subscribedTopicRegex": None,
    "rebalanceTimeoutMs": 1,
    "serverAssignor": None,
    "classicMemberMetadata": {"sessionTimeoutMs": 1, "supportedProtocols": [PROTOCOL]},
}
NOT_WRITABLE = {
    "number too large": (1, 3, {**COMMIT, "offset": 1 << 63}, "out-of-range", "offset"),
    "string null": (1, 3, {**COMMIT, "metadata": None}, "unexpected-null", "metadata"),
    "string too long": (1, 3, {**COMMIT, "metadata": "x" * 40_000}, "bad-length", "metadata"),
    "no field": (1, 3, {"offset": 1}, "unexpected-null", "leaderEpoch"),
    "field of another version": (1, 2, COMMIT, "bad-version", "leaderEpoch"),
    "version that does not exist": (1, 5, COMMIT, "bad-version", "version"),
    "no version": (1, None, COMMIT, "bad-version", "version"),
    "no id": (1, 4, {**COMMIT, "topicId": "zzz"}, "out-of-range", "topicId"),
    "no port": (19, 0, STREAMS, "out-of-range", "port"),
    "no hex": (5, 0, MEMBER, "out-of-range", "supportedProtocols[0].metadata"),
}


@pytest.mark.parametrize("name", NOT_WRITABLE)
def test_values_that_do_not_fit_are_refused(name):
    number, version, value, reason, field = NOT_WRITABLE[name]
    key = KEY if number == 1 else {"groupId": "g", "memberId": "m"}
    record = Record(record_type=number, name="", key=key, value_version=version, value=value)
    with pytest.raises(WireError) as error:
        encode_record(record)
    assert error.value.reason == reason
    assert error.value.field.endswith(field)


# The table


def all_fields(fields: tuple[Field, ...]) -> list[Field]:
    return [f for field in fields for f in (field, *all_fields(field.fields))]


SCHEMAS = [schema for kind in RECORD_SCHEMAS.values() for schema in (kind.key, kind.value)] + [
    CONSUMER_ASSIGNMENT,
    CONSUMER_SUBSCRIPTION,
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_the_table_is_well_formed(schema: Schema):
    for field in all_fields(schema.fields):
        assert isinstance(field.kind, Kind)
        assert type(field.nullable) is type(field.is_array) is bool
        assert (field.kind is Kind.STRUCT) == bool(field.fields)
        assert field.tag is None or schema.flexible_since <= schema.max_version
        if field.is_array and field.kind is Kind.STRUCT:
            for version in range(schema.max_version + 1):
                flexible = version >= schema.flexible_since
                assert layout(field.fields, version, flexible).min_size > 0

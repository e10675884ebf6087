"""``holdfast decode`` and ``encode``: the JSON, the errors, the exit codes, the way back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies as wire
from tests.cli.running import run as holdfast
from tests.wire import java_vectors

from holdfast.cli.wire_json import RECORD, SCHEMAS, decode_line, encode_line, from_json, to_json
from holdfast.core.wire.layouts.consumer_protocol import encode_assignment, encode_subscription
from holdfast.core.wire.layouts.container import (
    encode_member_assignment,
    encode_member_subscription,
)
from holdfast.core.wire.layouts.incremental import (
    encode_design_assignment,
    encode_design_subscription,
)
from holdfast.core.wire.layouts.memory import encode_share
from holdfast.errors import WireError

SUBSCRIPTION = (
    "0003 00000002 0001 61 0001 62 00000001 ff"
    "00000001 0001 61 00000002 00000000 00000001 00000004 0001 72"
).replace(" ", "")
SUBSCRIPTION_JSON = {
    "version": 3,
    "topics": ["a", "b"],
    "user_data": "ff",
    "owned": [["a", 0], ["a", 1]],
    "generation": 4,
    "rack": "r",
}
TOMBSTONE_KEY = "0002000167"


# The JSON that is promised


def test_a_subscription() -> None:
    code, out, err = holdfast("decode", "subscription", SUBSCRIPTION)
    assert (code, json.loads(out), err) == (0, SUBSCRIPTION_JSON, "")
    assert list(json.loads(out)) == list(SUBSCRIPTION_JSON)


def test_null_and_empty_user_data() -> None:
    for tail, expected in (("ffffffff", None), ("00000000", "")):
        _, out, _ = holdfast("decode", "subscription", "000000000000" + tail)
        assert json.loads(out)["user_data"] == expected


def test_an_assignment() -> None:
    data = "0001 00000001 0001 61 00000002 00000005 00000002 ffffffff"
    _, out, _ = holdfast("decode", "assignment", data)
    assert json.loads(out) == {"version": 1, "partitions": [["a", 5], ["a", 2]], "user_data": None}


def test_user_data() -> None:
    _, out, _ = holdfast(
        "decode", "sticky-user-data", "00000001 0001 61 00000001 00000005 00000002"
    )
    assert json.loads(out) == {"partitions": [["a", 5]], "generation": 2}
    _, out, _ = holdfast("decode", "cooperative-sticky-user-data", "00000002")
    assert json.loads(out) == {"partitions": [], "generation": 2}


def test_a_record() -> None:
    commit = java_vectors.committed("offsets_records")
    vector = next(v for v in commit if v["type"] == 1 and v["version"] == 3)
    code, out, _ = holdfast(
        "decode", "record", "--key", vector["key_hex"], "--value", vector["value_hex"]
    )
    expected = {
        "record_type": 1,
        "name": "OffsetCommit",
        "value_version": 3,
        "key": vector["key"],
        "value": vector["value"],
    }
    assert (code, json.loads(out)) == (0, expected)


@pytest.mark.parametrize("more", [(), ("--value", "null")])
def test_a_tombstone(more) -> None:
    code, out, _ = holdfast("decode", "record", "--key", TOMBSTONE_KEY, *more)
    assert code == 0
    assert json.loads(out) == {
        "record_type": 2,
        "name": "GroupMetadata",
        "value_version": None,
        "key": {"group": "g"},
        "value": None,
    }


@pytest.mark.parametrize("schema", ["streams-subscription", "streams-assignment"])
def test_user_data_of_kafka_streams(schema: str) -> None:
    for vector in java_vectors.committed("streams_user_data"):
        if vector["schema"] != schema:
            continue
        code, out, _ = holdfast("decode", schema, vector["hex"])
        read, expected = json.loads(out), vector["json"]
        if vector["version"] < 7 and "offset_sums" in expected:
            sums = expected.pop("offset_sums")
            expected["active"] = [one[:2] for one in sums if one[2] == -2]
            expected["standby"] = [one[:2] for one in sums if one[2] != -2]
        told = {name: read[name] for name in expected}
        assert (code, _in_order(told)) == (0, _in_order(expected))
    assert holdfast("encode", schema, "-", stdin=b"{}")[0] == 3


def _in_order(document: dict) -> dict:
    """With sorted lists: Java's maps have their own order."""
    return {k: sorted(v) if isinstance(v, list) else v for k, v in document.items()}


def test_a_record_of_the_share_state() -> None:
    key = "0000 0001 67" + "00" * 15 + "01" + "00000003"
    value = "0000 00000000 00000002 00000000 0000000000000005" + "00" * 16 + "01 00"
    expected = {
        "group": "g",
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "partition": 3,
        "is_update": False,
        "start_offset": 5,
        "n_delivered": -1,
    }
    for more, start in ((("--value", value), 5), ((), None)):
        code, out, _ = holdfast("decode", "share-state", "--key", key, *more)
        assert (code, json.loads(out)) == (0, {**expected, "start_offset": start})
    line = f"{key.replace(' ', '')} {value.replace(' ', '')}\n"
    code, out, _ = holdfast("decode", "share-state", "-", stdin=line.encode())
    assert (code, json.loads(out)) == (0, expected)
    assert holdfast("decode", "share-state", key)[0] == 2
    assert holdfast("encode", "share-state", "-", stdin=b"{}")[0] == 3


def test_indented_json_and_a_file(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    code, out, _ = holdfast(
        "decode", "subscription", SUBSCRIPTION, "--format", "json", "-o", str(target)
    )
    assert (code, out) == (0, "")
    assert json.loads(target.read_text()) == SUBSCRIPTION_JSON
    assert target.read_text().count("\n") > 5
    assert holdfast("decode", "subscription", "00", "--format", "json", "-q")[0] == 3


def test_names_cannot_drive_a_terminal() -> None:
    evil = "\x1b[2J\u202e".encode()
    data = "0000 00000001" + len(evil).to_bytes(2, "big").hex() + evil.hex() + "ffffffff"
    _, out, _ = holdfast("decode", "subscription", data)
    assert "\x1b" not in out
    assert out.isascii()


# Bad bytes


def test_bad_bytes_say_why_and_exit_with_3() -> None:
    code, out, err = holdfast("decode", "subscription", "0001 00000000 00000005")
    assert code == 3
    assert json.loads(out) == {
        "error": {
            "reason": "truncated",
            "schema": "ConsumerProtocolSubscription",
            "version": 1,
            "field": "user_data",
            "position": 6,
        }
    }
    assert "1 message could not be read" in err


def test_one_bad_line_does_not_end_a_run() -> None:
    lines = f"{SUBSCRIPTION}\n00\nnot hex\n\n\xff\n{SUBSCRIPTION}".encode("latin-1")
    code, out, err = holdfast("decode", "subscription", "-", stdin=lines)
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 3
    assert [a.get("error", {}).get("reason") for a in answers] == [
        None,
        "truncated",
        "bad-hex",
        "truncated",
        "bad-hex",
        None,
    ]
    assert answers[0] == answers[5] == SUBSCRIPTION_JSON
    assert "4 messages could not be read" in err
    assert holdfast("decode", "subscription", "-", "-q", stdin=b"00")[2] == ""


def test_records_on_stdin() -> None:
    vectors = java_vectors.committed("offsets_records")
    lines = [f"{v['key_hex']} {v['value_hex'] or 'null'}" for v in vectors]
    bad = ["null null", f"{TOMBSTONE_KEY} 00", "0009", "zz 00", TOMBSTONE_KEY]
    code, out, _ = holdfast("decode", "record", "-", stdin="\n".join(lines + bad).encode())
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 3
    assert len(answers) == len(lines) + 5
    assert not any("error" in answer for answer in answers[: len(lines)])
    reasons = [a.get("error", {}).get("reason") for a in answers[len(lines) :]]
    assert reasons == ["unexpected-null", "truncated", "unknown-type", "bad-hex", None]


# Mistakes in the command


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("decode", "subscription", "xyz"), "hex digits"),
        (("decode", "record", "--key", "xyz"), "hex digits"),
        (("decode", "subscriptoin", "00"), "did you mean subscription"),
        (("decode", "zzz", "00"), "known are"),
        (("encode", "zzz", "-"), "known are"),
        (("decode", "subscription"), "wants"),
        (("decode", "subscription", "--key", "00"), "wants"),
        (("decode", "record", "00"), "wants"),
        (("decode", "record", "--value", "00"), "wants"),
        (("decode", "record", "00", "--key", "00"), "wants"),
    ],
)
def test_mistakes_exit_with_2(arguments, text) -> None:
    code, out, err = holdfast(*arguments)
    assert (code, out) == (2, "")
    assert text in " ".join(err.split())


def test_files_that_cannot_be_read_or_written_exit_with_3(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "no" / "where")
    assert holdfast("decode", "subscription", SUBSCRIPTION, "-o", nowhere)[0] == 3
    code, _, err = holdfast("encode", "subscription", nowhere)
    assert code == 3
    assert "cannot read" in err


# The way back


def test_encode_is_the_way_back() -> None:
    _, out, _ = holdfast("decode", "subscription", SUBSCRIPTION)
    assert holdfast("encode", "subscription", "-", stdin=out.encode()) == (
        0,
        SUBSCRIPTION + "\n",
        "",
    )


def test_the_version_asked_for_is_written() -> None:
    given = json.dumps(SUBSCRIPTION_JSON).encode()
    _, out, _ = holdfast("encode", "subscription", "-", "--version", "0", stdin=given)
    assert out.strip() == "0000 00000002 0001 61 0001 62 00000001 ff".replace(" ", "")
    user_data = b'{"partitions": [["a", 5]], "generation": 2}'
    for version, tail in (("0", ""), ("1", "00000002")):
        _, out, _ = holdfast(
            "encode", "sticky-user-data", "-", "--version", version, stdin=user_data
        )
        assert out.strip() == "00000001000161" + "0000000100000005" + tail
    design = b'{"design": 3, "timeout_ms": 5}'
    _, out, _ = holdfast("encode", "design-assignment", "-", "--version", "2", stdin=design)
    assert out.strip() == "0002" + "00000000" * 2 + "00000005"


@pytest.mark.parametrize(
    ("schema", "version"),
    [
        ("subscription", "4"),
        ("sticky-user-data", "2"),
        ("claim", "3"),
        ("cooperative-sticky-user-data", "1"),
    ],
)
def test_a_version_that_does_not_exist(schema: str, version: str) -> None:
    given = b'{"topics": []}' if schema in ("subscription", "claim") else b'{"partitions": []}'
    code, out, _ = holdfast("encode", schema, "-", "--version", version, stdin=given)
    assert code == 3
    assert json.loads(out)["error"]["reason"] == "bad-version"


def test_a_file_with_one_document_or_one_a_line(tmp_path: Path) -> None:
    source = tmp_path / "in.json"
    source.write_text(json.dumps(SUBSCRIPTION_JSON, indent=2))
    assert holdfast("encode", "subscription", str(source))[1] == SUBSCRIPTION + "\n"
    source.write_text(f"{json.dumps(SUBSCRIPTION_JSON)}\n\n{json.dumps(SUBSCRIPTION_JSON)}\n")
    assert holdfast("encode", "subscription", str(source))[1] == f"{SUBSCRIPTION}\n" * 2


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ("{", "document"),
        ("[" * 100_000, "document"),
        ("[]", "document"),
        ('{"topic": []}', "topic"),
        ("{}", "topics"),
        ('{"topics": "a"}', "topics"),
        ('{"topics": [1]}', "topics"),
        ('{"topics": [], "user_data": "0"}', "user_data"),
        ('{"topics": [], "owned": [["a"]]}', "owned"),
        ('{"topics": [], "owned": [["a", true]]}', "owned"),
        ('{"topics": [], "generation": "1"}', "generation"),
        ('{"topics": [], "generation": null}', "generation"),
    ],
)
def test_json_of_another_shape_is_refused_by_field(document: str, field: str) -> None:
    code, out, _ = holdfast("encode", "subscription", "-", stdin=document.encode())
    assert code == 3
    error = json.loads(out)["error"]
    assert (error["reason"], error["field"], error["position"]) == ("bad-json", field, -1)


def test_values_that_do_not_fit() -> None:
    document = b'{"topics": ["a"], "owned": [["a", 2147483648]]}'
    code, out, _ = holdfast("encode", "subscription", "-", stdin=document)
    error = json.loads(out)["error"]
    assert (code, error["reason"]) == (3, "out-of-range")
    assert error["field"] == "owned_partitions[0].partitions[0]"
    for schema, field in (("design-subscription", "design"), ("memory", "waiting")):
        document = b'{"design": 4, "topics": [], "generation": 1, "waiting": [1]}'
        known = {
            "design-subscription": b'{"design": 4, "topics": []}',
            "memory": b'{"generation": 1, "waiting": [1]}',
        }
        _, out, _ = holdfast("encode", schema, "-", stdin=known[schema])
        assert json.loads(out)["error"]["field"] == field
    _, out, _ = holdfast(
        "encode", "design-subscription", "-", "--version", "4", stdin=b'{"design": 1, "topics": []}'
    )
    assert json.loads(out)["error"]["field"] == "version"


def test_connect_is_for_reading_only() -> None:
    vector = java_vectors.committed("connect")[0]
    code, out, _ = holdfast("decode", "connect-metadata", vector["hex"])
    assert (code, json.loads(out)) == (0, {"version": 0, **vector["json"]})
    code, out, _ = holdfast("encode", "connect-metadata", "-", stdin=out.encode())
    assert (code, json.loads(out)["error"]["reason"]) == (3, "bad-json")


def test_every_record_of_kafka_comes_back() -> None:
    for vector in java_vectors.committed("offsets_records"):
        if vector.get("unknown_tags"):
            continue  # unknown tags are stepped over, so they cannot come back
        line = f"{vector['key_hex']} {vector['value_hex'] or 'null'}"
        assert encode_line(RECORD, json.dumps(decode_line(RECORD, line)), None) == line


@pytest.mark.parametrize(
    "document",
    [
        '{"key": {}}',
        '{"record_type": "1", "key": {}}',
        '{"record_type": 2, "key": []}',
        '{"record_type": 2, "key": {"group": "g"}, "value": 5}',
        '{"record_type": 2, "key": {"group": "g"}, "valeu": null}',
    ],
)
def test_records_of_another_shape_are_refused(document: str) -> None:
    with pytest.raises(WireError) as caught:
        encode_line(RECORD, document, None)
    assert caught.value.reason == "bad-json"


def test_the_version_of_a_record_may_be_asked_for() -> None:
    document = {
        "record_type": 1,
        "key": {"group": "g", "topic": "t", "partition": 0},
        "value": {"offset": 5, "metadata": "", "commitTimestamp": 7},
    }
    _, out, _ = holdfast(
        "encode", "record", "-", "--version", "2", stdin=json.dumps(document).encode()
    )
    key, value = out.split()
    assert value[:4] == "0002"
    _, out, _ = holdfast("decode", "record", "--key", key, "--value", value)
    assert json.loads(out)["value"] == document["value"]


VALUES = {
    "subscription": (wire.subscriptions(), encode_subscription),
    "assignment": (wire.assignment_messages(), encode_assignment),
    "design-subscription": (wire.design_subscriptions(), encode_design_subscription),
    "design-assignment": (wire.design_assignments(), encode_design_assignment),
    "claim": (wire.claims(), encode_member_subscription),
    "verdict": (wire.member_assignments(), encode_member_assignment),
    "memory": (wire.memories(), encode_share),
}


@pytest.mark.parametrize("schema", VALUES)
@given(data=st.data())
def test_every_message_comes_back(schema: str, data) -> None:
    """All but a topic without partitions, which JSON cannot say."""
    values, encode = VALUES[schema]
    value = data.draw(values)
    line = json.dumps(decode_line(schema, encode(value).hex()))
    read = from_json(SCHEMAS[schema].kind, json.loads(line), schema)
    assert to_json(read) == to_json(value)
    lists = [f.name for f in dataclasses.fields(value) if "TopicPartitions" in str(f.type)]
    if all(_is_grouped(getattr(value, name)) for name in lists):
        assert encode_line(schema, line, None) == encode(value).hex()


def _is_grouped(partitions) -> bool:
    topics = [topic for topic, numbers in partitions or () if numbers]
    return len(topics) == len(partitions or ()) == len(set(topics))

"""``holdfast decode``: the JSON, the errors, the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies as wire
from tests.cli.running import run as holdfast
from tests.wire import java_vectors

from holdfast.cli.commands.decode import decode_line, to_json
from holdfast.core.wire.layouts.consumer_protocol import encode_assignment, encode_subscription
from holdfast.core.wire.layouts.container import (
    encode_member_assignment,
    encode_member_subscription,
)
from holdfast.core.wire.layouts.state_shard import encode_shard

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
        (("decode", "subscription"), "expected --key HEX"),
        (("decode", "subscription", "--key", "00"), "expected --key HEX"),
        (("decode", "record", "00"), "expected --key HEX"),
        (("decode", "record", "--value", "00"), "expected --key HEX"),
        (("decode", "record", "00", "--key", "00"), "expected --key HEX"),
    ],
)
def test_mistakes_exit_with_2(arguments, text) -> None:
    code, out, err = holdfast(*arguments)
    assert (code, out) == (2, "")
    assert text in " ".join(err.split())


def test_a_file_that_cannot_be_written_exits_with_3(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "no" / "where")
    assert holdfast("decode", "subscription", SUBSCRIPTION, "-o", nowhere)[0] == 3


def test_a_message_of_connect() -> None:
    vector = java_vectors.committed("connect")[0]
    code, out, _ = holdfast("decode", "connect-metadata", vector["hex"])
    assert (code, json.loads(out)) == (0, {"version": 0, **vector["json"]})


VALUES = {
    "subscription": (wire.subscriptions(), encode_subscription),
    "assignment": (wire.assignment_messages(), encode_assignment),
    "claim": (wire.claims(), encode_member_subscription),
    "verdict": (wire.member_assignments(), encode_member_assignment),
    "state-shard": (wire.state_shards(), encode_shard),
}


@pytest.mark.parametrize("schema", VALUES)
@given(data=st.data())
def test_every_message_is_shown_as_it_was_written(schema: str, data) -> None:
    values, encode = VALUES[schema]
    value = data.draw(values)
    line = json.dumps(decode_line(schema, encode(value).hex()))
    assert json.loads(line) == json.loads(json.dumps(to_json(value)))

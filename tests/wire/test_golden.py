"""Kafka's own classes: they read what we write and write what we read."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.wire import java_vectors

from holdfast.core.model.partitions import TopicPartitions, merge_topics
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    StickyUserData,
    Subscription,
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
)
from holdfast.core.wire.layouts.other_protocols import (
    decode_connect_assignment,
    decode_connect_metadata,
    decode_streams_assignment,
    decode_streams_subscription,
)
from holdfast.errors import WireError


def of(family: str, schema: str) -> list[dict[str, Any]]:
    found = [v for v in java_vectors.committed(family) if v["schema"] == schema]
    assert found
    return found


def partitions(kafka: list[dict[str, Any]]) -> TopicPartitions:
    return tuple((entry["topic"], tuple(entry["partitions"])) for entry in kafka)


def pairs(value: TopicPartitions | None) -> list[list[Any]] | None:
    return None if value is None else [[topic, p] for topic, numbers in value for p in numbers]


def grouped(given: list[list[Any]]) -> TopicPartitions:
    return merge_topics((topic, (partition,)) for topic, partition in given)


def user_data(json: dict[str, Any]) -> bytes | None:
    return None if json["userData"] is None else base64.b64decode(json["userData"])


def subscription_of(json: dict[str, Any], version: int) -> Subscription:
    return Subscription(
        version=version,
        topics=tuple(json["topics"]),
        user_data=user_data(json),
        owned=partitions(json.get("ownedPartitions", [])),
        generation=json.get("generationId", -1),
        rack=json.get("rackId"),
    )


def test_every_version_of_a_subscription() -> None:
    seen = set()
    for vector in of("consumer_protocol", "subscription"):
        version, data = vector["version"], bytes.fromhex(vector["hex"])
        value = subscription_of(vector["json"], version)
        assert decode_subscription(data) == value
        assert encode_subscription(value) == data
        given = vector["given"]
        unsorted = Subscription(
            topics=tuple(given["topics"]),
            owned=grouped(given["owned"]),
            user_data=value.user_data,
            generation=value.generation,
            rack=value.rack,
        )
        assert encode_subscription(unsorted, version) == data
        seen.add(version)
    assert seen == {0, 1, 2, 3}


def test_every_version_of_an_assignment() -> None:
    seen = set()
    for vector in of("consumer_protocol", "assignment"):
        version, data = vector["version"], bytes.fromhex(vector["hex"])
        value = AssignmentMessage(
            version=version,
            partitions=partitions(vector["json"]["assignedPartitions"]),
            user_data=user_data(vector["json"]),
        )
        assert decode_assignment(data) == value
        given = AssignmentMessage(
            partitions=grouped(vector["given"]["partitions"]), user_data=value.user_data
        )
        assert encode_assignment(given, version) == data
        seen.add(version)
    assert seen == {0, 1, 2, 3}


def test_damaged_bytes_are_read_or_refused_as_kafka_does() -> None:
    """Two differences: Kafka replaces what is no UTF-8, and takes any length below 0 for null."""
    n_refused = n_read = 0
    for vector in java_vectors.committed("consumer_protocol_reads"):
        data, json = bytes.fromhex(vector["hex"]), vector["json"]
        is_subscription = vector["schema"] == "subscription"
        try:
            read = decode_subscription(data) if is_subscription else decode_assignment(data)
        except WireError as error:
            assert json is None or error.reason in ("bad-utf8", "bad-length"), vector
            n_refused += 1
            continue
        n_read += 1
        assert json is not None, vector
        if is_subscription:
            assert read == subscription_of(json, read.version)
        else:
            assert read.partitions == partitions(json["assignedPartitions"])
            assert read.user_data == user_data(json)
    assert n_refused > 40
    assert n_read > 40


def test_user_data_of_the_sticky_assignor() -> None:
    for vector in of("sticky_user_data", "sticky-user-data"):
        data = bytes.fromhex(vector["hex"])
        read = decode_sticky_user_data(data)
        assert read.generation == vector["json"]["generation"]
        assert sorted(pairs(read.partitions) or []) == sorted(vector["json"]["partitions"])
        assert encode_sticky_user_data(read) == data


def test_user_data_of_the_cooperative_sticky_assignor() -> None:
    for vector in of("sticky_user_data", "cooperative-sticky-user-data"):
        data = bytes.fromhex(vector["hex"])
        assert decode_cooperative_user_data(data) == vector["json"]["generation"]
        assert encode_cooperative_user_data(vector["json"]["generation"]) == data


def test_metadata_of_connect() -> None:
    for vector in of("connect", "connect-metadata"):
        read = decode_connect_metadata(bytes.fromhex(vector["hex"]))
        json = vector["json"]
        assert read.version == vector["version"]
        assert (read.url, read.config_offset) == (json["url"], json["config_offset"])
        assert json["allocation"] == (None if read.allocation is None else read.allocation.hex())
        if read.allocation is not None:
            assert decode_connect_assignment(read.allocation).version == read.version


def test_assignments_of_connect() -> None:
    for vector in of("connect", "connect-assignment"):
        read = decode_connect_assignment(bytes.fromhex(vector["hex"]))
        json = vector["json"]
        assert read.version == vector["version"]
        for name in ("error", "leader", "leader_url", "config_offset", "delay_ms"):
            assert getattr(read, name) == json[name]
        for name in ("assignment", "revoked"):
            found = pairs(getattr(read, name))
            expected = json[name]
            assert (found and sorted(found)) == (expected and sorted(expected))


def tasks(listed: list[list[Any]]) -> tuple[tuple[str, int], ...]:
    return tuple((name, partition) for name, partition, *_ in listed)


def test_subscriptions_of_kafka_streams() -> None:
    vectors = of("streams_user_data", "streams-subscription")
    assert {vector["version"] for vector in vectors} == set(range(1, 12))
    for vector in vectors:
        read, json = decode_streams_subscription(bytes.fromhex(vector["hex"])), vector["json"]
        assert (read.version, read.process_id) == (vector["version"], json["process_id"])
        active = tasks([one for one in json["offset_sums"] if one[2] == -2])
        standby = tasks([one for one in json["offset_sums"] if one[2] != -2])
        assert sorted(read.active) == sorted(active)
        assert sorted(read.standby) == sorted(standby)
        if read.version >= 7:
            sums = [[*task, offset] for task, offset in read.offset_sums]
            assert sorted(sums) == sorted(json["offset_sums"])


def test_assignments_of_kafka_streams() -> None:
    vectors = of("streams_user_data", "streams-assignment")
    assert {vector["version"] for vector in vectors} == set(range(1, 12))
    for vector in vectors:
        read, json = decode_streams_assignment(bytes.fromhex(vector["hex"])), vector["json"]
        assert read.version == vector["version"]
        assert read.active == tasks(json["active"])
        assert sorted(read.standby) == sorted(tasks(json["standby"]))
        assert (read.error, read.next_rebalance_ms) == (json["error"], json["next_rebalance_ms"])


def test_there_is_a_vector_for_every_record_type_and_each_of_its_versions() -> None:
    vectors = java_vectors.committed("offsets_records")
    assert {v["type"] for v in vectors} == set(range(24)) - {9, 18}
    assert {v["version"] for v in vectors if v["type"] == 1} == {None, 0, 1, 2, 3, 4}
    assert {v["version"] for v in vectors if v["type"] == 2} == {None, 0, 1, 2, 3, 4}


@pytest.mark.broker
@pytest.mark.every
def test_kafkas_classes_still_write_the_committed_vectors() -> None:
    for family, text in java_vectors.regenerated().items():
        assert text == java_vectors.path_of(family).read_text(encoding="utf-8"), family


def test_no_vector_is_empty() -> None:
    for family in java_vectors.FAMILIES:
        assert len(java_vectors.committed(family)) >= 12


def test_a_claim_of_the_sticky_assignor_stands_in_the_order_given() -> None:
    value = StickyUserData(partitions=(("b", (1, 0)), ("a", ())), generation=3)
    assert decode_sticky_user_data(encode_sticky_user_data(value)) == value

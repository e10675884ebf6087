"""Records that a real broker wrote: see ``captured/README.md``."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from tests.wire.records_twin import batch

from holdfast.core.wire.layouts.offsets_records import decode_record, encode_record
from holdfast.local import jars

FILES = sorted((Path(__file__).parent / "captured").glob("offsets_topic-*.jsonl"))
VERSIONS = [path.stem.removeprefix("offsets_topic-") for path in FILES]


def pairs_of(path):
    """Keys and values of a file."""
    return [
        (bytes.fromhex(row["key"]), None if row["value"] is None else bytes.fromhex(row["value"]))
        for row in map(json.loads, path.read_text("utf-8").splitlines())
    ]


PAIRS_OF = dict(zip(VERSIONS, map(pairs_of, FILES), strict=True))
PAIRS = PAIRS_OF["4.3.1"]
RECORDS = [decode_record(*pair) for pair in PAIRS]


def test_every_version_that_is_pinned_has_its_records():
    servers = (re.fullmatch(r"kafka_2\.13-(.+)-log4j", folder) for folder in jars.checksums())
    assert {match.group(1) for match in servers if match} == set(VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_record_is_read_and_written_back_byte_for_byte(version):
    pairs = PAIRS_OF[version]
    records = [decode_record(*pair) for pair in pairs]
    assert [encode_record(record) for record in records] == pairs
    assert batch(pairs) == records
    assert not any(record.n_unknown_tags for record in records)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_every_version_tells_of_its_classic_groups(version):
    records = [decode_record(*pair) for pair in PAIRS_OF[version]]
    values = [(r.name, r.key.get("group"), r.value) for r in records if r.value is not None]
    members = {
        (member["clientId"], member["groupInstanceId"])
        for name, group, value in values
        if name == "GroupMetadata" and group == "classic"
        for member in value["members"]
    }
    assert {instance for _, instance in members} >= {"static-1", None}
    assert {client for client, _ in members} > {"späť"}
    commits = [(group, v["offset"]) for name, group, v in values if name == "OffsetCommit"]
    assert {("simple", 42), ("transactional", 11), ("transactional", 777)} <= set(commits)


def test_what_this_broker_writes():
    kinds = {(record.record_type, record.value_version) for record in RECORDS}
    assert kinds >= {(1, 4), (1, None), (2, 3), (2, None), (16, 0)}
    assert kinds >= {(number, 0) for number in (3, 5, 6, 7, 8)}


def test_commits_carry_the_topic_id_unless_transactional():
    commits = [r for r in RECORDS if r.name == "OffsetCommit" and r.value is not None]
    for commit in commits:
        has_id = commit.value["topicId"].int != 0
        assert has_id is (commit.key["group"] != "transactional")
    by_group = Counter(commit.key["group"] for commit in commits)
    assert {"classic", "kip-848", "transactional", "simple", "deleted"} <= set(by_group)
    offsets = [c.value["offset"] for c in commits if c.key["group"] == "transactional"]
    assert offsets == [11, 777]
    # librdkafka sends the byte that ends a string in C along.
    assert "métadonnées\0" in {c.value["metadata"] for c in commits}


def test_generations_of_the_classic_group():
    groups = [r for r in RECORDS if r.name == "GroupMetadata" and r.key == {"group": "classic"}]
    generations = [r.value["generation"] for r in groups if r.value]
    assert generations == sorted(generations)


def test_a_group_of_kip_848_leaves_its_epochs():
    epochs = [r.value["epoch"] for r in RECORDS if r.record_type == 3 and r.value]
    assert epochs == sorted(epochs)
    states = [r.value for r in RECORDS if r.record_type == 8 and r.value]
    assert any(state["partitionsPendingRevocation"] for state in states)
    for state in states:
        for topic in state["assignedPartitions"]:
            assert len(topic["assignmentEpochs"]) == len(topic["partitions"])

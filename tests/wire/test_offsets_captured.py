"""Records that a real broker wrote: see ``captured/README.md``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.wire.records_twin import batch

from holdfast.wire.one.offsets_records import decode_record, encode_record

LINES = (Path(__file__).parent / "captured/offsets_topic.jsonl").read_text("utf-8").splitlines()
PAIRS = [
    (bytes.fromhex(row["key"]), None if row["value"] is None else bytes.fromhex(row["value"]))
    for row in map(json.loads, LINES)
]
RECORDS = [decode_record(*pair) for pair in PAIRS]


def test_every_record_is_read_and_written_back_byte_for_byte():
    assert [encode_record(record) for record in RECORDS] == PAIRS


def test_the_batch_form_reads_the_same():
    assert batch(PAIRS) == RECORDS


def test_what_this_broker_writes():
    kinds = {(record.record_type, record.value_version) for record in RECORDS}
    assert kinds >= {(1, 4), (1, None), (2, 3), (2, None), (16, 0)}
    assert kinds >= {(number, 0) for number in (3, 5, 6, 7, 8)}
    assert not any(record.n_unknown_tags for record in RECORDS)


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
    statics = {m["groupInstanceId"] for r in groups if r.value for m in r.value["members"]}
    assert "static-1" in statics
    assert {"späť"} < {m["clientId"] for r in groups if r.value for m in r.value["members"]}


def test_a_group_of_kip_848_leaves_its_epochs():
    epochs = [r.value["epoch"] for r in RECORDS if r.record_type == 3 and r.value]
    assert epochs == sorted(epochs)
    states = [r.value for r in RECORDS if r.record_type == 8 and r.value]
    assert any(state["partitionsPendingRevocation"] for state in states)
    for state in states:
        for topic in state["assignedPartitions"]:
            assert len(topic["assignmentEpochs"]) == len(topic["partitions"])

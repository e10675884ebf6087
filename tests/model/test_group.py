"""Groups as columns, and their snapshots: every wrong place is refused by its path."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.strategies import snapshots

from holdfast.core.model.group import Group
from holdfast.core.model.reported import MAX_EXAMPLES, DroppedClaims, ReportedClaims, Subscriptions
from holdfast.core.model.topics import NO_RACK, Topics
from holdfast.errors import ModelError


def group_of(**member: Any) -> Group:
    row = {"id": "m", "topics": ["t"], **member}
    return Group.from_dict({"partitions": {"t": 3, "u": 2}, "members": [row]})


def built(*member_ids: str) -> Group:
    """A group of columns without topics."""
    none, n = np.empty(0, np.int32), len(member_ids)
    return Group.build(
        topics=Topics.from_counts({}),
        member_ids=member_ids,
        subscriptions=Subscriptions.from_rows([()] * n),
        claims=ReportedClaims(none, none, none),
        generation=np.full(n, -1, np.int32),
    )


@given(snapshots())
def test_a_snapshot_written_is_read_as_the_same_group(snapshot: dict[str, Any]) -> None:
    group = Group.from_dict(snapshot)
    written = json.loads(json.dumps(group.to_dict()))
    again = Group.from_dict(written)
    assert again.to_dict() == written
    assert again.claim_tp.tolist() == group.claim_tp.tolist()
    assert not again.dropped.counts


@given(snapshots(), st.randoms(use_true_random=False))
@example({"partitions": {}, "members": []}, random.Random(0))
def test_order_of_the_input_does_not_show(snapshot: dict[str, Any], chance: random.Random) -> None:
    shuffled = json.loads(json.dumps(snapshot))
    chance.shuffle(shuffled["members"])
    for member in shuffled["members"]:
        chance.shuffle(member["topics"])
        chance.shuffle(member["owned"])
    names = list(shuffled["partitions"])
    chance.shuffle(names)
    shuffled["partitions"] = {name: snapshot["partitions"][name] for name in names}
    left, right = Group.from_dict(snapshot), Group.from_dict(shuffled)
    assert left.to_dict() == right.to_dict()
    assert left.subscription.tolist() == right.subscription.tolist()
    assert left.dropped.counts == right.dropped.counts


@given(snapshots())
def test_claims_kept_and_dropped_are_all_claims(snapshot: dict[str, Any]) -> None:
    group = Group.from_dict(snapshot)
    rows = {member["id"]: member for member in snapshot["members"]}
    kept, reasons = [], dict.fromkeys(("unknown-topic", "no-such-partition", "not-subscribed"), 0)
    repeated = 0
    for member_id in group.member_ids:
        seen = set()
        for topic, partition in rows[member_id]["owned"]:
            if topic not in snapshot["partitions"]:
                reasons["unknown-topic"] += 1
            elif not 0 <= partition < snapshot["partitions"][topic]:
                reasons["no-such-partition"] += 1
            elif topic not in rows[member_id]["topics"]:
                reasons["not-subscribed"] += 1
            elif (topic, partition) in seen:
                repeated += 1
            else:
                seen.add((topic, partition))
        kept.append(sorted(seen))
    names = [
        [group.topics.name_of(tp) for tp in group.claim_tp[a:b].tolist()]
        for a, b in zip(group.claim_start[:-1], group.claim_start[1:], strict=True)
    ]
    assert names == kept
    expected = {reason: n for reason, n in (*reasons.items(), ("repeated", repeated)) if n}
    assert dict(group.dropped.counts) == expected
    assert len(group.dropped.examples) == min(sum(expected.values()), MAX_EXAMPLES)
    assert len(group.foreign_tp) == reasons["not-subscribed"]


def test_dropped_claims_are_named() -> None:
    owned = [["t", 0], ["t", 0], ["t", 3], ["t", -1], ["u", 1], ["gone", 4]]
    group = group_of(owned=owned, generation=2)
    assert set(group.dropped.examples) == {
        ("unknown-topic", "m", "gone", 4),
        ("no-such-partition", "m", "t", 3),
        ("no-such-partition", "m", "t", -1),
        ("not-subscribed", "m", "u", 1),
        ("repeated", "m", "t", 0),
    }
    assert group.claim_tp.tolist() == [0]
    assert group.foreign_tp.tolist() == [4]
    assert group.foreign_member.tolist() == [0]


def test_claims_without_any_topic_are_all_unknown() -> None:
    snapshot = {"partitions": {}, "members": [{"id": "m", "topics": [], "owned": [["t", 0]]}]}
    assert Group.from_dict(snapshot).dropped.counts == {"unknown-topic": 1}


def test_many_dropped_claims_are_counted_in_full_and_named_in_part() -> None:
    group = group_of(owned=[["t", 7]] * 300)
    assert group.dropped.counts == {"no-such-partition": 300}
    assert len(group.dropped.examples) == MAX_EXAMPLES
    both = group.dropped + DroppedClaims(counts={"double-claim": 1})
    assert both.counts == {"no-such-partition": 300, "double-claim": 1}


def test_members_with_equal_subscriptions_share_a_row() -> None:
    rows = [("a", ["t", "u"]), ("b", ["u"]), ("c", ["u", "t", "t", "none"]), ("d", [])]
    members = [{"id": name, "topics": topics} for name, topics in rows]
    group = Group.from_dict({"partitions": {"t": 1, "u": 1, "v": 1}, "members": members})
    assert group.subscription.tolist() == [0, 1, 0, 2]
    assert group.n_sets == 3
    assert group.sub_start.tolist() == [0, 2, 3, 5, 5]
    assert group.sub_topic.tolist() == [0, 1, 1, 0, 1]
    assert group.has_subscriber.tolist() == [True, True, False]
    assert group.member_ids == ("a", "b", "c", "d")


def test_static_members_take_their_turn_by_instance_id_before_the_others() -> None:
    rows = [("a", None), ("b", "z"), ("c", "y"), ("d", None)]
    members = [{"id": name, "topics": [], "instance_id": static} for name, static in rows]
    group = Group.from_dict({"partitions": {}, "members": members})
    assert [group.member_ids[m] for m in group.assignment_order.tolist()] == ["c", "b", "a", "d"]


def test_columns_without_racks_or_instance_ids_name_none() -> None:
    group = built("a", "b")
    assert group.rack.tolist() == [NO_RACK, NO_RACK]
    assert group.instance_ids == (None, None)


def test_member_ids_out_of_order_are_refused_in_columns() -> None:
    with pytest.raises(ModelError, match=r"member_ids\[2\]: 'a' after 'b'"):
        built("a", "b", "a")


@pytest.mark.parametrize("n_topics", [3, 6000])
def test_subscriptions_are_looked_up_in_small_and_large_tables(n_topics: int) -> None:
    names = [f"t{i:05}" for i in range(n_topics)]
    n_members = 3 if n_topics == 3 else 6000
    members = [{"id": f"m{i:05}", "topics": [names[i % n_topics]]} for i in range(n_members)]
    group = Group.from_dict({"partitions": dict.fromkeys(names, 1), "members": members})
    member = np.arange(n_members)
    assert group.is_subscribed(member, member % n_topics).all()
    assert not group.is_subscribed(member, (member + 1) % n_topics).any()


def test_nobody_subscribes_to_anything() -> None:
    group = Group.from_dict({"partitions": {"t": 1}, "members": [{"id": "m", "topics": []}]})
    assert group.is_subscribed(np.zeros(1, np.int32), np.zeros(1, np.int32)).tolist() == [False]
    assert Group.from_dict({"partitions": {}, "members": []}).n_members == 0


BASE = {"partitions": {"t": 2}, "members": [{"id": "m", "topics": ["t"]}]}


def with_member(**fields: Any) -> dict[str, Any]:
    return {**BASE, "members": [{"id": "m", "topics": ["t"], **fields}]}


@pytest.mark.parametrize(
    ("snapshot", "text"),
    [
        ([], "snapshot: list [], expected an object"),
        ({"partitions": {}}, "members: missing"),
        ({"members": []}, "partitions: missing"),
        ({**BASE, "memebers": []}, "snapshot: unknown key 'memebers'"),
        ({**BASE, 3: []}, "a key of snapshot: int 3, expected a string"),
        ({**BASE, "partitions": {"t": "2"}}, "partitions.t: str '2', expected an integer"),
        ({**BASE, "partitions": {"t": True}}, "partitions.t: bool True, expected an integer"),
        ({**BASE, "partitions": {"t": -1}}, "partitions.t: -1, expected 0 to 2147483646"),
        ({**BASE, "members": {}}, "members: dict {}, expected a list"),
        ({**BASE, "members": [{"topics": []}]}, "members[0].id: missing"),
        ({**BASE, "members": [{"id": "a"}]}, "members[0].topics: missing"),
        ({**BASE, "members": [{"id": None, "topics": []}]}, "members[0].id: null, expected"),
        ({**BASE, "members": BASE["members"] * 2}, "members[1].id: 'm' is also the id of mem"),
        (with_member(color=1), "members[0]: unknown key 'color'"),
        (with_member(topics=[1]), "members[0].topics[0]: int 1, expected a string"),
        (with_member(owned=[["t"]]), "members[0].owned[0]: 1 values, expected [topic"),
        (with_member(owned=[["t", 0.5]]), "members[0].owned[0][1]: float 0.5"),
        (with_member(owned=[[0, 0]]), "members[0].owned[0][0]: int 0"),
        (with_member(generation=2**31), "members[0].generation: 2147483648, expected"),
        (with_member(instance_id=7), "members[0].instance_id: int 7"),
        (with_member(rack=[]), "members[0].rack: list []"),
        ({**BASE, "racks": {"x": []}}, "racks.x: this topic has no partition count"),
        ({**BASE, "racks": {"t": [[]]}}, "racks.t: 1 entries, expected 2"),
        ({**BASE, "racks": {"t": [["a"], [1]]}}, "racks.t[1]: int 1, expected a string"),
        ({**BASE, "lags": {"t": [1, -1]}}, "lags.t[1]: -1, expected 0"),
        ({**BASE, "lags": {"t": [1, 0.5]}}, "lags.t[1]: float 0.5, expected an integer"),
        ({**BASE, "lags": {}, "offsets": {}}, "lags, offsets: both given"),
        ({**BASE, "auto_offset_reset": 1}, "auto_offset_reset: int 1"),
        ({**BASE, "offsets": {"t": [{}, {}]}}, "offsets.t[0].end: missing"),
        ({**BASE, "offsets": {"t": [{"end": 1, "x": 1}, {}]}}, "offsets.t[0]: unknown key 'x'"),
        (
            {**BASE, "offsets": {"t": [{"begin": 2, "end": 1}, {}]}},
            "offsets.t[0].end: 1, expected 2",
        ),
    ],
)
def test_the_wrong_place_is_named(snapshot: Any, text: str) -> None:
    with pytest.raises(ModelError) as caught:
        Group.from_dict(snapshot)
    assert str(caught.value).startswith(text)


def test_optional_fields_may_be_null_and_generations_below_minus_one_are_none() -> None:
    nulls = dict.fromkeys(("owned", "generation", "instance_id", "rack"))
    group = Group.from_dict({**with_member(**nulls), "racks": None, "lags": None})
    assert group.generation.tolist() == [-1]
    assert group.lags is None
    assert Group.from_dict(with_member(generation=-9)).generation.tolist() == [-1]
    assert Group.from_dict(with_member(rack="")).rack.tolist() == [-1]


@pytest.mark.parametrize(("reset", "unknown"), [("latest", 0), ("earliest", 90), ("none", 90)])
def test_lags_of_offsets_follow_the_reset_and_are_clamped(reset: str, unknown: int) -> None:
    offsets = [
        {"begin": 10, "end": 100, "committed": None},
        {"begin": 10, "end": 100, "committed": -1},
        {"begin": 10, "end": 100},
        {"begin": 10, "end": 100, "committed": 40},
        {"begin": 10, "end": 100, "committed": 3},
        {"end": 100, "committed": 400},
    ]
    snapshot = {
        "partitions": {"t": 6, "u": 1},
        "members": [],
        "offsets": {"t": offsets},
        "auto_offset_reset": reset,
    }
    lags = Group.from_dict(snapshot).lags
    assert lags.tolist() == [unknown, unknown, unknown, 60, 90, 0, 0]


def test_reset_is_read_whatever_its_case() -> None:
    snapshot = {
        "partitions": {"t": 1},
        "members": [],
        "offsets": {"t": [{"end": 5}]},
        "auto_offset_reset": "LATEST",
    }
    lags = Group.from_dict(snapshot).lags
    assert lags.tolist() == [0]


@pytest.mark.parametrize("counts", [{"t": 2**31 - 2}, {"t": 2**22, "u": 1}, {"t": 2**22 + 1}])
def test_a_few_bytes_do_not_ask_for_gigabytes(counts: dict[str, int]) -> None:
    snapshot = {"partitions": counts, "members": []}
    with pytest.raises(ModelError, match=r"partitions: \d+ topic-partitions in all, expected"):
        Group.from_dict(snapshot)


def test_the_limit_of_partitions_is_the_callers() -> None:
    snapshot = {"partitions": {"t": 5}, "members": []}
    assert Group.from_dict(snapshot, most_partitions=5).topics.n_tps == 5
    with pytest.raises(ModelError, match="5 topic-partitions in all, expected at most 4"):
        Group.from_dict(snapshot, most_partitions=4)

"""Groups: the snapshot in and out, and the claims that are dropped at the door."""

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

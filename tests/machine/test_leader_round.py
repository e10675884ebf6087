"""A leader's round, bytes to bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import snapshots

from holdfast import perform_assignment
from holdfast.core.assignors.registry import ASSIGNORS, assign
from holdfast.core.machine.leader.leader_round import (
    Member,
    read_group,
    read_members,
)
from holdfast.core.model.group import Group
from holdfast.core.wire.layouts.consumer_protocol import (
    StickyUserData,
    Subscription,
    decode_assignment,
    encode_sticky_user_data,
    encode_subscription,
)
from holdfast.errors import ConfigError, ModelError

STICKY = "cooperative-sticky"


def messages(snapshot: dict[str, Any], *, eager: bool) -> list[Member]:
    """A snapshot's members as they would join."""
    members = []
    for row in snapshot["members"]:
        owned = tuple((topic, (partition,)) for topic, partition in row["owned"])
        generation = row["generation"]
        claim = StickyUserData(partitions=owned, generation=generation)
        subscription = Subscription(
            topics=tuple(sorted(row["topics"])),
            user_data=encode_sticky_user_data(claim) if eager else None,
            owned=() if eager else owned,
            generation=generation,
            rack=row.get("rack"),
        )
        members.append((row["id"], row["instance_id"], encode_subscription(subscription)))
    return members


@given(snapshots(), st.booleans(), st.randoms(use_true_random=False))
def test_the_bytes_say_what_the_snapshot_says(
    snapshot: dict[str, Any], eager: bool, chance: random.Random
) -> None:
    members = messages(snapshot, eager=eager)
    chance.shuffle(members)
    extra = {key: snapshot[key] for key in ("lags", "racks") if key in snapshot}
    name = "sticky" if eager else "cooperative-sticky"
    answers = perform_assignment(name, members, snapshot["partitions"], **extra)
    rows = {
        member_id: {topic: list(p) for topic, p in decode_assignment(data).partitions}
        for member_id, data in answers.items()
    }
    assert rows == assign(Group.from_dict(snapshot), name).to_dict()
    assert list(answers) == sorted(row["id"] for row in snapshot["members"])


@given(snapshots())
def test_the_group_read_from_bytes_is_that_of_the_snapshot(snapshot: dict[str, Any]) -> None:
    group = Group.from_dict(snapshot)
    extra = {key: snapshot[key] for key in ("lags", "racks") if key in snapshot}
    members = messages(snapshot, eager=False)
    read = read_group("cooperative-sticky", members, snapshot["partitions"], **extra)
    left, right = group.to_dict(), read.to_dict()
    for one in (*left["members"], *right["members"]):
        if not one["owned"]:
            del one["generation"]  # of no claims; user data is then tried as well
    assert left == right
    assert dict(group.dropped.counts) == dict(read.dropped.counts)


def test_unreadable_members_do_not_stop_the_group() -> None:
    fine = encode_subscription(Subscription(topics=("t",)))
    members = [
        ("a", None, b""),
        ("b", None, b"\xff\xff"),
        ("c", None, fine[:-9]),
        ("d", None, fine),
    ]
    answers = perform_assignment("cooperative-sticky", members, {"t": 2})
    assert decode_assignment(answers["d"]).partitions == (("t", (0, 1)),)
    assert [len(decode_assignment(answers[m]).partitions) for m in "abc"] == [0, 0, 0]


def test_scenario_39_dropped_claims_are_named_from_bytes_too() -> None:
    owned = (("gone", (4,)), ("t", (0, 0, 7, -1)), ("u", (0,)))
    data = encode_subscription(Subscription(topics=("t",), owned=owned, generation=3))
    result = assign(read_group(STICKY, [("a", None, data)], {"t": 2, "u": 1}), STICKY)
    assert ("unknown-topic", "a", "gone", 4) in result.group.dropped.examples
    assert result.quality.dropped_claims == {
        "unknown-topic": 1,
        "no-such-partition": 2,
        "not-subscribed": 1,
        "repeated": 1,
    }


@pytest.mark.parametrize("lie", [9, 10, 2**31 - 1])
@pytest.mark.parametrize("name", ["cooperative-sticky", "sticky", "constrained-sticky"])
def test_claims_of_a_generation_that_cannot_exist_count_as_none(name: str, lie: int) -> None:
    owned = {"a": [0, 1, 2], "b": [3, 4, 5], "liar": list(range(6))}
    rows = [
        {
            "id": member,
            "topics": ["t"],
            "owned": [["t", p] for p in own],
            "generation": lie if member == "liar" else 8,
            "instance_id": None,
        }
        for member, own in owned.items()
    ]
    members = messages({"members": rows}, eager=name != "cooperative-sticky")
    result = assign(read_group(name, members, {"t": 6}, generation=9), name)
    assert result.quality.dropped_claims == {"impossible-generation": 6}
    assert result.claims.owner.tolist() == [0, 0, 0, 1, 1, 1]
    assert result.group.generation.tolist() == [8, 8, -1]
    assert result.quality.kept == 4
    before = assign(read_group(name, members, {"t": 6}), name)
    assert before.claims.owner.tolist() == [2] * 6  # undetectable without the generation
    assert (
        read_group(name, read_members(name, members, ["t"]), {"t": 6}).to_dict()
        == before.group.to_dict()
    )
    answers = perform_assignment(name, members, {"t": 6}, generation=9)
    rows_out = {m: [p for _, p in decode_assignment(d).partitions] for m, d in answers.items()}
    assert [len(own[0]) for m, own in rows_out.items() if m != "liar"] == [2, 2]
    assert set(rows_out["a"][0]) < {0, 1, 2}
    assert set(rows_out["b"][0]) < {3, 4, 5}


def test_a_claim_outside_the_subscription_of_an_impossible_generation_withholds_nothing() -> None:
    lie = Subscription(topics=(), owned=(("t", (0, 1)),), generation=9)
    honest = Subscription(topics=("t",), owned=(("t", (0, 1)),), generation=8)
    members = [("a", None, encode_subscription(honest)), ("b", None, encode_subscription(lie))]
    known = assign(read_group(STICKY, members, {"t": 2}, generation=9), STICKY)
    assert known.to_dict() == {"a": {"t": [0, 1]}, "b": {}}
    assert assign(read_group(STICKY, members, {"t": 2}), STICKY).withheld == {0: 1, 1: 1}


def test_lags_are_cut_to_the_partitions_there_are() -> None:
    data = encode_subscription(Subscription(topics=("t",)))
    lags = {"t": [5, 2**63 - 1, 3, 1, 1], "v": [2], "gone": [1]}
    group = read_group("lag", [("a", None, data)], {"t": 3, "u": 1, "v": 2}, lags=lags)
    assert group.lags.tolist() == [5, 2**62, 3, 0, 2, 0]


@pytest.mark.parametrize("lag", [-3, 2.5, None, 2**63])
def test_lags_that_are_not_counts_are_refused_with_their_index(lag: Any) -> None:
    data = encode_subscription(Subscription(topics=("t",)))
    with pytest.raises(ModelError, match=r"lags\.t\[1\]"):
        perform_assignment("lag", [("a", None, data)], {"t": 3}, lags={"t": [5, lag, 0]})


def test_an_unknown_assignor_is_refused_with_a_near_name() -> None:
    with pytest.raises(ConfigError, match="did you mean sticky"):
        perform_assignment("stcky", [], {})


@pytest.mark.parametrize("name", ASSIGNORS)
def test_no_members_no_answers(name: str) -> None:
    assert perform_assignment(name, [], {"t": 1}) == {}


def test_an_eager_members_wish_costs_no_owner_anything() -> None:
    """A version 0 subscription: nothing is owned, the user data lists what was revoked."""
    preferred = StickyUserData(partitions=(("t", (0, 2)),), generation=7)
    eager = Subscription(version=0, topics=("t",), user_data=encode_sticky_user_data(preferred))
    owned = (("t", (0, 1)),)
    owner = Subscription(topics=("t",), owned=owned, generation=7)
    members = [("a", None, encode_subscription(owner)), ("b", None, encode_subscription(eager))]
    group = read_group("cooperative-sticky", members, {"t": 4}, generation=8)
    assert [group.claim_members().tolist(), group.claim_tp.tolist()] == [[0, 0, 1], [0, 1, 2]]
    answers = perform_assignment("cooperative-sticky", members, {"t": 4}, generation=8)
    assert decode_assignment(answers["a"]).partitions == owned

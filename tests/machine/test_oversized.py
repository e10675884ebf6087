"""Subscriptions larger than an honest one can be, as their leader reads them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.machine.subscribed import round_of

from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader import leader_round
from holdfast.core.machine.leader.designs import DesignAssignor, compute, read_round
from holdfast.core.machine.leader.leader_round import (
    begin_round,
    most_bytes,
    named_in_round,
)
from holdfast.core.machine.policy import Policy
from holdfast.core.model.constants import Design
from holdfast.core.wire.layouts.consumer_protocol import (
    Subscription,
    decode_subscription,
    encode_subscription,
)

NAME = "cooperative-sticky"
TOPICS = {"orders": 4, "clicks": 2}
MANY = tuple(range(100_000))


def joined(name: str, **said) -> JoinedMember:
    """A member with a subscription."""
    value = Subscription(**({"topics": ("orders",), "generation": 6} | said))
    return JoinedMember(member_id=name, metadata=encode_subscription(value))


def test_claims_of_what_does_not_exist_are_not_read() -> None:
    owned = (("clicks", MANY), ("gone", MANY), ("orders", (3, 1, 3)))
    liar = joined(
        "liar", owned=owned, topics=("gone", "orders", "clicks"), user_data=b"own", rack="r"
    )
    (taken,) = begin_round(round_of(NAME, (liar,), TOPICS, 7)).members
    said = decode_subscription(taken.metadata)
    assert said.topics == ("clicks", "orders")
    assert dict(said.owned)["orders"] == (1, 3)
    assert dict(said.owned)["clicks"] == MANY[: 2 + 256]  # asked to revoke these, then the next
    assert (said.generation, said.rack, "gone" in dict(said.owned)) == (6, "r", False)
    assert said.user_data == b"own"


def test_an_honest_member_that_owns_everything_is_read_as_it_is() -> None:
    members = (joined("a", owned=tuple((t, tuple(range(n))) for t, n in TOPICS.items())),)
    assert begin_round(round_of(NAME, members, TOPICS, 7)).members is members


def test_the_size_as_it_came_counts_for_the_record() -> None:
    liar = joined("liar", user_data=bytes(100_000))
    (read,) = begin_round(round_of(NAME, (liar,), TOPICS, 7)).subscribed_members()
    assert read.size_bytes == len(liar.metadata)
    assert read.subscription.leader_state is None


@pytest.mark.parametrize("cut", [3, 5, 20, 100, -1])
def test_a_large_message_that_ends_early_is_a_member_that_says_nothing(cut: int) -> None:
    whole = joined("liar", owned=(("orders", MANY),)).metadata
    short = whole[:cut] + bytes(0) if cut < 0 else whole[: len(whole) - cut]
    liar = JoinedMember(member_id="liar", metadata=short)
    (read,) = begin_round(round_of(NAME, (liar,), TOPICS, 7)).subscribed_members()
    assert (read.subscription.topics, read.subscription.owned) == ((), ())


def test_too_many_names_beyond_those_of_the_leader_are_none(monkeypatch) -> None:
    monkeypatch.setattr(leader_round, "MOST_MORE", 1_000)
    names = tuple(f"topic-{i}" for i in range(1_001))
    lead = joined("lead")
    for n, counts in ((999, True), (1_002, False)):
        liar = joined("liar", topics=tuple(f"name-{i}" for i in range(n)))
        found = named_in_round(round_of(NAME, (lead, liar), {}, 7, member_id="lead"))
        assert len(found) == 1 + n * counts
    both = (joined("lead", topics=names), joined("m", topics=names))
    assert named_in_round(round_of(NAME, both, {}, 7, member_id="lead")) == tuple(sorted(names))
    assert named_in_round(round_of(NAME, (), {}, 7, member_id="lead")) == ()


def test_too_many_names_beyond_those_that_exist_are_none(monkeypatch) -> None:
    monkeypatch.setattr(leader_round, "MOST_MORE", 1_000)
    for n, read in ((999, ("orders",)), (1_002, ())):
        liar = joined("liar", topics=("orders", *(f"name-{i}" for i in range(n))))
        (found,) = begin_round(round_of(NAME, (liar,), TOPICS, 7)).subscribed_members()
        assert found.subscription.topics == read


def test_a_leader_looks_up_the_topics_of_a_large_message() -> None:
    assignor = DesignAssignor(Policy(design=Design.DEFERRED))
    large = joined("b", topics=("clicks", "new"), owned=(("orders", MANY),), rack="r")
    request = round_of(assignor.name, (joined("a"), large), {}, 7)
    assert named_in_round(request) == ("clicks", "new", "orders")
    request = replace(request, partitions=(("clicks", 2), ("orders", 4)))
    leader_round = read_round([assignor], request)
    assert leader_round.has_racks
    done = compute([assignor], request, leader_round=leader_round)
    assert done.failure is None


def test_an_honest_message_is_never_longer_than_the_most() -> None:
    everything = tuple((t, tuple(range(n))) for t, n in TOPICS.items())
    said = joined("a", topics=tuple(TOPICS), owned=everything, user_data=bytes(1_000))
    assert len(said.metadata) <= most_bytes(TOPICS)

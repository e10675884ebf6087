"""The claims that members keep if their leader cannot plan: against a slow twin, and their cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machine.subscribed import subscribed
from tests.peak import peak_bytes

from holdfast.core.machine.leader.subscriptions import SubscribedMember, undisputed
from holdfast.core.model.partitions import resources_of

NUMBERS = st.lists(st.integers(-1, 3), max_size=4)
CLAIMS = st.lists(st.tuples(st.sampled_from("tuv"), NUMBERS.map(tuple)), max_size=3).map(tuple)
MEMBERS = st.lists(
    st.tuples(CLAIMS, st.integers(-1, 4), st.sets(st.sampled_from("tuv"))), max_size=4
)


def slowly(
    members: list[SubscribedMember], generation: int | None
) -> dict[str, set[tuple[str, int]]]:
    """One claim at a time, each against all others."""
    told = [
        (m.member_id, resource, m.subscription.generation, m.subscription.topics)
        for m in members
        for resource in resources_of(m.subscription.owned)
        if generation is None or m.subscription.generation < generation
    ]
    keeps: dict[str, set[tuple[str, int]]] = {m.member_id: set() for m in members}
    for name, resource, claimed, topics in told:
        rivals = [g for other, r, g, _ in told if other != name and r == resource]
        if resource[0] in topics and all(g < claimed for g in rivals):
            keeps[name].add(resource)
    return keeps


@given(MEMBERS, st.none() | st.integers(0, 5), st.randoms(use_true_random=False))
def test_a_claim_is_kept_if_no_other_is_as_new(rows, generation, chance) -> None:
    members = [
        subscribed(f"m{i}", topics=tuple(sorted(topics)), owned=owned, generation=claimed)
        for i, (owned, claimed, topics) in enumerate(rows)
    ]
    chance.shuffle(members)
    kept = undisputed(members, generation)
    assert {m: set(resources_of(own)) for m, own in kept.items()} == slowly(members, generation)
    assert list(kept) == sorted(m.member_id for m in members)


@pytest.mark.parametrize("highest", [16_383, 2**31 - 1])
def test_a_high_number_costs_the_leader_no_more_than_a_low_one(highest) -> None:
    peaks = []
    for name, number in (("u", 0), ("v", highest)):
        owned = tuple((f"{name}{i}", (number,)) for i in range(400))
        members = [subscribed("a", topics=tuple(t for t, _ in owned), owned=owned, generation=3)]
        undisputed(members)
        peaks.append(peak_bytes(lambda members=members: undisputed(members)))
    assert peaks[1] < 1.5 * peaks[0]

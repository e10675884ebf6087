"""What no claim of a member does: raise, take from a newer owner, or stop the group.

References: KAFKA-12984 (two claims of one generation), KIP-341 (generations).
"""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile.group import ASSIGNORS, DELAY_MS, EVERYTHING, TOPICS, Group, settled
from tests.strategies import INT32
from tests.suites import dear

from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.consumer_protocol import (
    StickyUserData,
    Subscription,
    encode_sticky_user_data,
    encode_subscription,
)
from holdfast.core.wire.layouts.container import MemberSubscription, encode_member_subscription

every_assignor = pytest.mark.parametrize("name", ASSIGNORS)


@st.composite
def messages(draw: st.DrawFn, honest: bytes, generation: int) -> bytes:
    """Any claims under any generation, in any of the layouts; or bytes that are cut or bent."""
    claim = st.tuples(
        st.sampled_from([*TOPICS, "unknown", ""]),
        st.lists(st.integers(0, 130) | INT32, max_size=20).map(tuple),
    )
    claims = st.lists(claim, max_size=6).map(tuple)
    topics = draw(st.lists(st.sampled_from([*TOPICS, "unknown", ""]), max_size=4).map(tuple))
    owned, other = draw(claims), draw(claims)
    under = draw(st.integers(generation - 2, generation + 2) | INT32)
    sticky = encode_sticky_user_data(StickyUserData(partitions=other, generation=under))
    user_data = draw(st.none() | st.just(sticky) | st.binary(max_size=40))
    plain = Subscription(topics=topics, owned=owned, generation=under, user_data=user_data)
    known = tuple((t, tuple(n for n in numbers if n >= 0)) for t, numbers in other)
    framed = MemberSubscription(
        topics=topics,
        owned=owned,
        generation=under,
        already_revoked=known,
        leader_state=draw(st.none() | st.binary(max_size=60)),
        state_age_ms=draw(st.integers(0, 2**31 - 1)),
    )
    plainly = encode_subscription(plain, draw(st.integers(0, 3)))
    whole = draw(
        st.sampled_from([honest, plainly, encode_member_subscription(framed), b"\xff" * 40])
    )
    at = draw(st.integers(0, len(whole)))
    return draw(st.sampled_from([whole, whole[:at], whole[:at] + b"\x80" + whole[at + 1 :]]))


@every_assignor
@dear
@given(data=st.data())
def test_no_message_of_a_member_raises(name: str, data: st.DataObject) -> None:
    group = settled(name)
    said = data.draw(messages(group.said("m02"), group.generation))
    del group.members["m02"]  # it does not do what its assignment says
    group.round({"m02": said, "other": said})


def without_its_own(group: Group, member: str) -> dict[str, frozenset[Resource]]:
    return {name: own for name, own in group.owned().items() if name != member}


@every_assignor
def test_the_newest_generation_wins(name: str) -> None:
    group = settled(name)
    before = without_its_own(group, "m02")
    group.members["m02"].owned = EVERYTHING
    group.members["m02"].generation -= 1
    group.round()
    assert without_its_own(group, "m02") == before


@every_assignor
def test_a_generation_that_does_not_exist_yet_counts_as_none(name: str) -> None:
    """The coordinator lost records, and a member comes from a generation that it has forgotten."""
    group = settled(name)
    before = without_its_own(group, "m02")
    group.members["m02"].owned = EVERYTHING
    group.members["m02"].generation += 5
    group.round()
    assert without_its_own(group, "m02") == before


@every_assignor
def test_two_claims_of_one_generation_cancel(name: str) -> None:
    group = settled(name)
    both = frozenset([min(group.members["m01"].owned)])
    group.members["m02"].owned |= both
    group.round()
    assert group.all_owned() == EVERYTHING - both
    group.settle()


def keep_their_share(group: Group, before: dict[str, frozenset[Resource]]) -> bool:
    """Whether each member has kept at least an even share of what it owned, with one more here."""
    share = len(EVERYTHING) // (len(before) + 1)
    return all(len(own & group.members[m].owned) >= share for m, own in before.items())


@every_assignor
@pytest.mark.parametrize("age_ms", [0, DELAY_MS])
@pytest.mark.parametrize("member", ["m00", "m02"])
def test_a_late_member_takes_only_its_share(name: str, age_ms: int, member: str) -> None:
    """It missed rounds and comes with its claims and its share; m00 leads when it is there."""
    group = settled(name)
    late = deepcopy(group.members[member])
    del group.members[member]
    group.round()
    for _ in range(3):
        group.round(age_ms=age_ms)
    before = group.owned()
    owned = group.all_owned()
    group.members[member] = late
    group.round()
    assert not late.owned & owned
    assert keep_their_share(group, before)
    group.settle()


@every_assignor
def test_a_zombie_that_repeats_its_claims_stops_nobody(name: str) -> None:
    """Each round it claims everything in the same old generation; the others keep theirs."""
    group = settled(name)
    zombie = group.members.pop("m02")
    group.settle()
    before = group.owned()
    said = group.said("m02", owned=tuple(EVERYTHING), generation=zombie.generation)
    for _ in range(5):
        group.round({"m02": said})
    assert keep_their_share(group, before)

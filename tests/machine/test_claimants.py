"""Resources as a leader and its checkers name them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.machine.leader.subscriptions import MANY, resources_of

NUMBERS = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 40) | st.just(MANY)


@given(st.dictionaries(st.text(max_size=3), st.lists(NUMBERS, max_size=6)))
def test_resources_are_named_one_by_one_whatever_their_numbers(rows):
    partitions = tuple((topic, tuple(numbers)) for topic, numbers in rows.items())
    expected = {(topic, number) for topic, numbers in partitions for number in numbers}
    assert resources_of(partitions) == expected


def test_a_resource_is_the_same_object_each_time():
    (first,) = resources_of((("orders", (7,)),))
    again = next(r for r in resources_of((("orders", (3, 7)),)) if r[1] == 7)
    assert again is first

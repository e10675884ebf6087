"""Sets of partitions in their three shapes, and the ways between them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.peak import peak_bytes

from holdfast.core.model import partitions, reported
from holdfast.core.model.partitions import KEPT, resources_of, resources_of_topic
from holdfast.core.model.topics import Topics

NUMBERS = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 40) | st.just(KEPT)
TOPICS = Topics.from_counts({"a": 3, "b": 0, "c": 2})
RESOURCES = st.sets(st.sampled_from([("a", 0), ("a", 1), ("a", 2), ("c", 0), ("c", 1)]))


@given(st.dictionaries(st.text(max_size=3), st.lists(NUMBERS, max_size=6)))
def test_resources_are_named_one_by_one_whatever_their_numbers(rows):
    partitions = tuple((topic, tuple(numbers)) for topic, numbers in rows.items())
    expected = {(topic, number) for topic, numbers in partitions for number in numbers}
    assert resources_of(partitions) == expected


def test_a_resource_is_the_same_object_each_time():
    (first,) = resources_of((("orders", (7,)),))
    again = next(r for r in resources_of((("orders", (3, 7)),)) if r[1] == 7)
    far = next(r for r in resources_of((("orders", (7, 900)),)) if r[1] == 7)
    assert again is first and far is first


@pytest.mark.parametrize("highest", [16_383, 2**31 - 1])
def test_one_high_number_costs_no_more_than_a_low_one(highest):
    """A claim of 400 topics, 5.5 kB on the wire, took 650 MiB: a row up to each number."""
    peaks = []
    for name, number in (("y", 0), ("z", highest)):
        claimed = tuple((f"{name}{i}", (number,)) for i in range(400))
        resources_of(claimed)  # what it makes once and for all
        partitions._kept.clear()
        peaks.append(peak_bytes(lambda claimed=claimed: resources_of(claimed)))
    assert peaks[1] < 1.5 * peaks[0]


def test_what_is_kept_is_bounded_whatever_is_read():
    def kept() -> int:
        return sum(map(len, partitions._kept.by_topic.values()))

    partitions._kept.clear()
    for i in range(50):
        resources_of(tuple((f"s{i}.{topic}", tuple(range(i, i + 50))) for topic in range(200)))
        assert kept() == partitions._kept.n_kept <= KEPT
    for i in range(KEPT // 1000):
        resources_of(((f"l{i}", tuple(range(5_000))), ("t" * 300, (1,)), (f"e{i}", ())))
        assert kept() == partitions._kept.n_kept <= KEPT
    assert not any(len(topic) > 249 or not row for topic, row in partitions._kept.by_topic.items())
    assert list(resources_of_topic("t", range(KEPT + 2)))[-1] == ("t", KEPT + 1)
    assert kept() <= KEPT


def test_only_small_sets_are_remembered_whole():
    small = (("t", tuple(range(200))),)
    assert resources_of(small) is resources_of(small)
    for large in ((("t", tuple(range(300))),), (("t" * 5_000, (1,)),)):
        assert resources_of(large) == resources_of(large)
        assert resources_of(large) is not resources_of(large)


@given(RESOURCES)
def test_the_three_shapes_of_a_set_turn_into_each_other(resources):
    pairs = partitions.grouped(sorted(resources))
    tps = reported.tps_of(TOPICS, pairs)
    assert resources_of(pairs) == resources
    assert [TOPICS.name_of(tp) for tp in tps.tolist()] == sorted(resources)
    assert reported.partitions_of(TOPICS, tps[::-1]) == pairs


def test_only_neighbours_are_grouped_and_merging_takes_all():
    resources = [("c", 1), ("a", 2), ("c", 0)]
    apart = partitions.grouped(resources)
    assert apart == (("c", (1,)), ("a", (2,)), ("c", (0,)))
    assert partitions.merge_topics(apart) == (("c", (1, 0)), ("a", (2,)))
    assert partitions.sort_partitions((*apart, ("b", ()))) == (("a", (2,)), ("c", (0, 1)))


def test_what_does_not_exist_has_no_index():
    given = (("a", (-1, 2, 3)), ("b", (0,)), ("d", (0,)))
    assert reported.tps_of(TOPICS, given).tolist() == [2]


def test_one_entry_a_member():
    owner = np.array([1, 0, 1, -1, 1], np.int32)
    owned = {0: (("a", (1,)),), 1: (("a", (0, 2)), ("c", (1,)))}
    assert reported.partitions_by_owner(TOPICS, owner) == owned
    pairs = np.array([1, 0, 0], np.int32), np.array([4, 4, 0], np.int32)
    both = {0: (("a", (0,)), ("c", (1,))), 1: (("c", (1,)),)}
    assert reported.partitions_by_member(TOPICS, *pairs) == both

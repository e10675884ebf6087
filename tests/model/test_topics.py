from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.topics import Topics
from holdfast.errors import ModelError


@given(st.dictionaries(st.text("ab", max_size=3), st.integers(0, 4)))
def test_every_topic_partition_has_one_flat_index(partitions: dict[str, int]) -> None:
    topics = Topics.from_counts(partitions)
    pairs = [(name, p) for name in sorted(partitions) for p in range(partitions[name])]
    assert [topics.name_of(tp) for tp in range(topics.n_tps)] == pairs
    assert [topics.names[t] for t in topics.topic_of.tolist()] == [name for name, _ in pairs]
    assert topics.partition_of.tolist() == [p for _, p in pairs]
    assert [topics.index[name] for name in topics.names] == list(range(topics.n_topics))


def test_racks_are_sorted_names_and_unknown_where_left_out() -> None:
    topics = Topics.from_counts({"t": 2, "u": 1}, racks={"t": [["b", "a"], []]}, more_racks=["z"])
    assert topics.rack_names == ("a", "b", "z")
    assert [topics.racks_of(tp) for tp in range(3)] == [("a", "b"), (), ()]
    assert Topics.from_counts({"t": 1}, more_racks=["z"]).racks_of(0) == ()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"partitions": {"t": -1}}, "t: -1 partitions"),
        ({"partitions": {"t": 2**31}}, "expected at most"),
        ({"partitions": {"t": 1}, "racks": {"x": []}}, "racks of topic 'x'"),
        ({"partitions": {"t": 1}, "racks": {"t": []}}, "racks.t: 0 entries, expected 1"),
    ],
)
def test_counts_and_racks_that_do_not_fit_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        Topics.from_counts(**arguments)

"""What changed hands: laws, the twin, and cases by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.histories import build, generation, histories, twin_movements

from holdfast.fleet.columnar import replaced
from holdfast.fleet.pipeline.batches.state import carry
from holdfast.fleet.pipeline.history.movements import compare, dense, movement_table
from holdfast.fleet.pipeline.history.ownership_gaps import gap_candidates
from holdfast.fleet.pipeline.ingest.generations import concat


def tables(gens):
    events = compare(gens)
    return movement_table(events), gap_candidates(events)


def movements(history):
    rows = tables(build(history))[0].to_pylist()
    names = ("group", "generation", "topic", "partition", "from_member", "to_member", "kind")
    return sorted([tuple(r[n] for n in names) for r in rows], key=repr)


def gaps(gens):
    rows = tables(gens)[1].to_pylist()
    return [
        (
            r["topic"],
            r["partitions"],
            r["gap_lower_seconds"],
            (r["timestamp"] - r["last_seen"]).total_seconds(),
            r["basis"],
        )
        for r in rows
    ]


@given(histories())
def test_equals_the_twin(history):
    assert movements(history) == twin_movements(history)


@given(histories(), st.integers(0, 12))
def test_a_cut_history_with_its_carry_says_the_same(history, cut):
    """Batch equals stream: what is carried over replaces the whole past."""
    whole = tables(build(history))
    first, second = build(history[:cut]), build(history[cut:], cut)
    events = compare(first)
    state = carry(events, np.arange(len(events.layout.first_row)))
    early = movement_table(events), gap_candidates(events)
    late = tables(concat([state, second]).sorted())
    for full, a, b in zip(whole, early, late, strict=True):
        rows = [*a.to_pylist(), *b.to_pylist()]
        assert sorted(map(repr, rows)) == sorted(map(repr, full.to_pylist()))


@given(histories())
def test_the_carry_of_a_carry_is_itself(history):
    gens = build(history)
    states = []
    for _ in range(2):
        events = compare(gens)
        gens = carry(events, np.arange(len(events.layout.first_row)))
        states.append(gens)
    assert states[0].head.equals(states[1].head)
    assert states[0].owned.to_pylist() == states[1].owned.to_pylist()


def test_the_four_kinds():
    history = [
        generation(number=1, members={"a": {"t": [0, 1, 2]}, "b": {"t": [3]}}),
        generation(number=2, members={"a": {"t": [0]}, "b": {"t": [1, 4]}}),
        generation(number=3, members={"a": {"t": [0, 3]}, "b": {"t": [1, 2]}}),
    ]
    assert movements(history) == [
        ("g", 2, "t", 1, "a", "b", "moved"),
        ("g", 2, "t", 2, "a", None, "lost"),
        ("g", 2, "t", 3, "b", None, "lost"),
        ("g", 2, "t", 4, None, "b", "gained"),
        ("g", 3, "t", 2, "a", "b", "moved_through_gap"),
        ("g", 3, "t", 3, "b", "a", "moved_through_gap"),
        ("g", 3, "t", 4, "b", None, "lost"),
    ]


def test_a_static_member_that_came_back_has_moved_nothing():
    static = {"group_instance_id": "one"}
    history = [
        generation(number=5, members={"x-1": (static, {"t": [0]})}),
        generation(number=5, members={"x-2": (static, {"t": [0]})}),
    ]
    assert movements(history) == []


def test_a_partition_back_with_its_member_after_a_gap_is_gained():
    history = [
        generation(number=1, members={"a": {"t": [0]}}),
        generation(number=2),
        generation(number=3, members={"a": {"t": [0]}}),
    ]
    assert movements(history)[1:] == [("g", 3, "t", 0, None, "a", "gained")]


def test_gaps_of_an_eager_group_are_bound_by_the_records():
    history = [
        generation(number=1, members={"a": {"t": [0, 1]}}, at=10),
        generation(number=2, members={"a": {"t": [0]}, "b": {"t": [1]}}, at=25),
    ]
    assert gaps(build(history)) == [("t", [0, 1], 0.0, 15.0, "eager")]


def test_a_huge_partition_number_allocates_nothing_of_its_size():
    history = [generation(number=n, members={"a": {"t": [2**31 - 1, n]}}) for n in (1, 2)]
    layout = dense(build(history))
    assert len(layout.owner) == 6


def test_two_owners_leave_the_smallest_member_id():
    history = [
        generation(number=1, members={"b": {"t": [0]}}),
        generation(number=2, members={"b": {"t": [0]}, "a": {"t": [0]}}),
    ]
    assert movements(history) == [("g", 2, "t", 0, "b", "a", "moved")]
    row, _, member = dense(build(history)).doubles
    assert row.tolist() == [1, 1] and len(set(member.tolist())) == 2


@pytest.mark.parametrize(
    ("of", "protocol", "basis"),
    [("consumer", "holdfast-deferred", "handover"), ("consumer", "holdfast-simple", "handover"),
     ("connect", "compatible", "handover"), ("connect", "default", "eager"),
     ("consumer", "range", "eager"), ("consumer", "sticky", "eager")],
)  # fmt: skip
def test_who_stops_follows_from_the_protocol(of, protocol, basis):
    first = generation("g", 1, {"a-1": {"t": [0]}, "b-1": {}}, at=0, protocol=protocol)
    second = generation("g", 2, {"a-1": {}, "b-1": {"t": [0]}}, at=10, protocol=protocol)
    gens = build([first, second])
    of_kind = replace(gens, head=replaced(gens.head, protocol_type=[of] * 2))
    assert [p[-1] for p in gaps(of_kind)] == [basis]

"""What members wrote into their group's record, against the scalar decoders."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.records_twin import rows_of

from holdfast.core.model.columns import starts
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.many.columns import Slices
from holdfast.core.wire.many.offsets_batch import read_assignments, read_subscriptions
from holdfast.core.wire.many.ragged import padded
from holdfast.errors import WireError

topic_partitions = st.lists(
    st.tuples(st.sampled_from(["t", "é", ""]), st.lists(st.integers(-5, 5), max_size=3).map(tuple)),
    max_size=3,
).map(tuple)
user_data = st.none() | st.binary(max_size=4)
subscriptions = st.builds(
    Subscription,
    version=st.integers(0, 3),
    topics=st.lists(st.sampled_from(["a", "漢", ""]), max_size=3).map(tuple),
    user_data=user_data,
    owned=topic_partitions,
    generation=st.integers(-1, 5),
    rack=st.none() | st.sampled_from(["", "r"]),
).map(encode_subscription)
assignments = st.builds(
    AssignmentMessage,
    version=st.integers(0, 3),
    partitions=topic_partitions,
    user_data=user_data,
).map(encode_assignment)


@st.composite
def damaged(draw, good):
    blob = draw(good)
    at = draw(st.integers(0, len(blob) - 1))
    byte = draw(st.sampled_from([0, 1, 4, 0x7F, 0x80, 0xFF]))
    match draw(st.integers(0, 7)):
        case 0:
            return blob[:at]
        case 1:
            return blob[:at] + bytes([byte]) + blob[at + 1 :]
        case 2:
            return blob + b"more"
        case 3:
            return bytes([byte, byte]) + blob[2:]  # a version of the future, or below 0
    return blob


def slices_of(blobs) -> Slices:
    start = starts(np.array([len(blob) for blob in blobs], np.int64))
    data = padded(np.frombuffer(b"".join(blobs), np.uint8))
    return Slices(data=data, begin=start[:-1].copy(), size=np.diff(start), valid=None)


def by_scalar(decode, blob, wanted):
    """The value, None where it is unreadable, () where it is not read."""
    if not wanted or not blob:
        return ()
    try:
        return decode(blob)
    except WireError:
        return None


some_wanted = st.lists(st.booleans() | st.just(True), min_size=8, max_size=8)


@given(st.lists(damaged(subscriptions), max_size=8), some_wanted)
def test_subscriptions(blobs, wanted):
    wanted = wanted[: len(blobs)]
    found = read_subscriptions(slices_of(blobs), np.array(wanted, np.bool_))
    expected = [by_scalar(decode_subscription, *pair) for pair in zip(blobs, wanted, strict=True)]
    assert found.unreadable.tolist() == [one is None for one in expected]
    rows = rows_of(found.columns)
    assert len(rows) == len(blobs)
    for row, version, one in zip(rows, found.version.tolist(), expected, strict=True):
        if not isinstance(one, Subscription):
            assert version == -1
            assert row["topics"] == row["ownedPartitions"] == ()
            continue
        assert min(version, 3) == one.version
        assert row["topics"] == one.topics
        assert row["userData"] == one.user_data
        assert tuple((o["topic"], o["partitions"]) for o in row["ownedPartitions"]) == one.owned
        assert (row["generationId"], row["rackId"]) == (one.generation, one.rack)


@given(st.lists(damaged(assignments), max_size=8), some_wanted)
def test_assignments(blobs, wanted):
    wanted = wanted[: len(blobs)]
    found = read_assignments(slices_of(blobs), np.array(wanted, np.bool_))
    expected = [by_scalar(decode_assignment, *pair) for pair in zip(blobs, wanted, strict=True)]
    assert found.unreadable.tolist() == [one is None for one in expected]
    for row, version, one in zip(
        rows_of(found.columns), found.version.tolist(), expected, strict=True
    ):
        told = tuple((o["topic"], o["partitions"]) for o in row["assignedPartitions"])
        if isinstance(one, AssignmentMessage):
            assert (min(version, 3), told) == (one.version, one.partitions)
            assert row["userData"] == one.user_data
        else:
            assert (version, told) == (-1, ())

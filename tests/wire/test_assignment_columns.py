"""Every assignment of a group at once: the bytes of the writer that takes them one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.topics import Topics
from holdfast.core.wire.layouts.consumer_protocol import AssignmentMessage, encode_assignment
from holdfast.core.wire.layouts.container import (
    MemberAssignment,
    encode_member_assignment,
    rejoin_data,
)
from holdfast.core.wire.many.member_messages import encode_assignments

names = st.text(min_size=1, max_size=20)


@given(
    st.dictionaries(names, st.integers(0, 4), max_size=5),
    st.integers(0, 4),
    st.none() | st.binary(max_size=9),
    st.data(),
)
def test_bytes_are_those_of_the_writer(
    partitions: dict[str, int], n_members: int, user_data: bytes | None, data: st.DataObject
) -> None:
    topics = Topics.from_counts(partitions)
    may = st.integers(-1, n_members - 1)
    owner = [data.draw(may) for _ in range(topics.n_tps)]
    expected = []
    for member in range(n_members):
        rows: dict[str, list[int]] = {}
        for tp in range(topics.n_tps):
            if owner[tp] == member:
                name, partition = topics.name_of(tp)
                rows.setdefault(name, []).append(partition)
        pairs = tuple((name, tuple(numbers)) for name, numbers in rows.items())
        expected.append(
            encode_assignment(AssignmentMessage(version=3, partitions=pairs, user_data=user_data))
        )
    column = np.array(owner, np.int32)
    assert encode_assignments(topics, column, n_members, user_data=user_data) == expected


def test_the_data_of_a_rejoin_are_those_of_a_design() -> None:
    owner = np.array([0], np.int32)
    (written,) = encode_assignments(Topics.from_counts({"t": 1}), owner, 1, user_data=rejoin_data())
    assert written == encode_member_assignment(
        MemberAssignment(assigned=(("t", (0,)),), revoked=())
    )

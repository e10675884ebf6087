"""Law: what an encoder writes, its decoder reads back, for every schema."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies as wire
from tests.wire.codecs import CODECS
from tests.wire.test_bad_bytes import VALUES

from holdfast.core.model.partitions import merge_topics, sort_partitions
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.layouts.container import (
    MemberSubscription,
    decode_member_subscription,
    encode_member_subscription,
)


@pytest.mark.parametrize("schema", VALUES)
@given(data=st.data())
def test_what_is_written_is_read_back(schema: str, data: st.DataObject) -> None:
    value, codec = data.draw(VALUES[schema]), CODECS[schema]
    assert codec.decode(codec.encode(value)) == value


@given(wire.claims())
def test_a_lenient_reader_reads_the_same(value: MemberSubscription) -> None:
    assert decode_member_subscription(encode_member_subscription(value), lenient=True) == value


@given(
    st.lists(wire.topic_names, max_size=6).map(tuple), wire.any_topic_partitions(), wire.versions
)
def test_a_subscription_in_any_order_is_written_sorted(topics, owned, version) -> None:
    data = encode_subscription(Subscription(topics=topics, owned=owned), version)
    read = decode_subscription(data)
    assert read.topics == tuple(sorted(topics))
    assert read.owned == (sort_partitions(owned) if version else ())
    assert encode_subscription(read) == data


@given(wire.any_topic_partitions())
def test_assigned_partitions_are_grouped_in_the_order_met(partitions) -> None:
    read = decode_assignment(encode_assignment(AssignmentMessage(partitions=partitions)))
    assert read.partitions == merge_topics(partitions)
    for topic, numbers in read.partitions:
        assert numbers == tuple(n for name, part in partitions for n in part if name == topic)

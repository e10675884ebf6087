"""Law: what an encoder writes, its decoder reads back, for every schema."""

from __future__ import annotations

import dataclasses

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
    subscription_decoder,
)
from holdfast.core.wire.layouts.container import (
    MemberSubscription,
    decode_member_subscription,
    encode_member_subscription,
)
from holdfast.core.wire.layouts.sticky_user_data import (
    StickyUserData,
    decode_sticky_user_data,
    encode_sticky_user_data,
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


@given(st.lists(wire.subscriptions(), max_size=6), st.lists(st.booleans(), max_size=6))
def test_the_remembering_decoder_agrees_with_the_pure_function(values, repeats) -> None:
    decode = subscription_decoder()
    last: tuple[str, ...] = ()
    for value, repeat in zip(values, repeats, strict=False):
        sent = dataclasses.replace(value, topics=last) if repeat else value
        last = sent.topics
        assert decode(encode_subscription(sent)) == sent


@given(wire.any_topic_partitions())
def test_assigned_partitions_are_grouped_in_the_order_met(partitions) -> None:
    read = decode_assignment(encode_assignment(AssignmentMessage(partitions=partitions)))
    assert read.partitions == merge_topics(partitions)
    for topic, numbers in read.partitions:
        assert numbers == tuple(n for name, part in partitions for n in part if name == topic)


@pytest.mark.parametrize("version", [0, 1])
@given(value=wire.sticky_user_data())
def test_sticky_user_data(version: int, value: StickyUserData) -> None:
    expected = value if version else dataclasses.replace(value, generation=-1)
    assert decode_sticky_user_data(encode_sticky_user_data(value, version)) == expected

"""Law: what an encoder writes, its decoder reads back, for every schema."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies as wire

from holdfast.core.model.partitions import merge_topics, sort_partitions
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    SubscriptionDecoder,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.layouts.container import (
    decode_member_assignment,
    decode_member_subscription,
    encode_member_assignment,
    encode_member_subscription,
)
from holdfast.core.wire.layouts.incremental import (
    decode_design_assignment,
    decode_design_subscription,
    encode_design_assignment,
    encode_design_subscription,
)
from holdfast.core.wire.layouts.memory import decode_share, encode_share
from holdfast.core.wire.layouts.sticky_user_data import (
    StickyUserData,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    encode_cooperative_user_data,
    encode_sticky_user_data,
)

LAWS = {
    "subscription": (wire.subscriptions(), encode_subscription, decode_subscription),
    "assignment": (wire.assignment_messages(), encode_assignment, decode_assignment),
    "cooperative": (wire.INT32, encode_cooperative_user_data, decode_cooperative_user_data),
    "design-subscription": (
        wire.design_subscriptions(),
        encode_design_subscription,
        decode_design_subscription,
    ),
    "design-assignment": (
        wire.design_assignments(),
        encode_design_assignment,
        decode_design_assignment,
    ),
    "claim": (wire.claims(), encode_member_subscription, decode_member_subscription),
    "lenient": (
        wire.claims(),
        encode_member_subscription,
        partial(decode_member_subscription, lenient=True),
    ),
    "verdict": (wire.member_assignments(), encode_member_assignment, decode_member_assignment),
    "memory": (wire.memories(), encode_share, decode_share),
}


@pytest.mark.parametrize("law", LAWS)
@given(data=st.data())
def test_what_is_written_is_read_back(law: str, data: st.DataObject) -> None:
    values, encode, decode = LAWS[law]
    value = data.draw(values)
    assert decode(encode(value)) == value


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
    decoder = SubscriptionDecoder()
    last: tuple[str, ...] = ()
    for value, repeat in zip(values, repeats, strict=False):
        sent = dataclasses.replace(value, topics=last) if repeat else value
        last = sent.topics
        assert decoder.decode(encode_subscription(sent)) == sent


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

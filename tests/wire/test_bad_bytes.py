"""Bad bytes: every decoder answers with a value or a WireError, quickly and in little memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies as wire
from tests.wire import java_vectors

from holdfast.core.wire.layouts.connect import decode_connect_assignment, decode_connect_metadata
from holdfast.core.wire.layouts.consumer_protocol import (
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
    decode_cooperative_user_data,
    decode_sticky_user_data,
    encode_cooperative_user_data,
    encode_sticky_user_data,
)
from holdfast.core.wire.layouts.streams_user_data import (
    decode_streams_assignment,
    decode_streams_subscription,
)
from holdfast.core.wire.one.reasons import Reason
from holdfast.errors import WireError


def of_java(family: str, schema: str) -> st.SearchStrategy[bytes]:
    found = [v["hex"] for v in java_vectors.committed(family) if v["schema"] == schema]
    return st.sampled_from(found).map(bytes.fromhex)


SCHEMAS: dict[str, tuple[Callable[[bytes], object], st.SearchStrategy[bytes]]] = {
    "subscription": (decode_subscription, wire.subscriptions().map(encode_subscription)),
    "remembering": (SubscriptionDecoder().decode, wire.subscriptions().map(encode_subscription)),
    "assignment": (decode_assignment, wire.assignment_messages().map(encode_assignment)),
    "sticky": (decode_sticky_user_data, wire.sticky_user_data().map(encode_sticky_user_data)),
    "cooperative": (decode_cooperative_user_data, wire.INT32.map(encode_cooperative_user_data)),
    "design-subscription": (
        decode_design_subscription,
        wire.design_subscriptions().map(encode_design_subscription),
    ),
    "design-assignment": (
        decode_design_assignment,
        wire.design_assignments().map(encode_design_assignment),
    ),
    "claim": (decode_member_subscription, wire.claims().map(encode_member_subscription)),
    "verdict": (decode_member_assignment, wire.member_assignments().map(encode_member_assignment)),
    "memory": (decode_share, wire.memories().map(encode_share)),
    "connect-metadata": (decode_connect_metadata, of_java("connect", "connect-metadata")),
    "connect-assignment": (decode_connect_assignment, of_java("connect", "connect-assignment")),
    "streams-subscription": (
        decode_streams_subscription,
        of_java("streams_user_data", "streams-subscription"),
    ),
    "streams-assignment": (
        decode_streams_assignment,
        of_java("streams_user_data", "streams-assignment"),
    ),
}
every_schema = pytest.mark.parametrize("schema", SCHEMAS)

# Schemas whose last fields may be missing: some of their prefixes are whole messages.
MAY_END_EARLY = {"sticky", "connect-metadata", "connect-assignment"}


def outcome(schema: str, data: bytes) -> WireError | None:
    try:
        SCHEMAS[schema][0](data)
    except WireError as error:
        assert error.reason in set(Reason)
        assert error.schema
        assert error.field
        assert 0 <= error.position <= len(data)
        return error
    return None


@every_schema
@given(data=st.data())
def test_every_proper_prefix_is_refused(schema: str, data) -> None:
    whole = data.draw(SCHEMAS[schema][1])
    assert outcome(schema, whole) is None
    for size in range(len(whole)):
        error = outcome(schema, whole[:size])
        assert error is not None or schema in MAY_END_EARLY


@every_schema
@given(data=st.data())
def test_damage_gives_a_value_or_a_wire_error(schema: str, data) -> None:
    bad = bytearray(data.draw(SCHEMAS[schema][1]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(bad) - 1))
        bad[at : at + data.draw(st.integers(0, 4))] = data.draw(
            st.sampled_from(
                [b"", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80", b"\x00"]
            )
        )
        bad = bad or bytearray(b"\x00")
    outcome(schema, bytes(bad))


@every_schema
@given(data=st.binary(max_size=64))
def test_arbitrary_bytes_give_a_value_or_a_wire_error(schema: str, data: bytes) -> None:
    outcome(schema, data)


@every_schema
@given(data=st.data())
def test_what_follows_a_message_is_ignored(schema: str, data) -> None:
    decode, valid = SCHEMAS[schema]
    whole = data.draw(valid)
    if schema not in MAY_END_EARLY:
        assert decode(whole + data.draw(st.binary(max_size=8))) == decode(whole)


def test_what_is_remembered_survives_a_failure() -> None:
    decoder = SubscriptionDecoder()
    good = bytes.fromhex("0000 00000001 0001 61 ffffffff")
    assert decoder.decode(good).topics == ("a",)
    with pytest.raises(WireError):
        decoder.decode(good[:-1])
    with pytest.raises(WireError):
        decoder.decode(bytes.fromhex("0000 00000002 0001 62"))
    assert decoder.decode(good) == decode_subscription(good)

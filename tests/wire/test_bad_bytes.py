"""Bad bytes: every decoder answers with a value or a WireError, quickly and in little memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies as wire
from tests.wire import java_vectors
from tests.wire.codecs import CODECS
from tests.wire.test_other_protocols import ASSIGNMENTS, SUBSCRIPTIONS

from holdfast.errors import Reason, WireError


def of_java(family: str, schema: str) -> st.SearchStrategy[bytes]:
    found = [v["hex"] for v in java_vectors.committed(family) if v["schema"] == schema]
    return st.sampled_from(found).map(bytes.fromhex)


VALUES = {
    "subscription": wire.subscriptions(),
    "assignment": wire.assignment_messages(),
    "sticky": wire.sticky_user_data(),
    "cooperative": wire.INT32,
    "claim": wire.claims(),
    "verdict": wire.member_assignments(),
    "state-shard": wire.state_shards(),
}
MESSAGES: dict[str, st.SearchStrategy[bytes]] = {
    **{schema: values.map(CODECS[schema].encode) for schema, values in VALUES.items()},
    "design-subscription": st.sampled_from([*SUBSCRIPTIONS]).map(bytes.fromhex),
    "design-assignment": st.sampled_from([*ASSIGNMENTS]).map(bytes.fromhex),
    "connect-metadata": of_java("connect", "connect-metadata"),
    "connect-assignment": of_java("connect", "connect-assignment"),
    "streams-subscription": of_java("streams_user_data", "streams-subscription"),
    "streams-assignment": of_java("streams_user_data", "streams-assignment"),
}
every_schema = pytest.mark.parametrize("schema", CODECS)

# Schemas whose last fields may be missing: some of their prefixes are whole messages.
MAY_END_EARLY = {"sticky", "connect-metadata", "connect-assignment"}


def outcome(schema: str, data: bytes) -> WireError | None:
    try:
        CODECS[schema].decode(data)
    except WireError as error:
        assert error.reason in set(Reason)
        assert error.schema
        assert error.field
        assert 0 <= error.position <= len(data)
        return error
    return None


@every_schema
@given(data=st.data())
def test_damage_gives_a_value_or_a_wire_error(schema: str, data) -> None:
    bad = bytearray(data.draw(MESSAGES[schema]))
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

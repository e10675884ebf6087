"""The error tree: texts, fields, and a trip between processes."""

import pickle

import pytest

from holdfast.errors import (
    InfeasibleError,
    ModelError,
    RemoteProtocolError,
    SourceError,
    WireError,
    nearest,
    suggest,
)

ERRORS = [
    WireError("truncated", schema="S", version=3, field="a[1]", position=7, detail="why"),
    WireError("bad-length", schema="S"),
    ModelError("bad", column="lags", index=2),
    InfeasibleError("no way"),
    RemoteProtocolError("refused", error_code=25),
    SourceError("gone"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_an_error_survives_a_trip_between_processes(error):
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.__dict__ == error.__dict__


def test_texts_say_where():
    assert str(ERRORS[0]) == "S v3: truncated in a[1] at byte 7: why"
    assert str(ERRORS[1]) == "S: bad-length in message"
    assert str(ERRORS[2]) == "lags[2]: bad"


def test_a_near_name_is_suggested_and_a_short_list_otherwise():
    many = [f"group-{i:02}" for i in range(50)]
    assert suggest("stikcy", ["sticky", "range"]) == "did you mean sticky?"
    assert suggest("x", ["sticky", "range"]) == "known: sticky, range"
    assert suggest("x", []) == "known: none"
    assert suggest("x", many).endswith("group-04 and 45 more")
    assert nearest("x", many) == ""
    assert nearest("group-7", many) == "; did you mean group-47?"

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.unpacking import of_digits, unpack

from holdfast.fleet.report.drawing.payload import DIGITS, MAX_VALUE, pack, to_digits

NUMBERS = st.lists(st.integers(0, MAX_VALUE - 1))


@given(st.dictionaries(st.text("abc", min_size=1), NUMBERS), NUMBERS)
def test_columns_come_back(columns: dict[str, list[int]], ascending: list[int]) -> None:
    given_columns = {**columns, "time+": sorted(ascending)}
    found, _ = unpack(pack(given_columns))
    assert {k: v.tolist() for k, v in found.items()} == {**columns, "time": sorted(ascending)}


@given(st.text())
def test_text_holds_its_digits_alone_whatever_the_names_say(name: str) -> None:
    text = pack({"a": [1]}, {"name": name + "</script><!--"})
    assert set(text) <= set(DIGITS)
    assert not set(DIGITS) & set('<" \n')
    assert unpack(text)[1]["name"] == name + "</script><!--"


@given(st.binary())
def test_bytes_come_back(data: bytes) -> None:
    text = to_digits(data)
    assert of_digits(text) == data
    assert len(text) <= 3 + len(data) * 16 / 13


@pytest.mark.parametrize("value", [-1, MAX_VALUE])
def test_what_a_page_cannot_count_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="column a"):
        pack({"a": [value]})


def test_the_same_columns_give_the_same_text() -> None:
    column = np.arange(1000)
    assert pack({"a": column}) == pack({"a": column})

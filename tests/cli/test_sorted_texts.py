"""Long documents that are written piece by piece: JSON as ``json.dumps`` has it, in an order."""

from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.commands.doctor import SortedTexts
from holdfast.cli.output import json_element, write_json, write_json_list

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@given(groups=st.lists(VALUES, max_size=3), head=st.text())
def test_a_list_is_written_as_the_whole_document(
    encoding: str, groups: list[object], head: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole, pieces = folder / "whole.json", folder / "pieces.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        write_json({"head": head, "groups": groups}, whole)
        write_json_list({"head": head}, "groups", map(json_element, groups), pieces)
    assert pieces.read_bytes() == whole.read_bytes()
    assert repr(json.loads(whole.read_text("utf-8"))["groups"]) == repr(groups)


def test_texts_come_in_the_order_of_their_keys() -> None:
    texts = SortedTexts(io.BytesIO())
    for key, text in ((2, "zwei, größer"), (1, "one\n"), (2, "later"), (0, "")):
        texts.add(key, text)
    for _ in range(2):
        assert list(texts) == ["", "one\n", "zwei, größer", "later"]

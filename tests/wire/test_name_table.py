from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.wire.many import name_table
from holdfast.core.wire.many.name_table import NameTable

names = st.text(min_size=0, max_size=20) | st.text("ab", max_size=12)


def look_up(known: list[str], wanted: list[bytes]) -> list[int]:
    table = NameTable(known)
    length = np.array([len(name) for name in wanted], np.int32)
    position = np.append(0, np.cumsum(length))[:-1].astype(np.int64)
    buffer = np.frombuffer(b"".join(wanted) + b"\xff" * table.n_pad, np.uint8)
    return table.find(buffer, position, length).tolist()


@given(st.lists(names, unique=True, max_size=30), st.lists(names, max_size=30))
def test_names_are_found_as_in_a_dict(known: list[str], others: list[str]) -> None:
    wanted = [name.encode() for name in known + others + known[::-1]]
    index = {name.encode(): i for i, name in enumerate(known)}
    assert look_up(known, wanted) == [index.get(name, -1) for name in wanted]


def test_names_that_differ_only_behind_or_by_zeros_are_told_apart() -> None:
    known = ["a", "a\0", "a\0\0", "abcdefgh", "abcdefgh\0", "abcdefghi"]
    wanted = [name.encode() for name in [*known, "abcdefghij" * 9, ""]]
    assert look_up(known, wanted) == [0, 1, 2, 3, 4, 5, -1, -1]


def test_many_names_share_slots_and_are_found_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_table, "CHUNK", 100)
    known = [f"orders-{i:04}" for i in range(3000)]
    assert len(NameTable(known).tables) > 1
    assert look_up(known, [name.encode() for name in known]) == list(range(3000))


def test_names_of_one_length_are_found_where_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_table, "CHUNK", 100)
    known = [f"orders-{i:04}" for i in range(250)] + ["a", "orders-0007-and-a-long-end"]
    for wanted in ([*known[249::-1], "orders-9999"], ["a", "b"], known[-1:], ["x" * 99] * 3, []):
        table, length = NameTable(known), len(wanted[0]) if wanted else 1
        entries = b"".join(length.to_bytes(2, "big") + name.encode() for name in wanted)
        buffer = np.frombuffer(entries + b"\xff" * table.n_pad, np.uint8)
        index = {name: i for i, name in enumerate(known)}
        found = table.find_alike(buffer, len(wanted), length).tolist()
        assert found == [index.get(name, -1) for name in wanted]


def test_a_name_of_the_first_topics_length_is_no_shorter_topic_with_zeros_behind() -> None:
    table = NameTable(["aa", "b"])
    buffer = np.frombuffer(b"\0\2aa\0\2b\0" + bytes(table.n_pad), np.uint8)
    assert table.find_alike(buffer, 2, 2).tolist() == [0, -1]


def test_no_topics_find_nothing() -> None:
    assert look_up([], [b"a", b""]) == [-1, -1]
    assert NameTable([]).find_alike(np.zeros(99, np.uint8), 2, 1).tolist() == [-1, -1]

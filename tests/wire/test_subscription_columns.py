"""Many subscriptions at once: the same as one by one, whatever the bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.strategies import subscriptions

from holdfast.core.wire.layouts.consumer_protocol import (
    StickyUserData,
    Subscription,
    decode_subscription,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
)
from holdfast.core.wire.many import subscription_bytes
from holdfast.core.wire.many.member_messages import claims_of, decode_subscriptions
from holdfast.core.wire.many.name_table import NameTable
from holdfast.errors import WireError

KNOWN = ["", "a", "b", "orders", "orders-2", "some.rather.long-topic_name"]


def read(messages: list[bytes], *, cooperative: bool, names: list[str] = KNOWN) -> list[Any]:
    """Columns as rows: topics, claims, generation and rack of each member."""
    columns = decode_subscriptions(messages, NameTable(names), cooperative=cooperative)
    asked = columns.subscriptions
    sets = [
        asked.topic[a:b].tolist() for a, b in zip(asked.start[:-1], asked.start[1:], strict=True)
    ]
    assert len({tuple(row) for row in sets}) == len(sets)
    claims: list[list[Any]] = [[] for _ in messages]
    assert len(columns.claims.names) == len(columns.claims.member)
    rows = zip(
        columns.claims.member.tolist(),
        columns.claims.topic.tolist(),
        columns.claims.partition.tolist(),
        strict=True,
    )
    assert (np.diff(columns.claims.member) >= 0).all()
    for i, (member, topic, partition) in enumerate(rows):
        name = columns.claims.names[i]
        assert topic == (names.index(name) if name in names else -1)
        claims[member].append((name, partition))
    first_use = [asked.of_member.tolist().index(row) for row in range(len(sets))]
    assert first_use == sorted(first_use)
    return [
        (
            sets[asked.of_member[m]],
            claims[m],
            int(columns.generation[m]),
            columns.racks[m],
        )
        for m in range(len(messages))
    ]


def read_slowly(messages: list[bytes], *, cooperative: bool, names: list[str] = KNOWN) -> list[Any]:
    rows = []
    for data in messages:
        try:
            one = decode_subscription(data)
        except WireError:
            one = Subscription(version=0, topics=())
        claim = claims_of(one, cooperative=cooperative)
        topics = sorted({names.index(name) for name in one.topics if name in names})
        flat = [(name, p) for name, numbers in claim.partitions for p in numbers]
        rows.append((topics, flat, claim.generation, one.rack or None))
    return rows


def agree(messages: list[bytes], names: list[str]) -> None:
    slowly = read_slowly(messages, cooperative=True, names=names)
    assert read(messages, cooperative=True, names=names) == slowly


def with_user_data(value: Subscription, kind: int, claim: StickyUserData) -> bytes:
    if kind == 0:
        user_data = value.user_data
    elif kind == 1:
        user_data = encode_cooperative_user_data(claim.generation)
    else:
        user_data = encode_sticky_user_data(claim, version=kind - 2)
    return encode_subscription(
        Subscription(
            version=value.version,
            topics=value.topics,
            user_data=user_data,
            owned=value.owned if kind < 2 else (),
            generation=value.generation,
            rack=value.rack,
        )
    )


entries = st.tuples(
    st.sampled_from([*KNOWN, "gone"]), st.lists(st.integers(-1, 9), max_size=3).map(tuple)
)
claims = st.builds(
    StickyUserData,
    partitions=st.lists(entries, max_size=4).map(tuple),
    generation=st.integers(-2, 9),
)
well_formed = st.builds(with_user_data, subscriptions(), st.integers(0, 3), claims)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = draw(well_formed)
    at = draw(st.integers(0, len(data)))
    return draw(
        st.sampled_from(
            [data[:at], data + b"\1", data[:at] + draw(st.binary(max_size=4)) + data[at + 1 :]]
        )
    )


def is_text(data: bytes) -> bool:
    """Whether every name is UTF-8; a wrong one in a claim is an unknown topic here, no error."""
    return b"\xef\xbf\xbd" not in data.decode(errors="replace").encode()


@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(well_formed | damaged(), max_size=9), st.booleans(), st.sampled_from([0, 16]))
def test_all_at_once_is_one_by_one(messages: list[bytes], cooperative: bool, slow: int) -> None:
    messages = [data for data in messages if is_text(data)]
    old, subscription_bytes.SLOW = subscription_bytes.SLOW, slow
    try:
        fast = read(messages, cooperative=cooperative)
    finally:
        subscription_bytes.SLOW = old
    assert fast == read_slowly(messages, cooperative=cooperative)


def member(i: int, *, n_owned: int = 3, **fields: Any) -> bytes:
    value = {
        "topics": ("a", "b", "orders"),
        "owned": (("a", tuple(range(n_owned))), ("orders", (i,))),
        "generation": 7,
        "user_data": encode_cooperative_user_data(7),
        **fields,
    }
    return encode_subscription(Subscription(**value))


@pytest.mark.parametrize("slow", [0, 16])
def test_many_different_blocks_are_read_in_lock_step(
    monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    monkeypatch.setattr(subscription_bytes, "SLOW", slow)
    messages = [member(i, topics=(f"t{i % 7}", "orders")) for i in range(40)]
    messages += [b"", b"\0\3", b"\0\3\0\0\0\5", b"\xff\xff" + messages[0][2:], messages[3][:20]]
    names = [f"t{i}" for i in range(6)] + ["orders"]
    agree(messages, names)


@pytest.mark.parametrize("odd", ["t0", "t00001", "no-topic-of-ours", "x" * 40_000])
def test_names_of_one_length_are_read_as_any_others(odd: str) -> None:
    names = [f"t{i:03}" for i in range(40)]
    topics = [tuple(names[i : i + 5]) for i in range(30)]
    alike = [encode_subscription(Subscription(topics=row)) for row in topics]
    agree(alike, names)
    for place in range(6):  # one name of another length, wherever it stands
        row = (*topics[7][:place], odd[: (1 << 15) - 1], *topics[7][place:])
        other = [*alike[:7], encode_subscription(Subscription(topics=row)), *alike[8:]]
        for messages in (other, [*other[:9], other[9][:-30], *other[10:]]):
            agree(messages, names)


@pytest.mark.parametrize("pair", [("t00", "t0000"), ("t00000\0\4", ""), ("t9é", "t001")])
def test_names_of_other_lengths_that_fill_the_same_bytes_are_told_apart(
    pair: tuple[str, str],
) -> None:
    names = [f"t{i:03}" for i in range(40)]
    rows = [tuple(names[i : i + 5]) for i in range(30)]
    for place in range(4):  # the message is as long as if all its names had four bytes
        rows[7] = (*names[:place], *pair, *names[place + 2 : 5])
        messages = [encode_subscription(Subscription(topics=row)) for row in rows]
        agree(messages, names)


@pytest.mark.parametrize("head", [b"", b"\0\3\0\0\0\1", b"\0\3\xff\xff\xff\xff\0\4t000"])
def test_a_broken_first_message_does_not_change_how_the_others_are_read(head: bytes) -> None:
    names = [f"t{i:03}" for i in range(40)]
    alike = [Subscription(topics=tuple(names[i : i + 5])) for i in range(30)]
    messages = [head] * 4 + [encode_subscription(one) for one in alike]
    agree(messages, names)


def test_blocks_that_alternate_are_recognised() -> None:
    long = tuple(f"topic-{i:05}" for i in range(9))
    messages = [member(i, topics=long if i % 2 else long[:8]) for i in range(10)]
    names = list(long)
    rows = read(messages, cooperative=True, names=names)
    assert [len(topics) for topics, *_ in rows] == [8, 9] * 5


def test_blocks_that_begin_alike_are_told_apart() -> None:
    names = [f"topic-{i:05}" for i in range(9)]
    lists = [(*names[:5], name) for name in names[5:]] * 2
    rows = read([member(1, topics=topics) for topics in lists], cooperative=True, names=names)
    assert [topics for topics, *_ in rows] == [[0, 1, 2, 3, 4, i] for i in (5, 6, 7, 8)] * 2


def test_a_few_members_with_long_lists_are_read_one_by_one() -> None:
    owned = tuple((f"t{i:03}", (i,)) for i in range(200))
    messages = [member(i) for i in range(5)] + [member(9, owned=owned, topics=("a",))]
    agree(messages, KNOWN)


def test_counts_on_the_wire_make_nothing_large() -> None:
    huge = b"\x7f\xff\xff\xff"
    messages = [
        b"\0\3" + huge,
        b"\0\3\0\0\0\0" + huge,
        b"\0\3\0\0\0\0\xff\xff\xff\xff" + huge,
        b"\0\3\0\0\0\0\xff\xff\xff\xff\0\0\0\1\0\1a" + huge,
        b"\0\3\0\0\0\0\xff\xff\xff\xff\0\0\0\1\x7f\xff",
    ]
    assert read(messages, cooperative=True) == [([], [], -1, None)] * 5


def test_a_member_that_ends_early_leads_nobody_else_astray() -> None:
    too_long = b"\0\1\0\0\0\0\0\0\x0f\xff"  # user data of 4,095 bytes, of which none is there
    name_too_long = b"\0\0\0\1\x03\xe8a\0\0\0\0"  # a name of 1,000 bytes
    lost = encode_subscription(Subscription(version=1, topics=("a",), user_data=name_too_long))
    for messages in ([too_long, lost], [lost, too_long], [too_long], [lost]):
        found = read(messages, cooperative=False)
        assert found == read_slowly(messages, cooperative=False)


def test_a_wrong_count_of_one_member_leaves_the_claims_of_the_others() -> None:
    counted = b"\0\1a\0\0\0\3"
    wrong = member(2).replace(counted, b"\0\1a\xff\xff\xff\xff")
    assert wrong != member(2)
    for messages in ([member(1), wrong, member(3, n_owned=5)], [wrong, member(4)]):
        agree(messages, KNOWN)


def test_a_rack_that_is_not_text_makes_the_message_unreadable() -> None:
    data = member(1, rack="zone")
    assert read([data], cooperative=True)[0][3] == "zone"
    broken = data.replace(b"zone", b"zo\xffe")
    assert read([broken, data], cooperative=True)[0] == ([], [], -1, None)


def test_both_kinds_of_claims_are_read_in_the_second_bounce_of_an_upgrade() -> None:
    claim = StickyUserData(partitions=(("a", (1, 2)),), generation=3)
    eager = member(0, owned=(), user_data=encode_sticky_user_data(claim), generation=-1)
    for cooperative in (True, False):
        rows = read([eager, member(4)], cooperative=cooperative)
        assert rows[0][1:3] == ([("a", 1), ("a", 2)], 3)
        assert rows[1][1][-1] == ("orders", 4)
        assert rows[1][2] == 7


def test_no_members() -> None:
    assert read([], cooperative=True) == []


@given(st.lists(well_formed | damaged(), max_size=9))
def test_the_topics_that_stand_in_subscriptions_are_found_before_they_are_known(
    messages: list[bytes],
) -> None:
    readable, names = [], subscription_bytes.named_topics(messages)
    for data in messages:
        try:
            readable.append(decode_subscription(data))
        except WireError:
            continue
    assert {topic for one in readable for topic in one.topics} <= set(names)
    assert len(set(names)) == len(names)
    # A block of a message that is broken further on may add some, which nobody subscribes to.
    if len(readable) == len(messages):
        assert {topic for one in readable for topic in one.topics} == set(names)

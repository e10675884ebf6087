"""Locations of members: which ones count, and how the leader state uses them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.machine.subscribed import carried, reports, subscribed
from tests.machine.test_shard_sizes import DESIGN, quiet_round
from tests.machine.test_successors import HOUR_MS, POLICY, group, loads, wait_after
from tests.sim.hand_played import HandPlayedGroup
from tests.suites import further

from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.core.machine.leader.subscriptions import (
    digest_of,
    identities_of,
    identity_of,
    with_locations,
)
from holdfast.core.machine.leader.successors import START_MS
from holdfast.core.wire.layouts.container import LOCATION_BYTES
from holdfast.core.wire.layouts.record_size import MESSAGE_MAX_BYTES, estimate_group_bytes
from holdfast.core.wire.layouts.state_shard import MemberEntry, decode_shard, read_shard

A, B, C, D = (digest_of(name) for name in "ABCD")


def located(partitions: int = 12, members: Sequence[str] = "ABC") -> HandPlayedGroup:
    """A group of members with locations that has not changed for an hour."""
    play = group(partitions, members)
    for name in members:
        play.members[name] = reports(play.members[name], location=digest_of(name))
    play.settle()
    play.now_ms += HOUR_MS
    return play


def test_a_digest_is_short_and_of_its_texts_and_their_order():
    assert len({digest_of("a", "b"), digest_of("b", "a"), digest_of("ab"), digest_of("a")}) == 4
    assert {len(digest_of(text)) for text in ("", "x" * 1_000, "\ud800")} == {LOCATION_BYTES}


def test_a_location_counts_if_no_other_member_has_it_and_its_member_has_no_instance_id():
    said = {"a": A, "b": B, "c": B, "d": b"", "e": b""}
    members = [subscribed(name, topics=(), location=location) for name, location in said.items()]
    members.append(subscribed("f", instance_id="f", topics=(), location=A))
    found = {m.member_id: m.location for m in with_locations(members)}
    assert found == {"a": A, "b": b"", "c": b"", "d": b"", "e": b"", "f": b""}


def test_a_process_that_is_back_gets_what_it_had_and_another_one_does_not():
    play = located()
    had = play.all_owned()
    play.leave("B", "C")
    play.round()
    play.arrive("E", location=C)
    assert play.owned("E") == had["C"]
    assert play.last.delay_ms == POLICY.delay_ms
    play.arrive("F", location=B)
    assert (play.owned("F"), play.owned("E")) == (had["B"], had["C"])


def test_a_process_that_is_back_before_anybody_saw_it_go():
    play = located()
    had = play.owned("C")
    play.leave("C")
    play.arrive("E", location=C)
    assert play.owned("E") == had


def test_a_new_member_with_a_new_location_replaces_one_that_left():
    play = located()
    had = play.owned("C")
    play.leave("C")
    play.round()
    play.arrive("E", location=D)
    assert play.owned("E") == had


def test_one_that_was_replaced_is_no_successor():
    play = located()
    play.leave("C")
    play.round()
    play.arrive("E", location=D)
    play.arrive("F", location=C)
    assert wait_after(play, "A") == POLICY.delay_ms


@pytest.mark.parametrize(("later_ms", "waits_ms"), [(20_000, 0), (40_000, START_MS)])
def test_a_new_member_with_a_location_is_a_successor_at_once_for_a_short_time(later_ms, waits_ms):
    play = located()
    play.arrive("D", location=D)
    play.now_ms += later_ms
    assert wait_after(play, "A") == waits_ms


def test_one_that_has_a_successor_is_no_recent_joiner_when_it_is_back():
    play = located()
    play.arrive("D", location=D)
    assert wait_after(play, "A") == 0
    play.settle()
    play.arrive("E", location=A)
    assert wait_after(play, "B") == POLICY.delay_ms


def test_a_short_wait_that_ran_out_uses_its_successor_up():
    play = located()
    play.arrive("D", location=D)
    play.now_ms += 35_000
    assert wait_after(play, "A") == START_MS
    play.now_ms += START_MS
    play.settle()
    assert wait_after(play, "B") == POLICY.delay_ms


def test_an_idle_member_that_is_back_is_no_successor():
    play = located(3, "ABC")
    play.arrive("D", location=D)
    play.now_ms += HOUR_MS
    assert play.owned("D") == ""
    play.round()
    play.leave("D")
    play.round()
    play.now_ms += 1_000
    play.arrive("E", location=D)
    play.now_ms += 1_000
    assert wait_after(play, "A") == POLICY.delay_ms


def test_a_member_keeps_what_it_has_when_another_one_says_that_it_lives_there():
    """Its identity changes twice, and the leader state follows it."""
    play = located()
    had = play.owned("C")
    play.arrive("D", location=C)
    assert set(play.owned("C").split(",")) <= set(had.split(","))
    shard = read_shard(play.members["C"].subscription.leader_state)
    assert not shard.located
    play.leave("D")
    play.round()
    shard = read_shard(play.members["C"].subscription.leader_state)
    assert shard.located
    kept = play.owned("C")
    play.leave("C")
    assert play.round().delay_ms > 0
    play.arrive("E", location=C)
    assert set(kept.split(",")) <= set(play.owned("E").split(","))


def test_a_member_that_missed_the_round_that_named_it_by_its_location_keeps_what_it_has():
    """Seed 78 of the soak: C loses that location to E before C knows that it has it."""
    play = located()
    play.arrive("D", location=C)
    had = play.all_owned()
    play.leave("D")
    play.round(unreached=("C",))
    play.join("E", location=C)
    play.round()
    assert play.owned("C") == had["C"]
    assert play.owned("E") == had["D"]
    assert play.last.waiting == ()


def test_a_process_that_is_back_after_its_location_went_to_another_one_is_a_new_member():
    """Seed 98 of the soak: C is thrown out, E has its location and its partitions, B departs."""
    play = located()
    had, thrown_out = play.all_owned(), play.members["C"].subscription.leader_state
    play.leave("C")
    play.arrive("E", location=C)
    play.leave("B")
    play.round()
    play.arrive("F", location=C, leader_state=thrown_out)
    assert (play.owned("E"), play.owned("F")) == (had["C"], had["B"])


def test_a_liar_at_the_location_of_one_that_is_there_takes_nothing_from_it():
    play, honest = located(), located()
    play.join("D", location=C)
    honest.join("D")
    for each in (play, honest):
        each.settle()
    assert play.all_owned() == honest.all_owned()


def test_identities_of_a_member():
    (member,) = with_locations([subscribed("a", topics=(), location=A)])
    (static,) = with_locations([subscribed("a", instance_id="i", topics=(), location=A)])
    assert identities_of(member)[0] == identity_of(member)
    assert len(identities_of(member)) == 2
    assert identities_of(static) == (identity_of(static),)


def test_2_000_members_with_locations_fit_a_stock_brokers_record():
    """20,000 partitions of a topic: locations take four bytes a member, and no shard is longer."""
    size = (2_000, 20_000, 1, "orders")
    design = DesignAssignor(DESIGN)
    leader_round = quiet_round(design, size)
    here = quiet_round(design, size, locations=True)
    sent = [sum(len(m.metadata) for m in each.members) for each in (leader_round, here)]
    assert sent[1] - sent[0] <= (LOCATION_BYTES + 1) * 2_000
    record = [
        estimate_group_bytes(
            (m.member_id, None, len(m.metadata) + len(plan[m.member_id])) for m in each.members
        )
        for each, plan in ((each, design.lead(each)) for each in (leader_round, here))
    ]
    assert record[1] - record[0] <= (LOCATION_BYTES + 2) * 2_000
    print(sent, record)
    assert record[1] < MESSAGE_MAX_BYTES


def carriers(lead: str) -> set[str]:
    """The members that carry the list of six new members, beside six old members."""
    names = "ABCDEF", "UVWXYZ"
    members = [subscribed(name, topics=(), location=digest_of(name)) for name in "".join(names)]
    came = [
        MemberEntry(identity=identity_of(m), delay_ms=1_000)
        for m in with_locations(members)
        if m.member_id in names[1]
    ]
    found = carried(with_locations(members), {}, leader_id=lead, waiting=tuple(came))
    return {m for m, shard in found.items() if decode_shard(shard).waiting}


@pytest.mark.parametrize(("lead", "others"), [("A", "UVWXYZ"), ("U", "ABCDEF")])
def test_the_list_outlives_the_old_members_and_the_new_ones(lead, others):
    """Whichever of them leave at once, a surge or its end, three that stay carry it."""
    found = carriers(lead)
    assert len(found) == 1 + 3
    assert found - {lead} <= set(others)


def test_after_a_surge_of_all_nothing_waits():
    play = located(members="ABCDEF", partitions=24)
    for name in "UVWXYZ":
        play.join(name, location=digest_of(name))
    play.settle()
    play.leave(*"ABCDEF")
    play.round()
    assert play.last.delay_ms == 0
    play.settle()
    assert set(loads(play).values()) == {4}


@pytest.mark.parametrize("at_once", further([200, 100, 50]))
def test_a_surge_of_many_of_200_members_waits_for_nobody(at_once):
    play = located(400, [f"a{i:03}" for i in range(200)])
    for first in range(0, 200, at_once):
        old = [f"a{i:03}" for i in range(first, first + at_once)]
        for name in old:
            play.join(f"b{name}", location=digest_of(f"b{name}"))
        play.settle()
        play.leave(*old)
        assert play.round().waiting == ()
        play.settle()

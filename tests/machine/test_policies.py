"""Settings of a policy, unusable leader states, and leaders that cannot plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.machine.clients import Group
from tests.machine.subscribed import awaited, carried, joining_members, reports, subscribed
from tests.sim.hand_played import HandPlayedGroup

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.assignor_protocol import LeaderRound, MemberView
from holdfast.core.machine.leader.departed_members import owed
from holdfast.core.machine.leader.designs import CooperativeAssignor, DesignAssignor, EagerAssignor
from holdfast.core.machine.leader.leader import plan_round
from holdfast.core.machine.leader.ring import LeftOut
from holdfast.core.machine.leader.state_reconstruction import LeaderState
from holdfast.core.machine.leader.subscriptions import SubscribedMember, subscribed_members
from holdfast.core.machine.policy import KindPolicy, Policy
from holdfast.core.model.constants import Design
from holdfast.core.wire.layouts.consumer_protocol import (
    decode_sticky_user_data,
    decode_subscription,
)
from holdfast.core.wire.layouts.container import MemberAssignment, encode_member_assignment
from holdfast.core.wire.layouts.state_shard import MemberEntry
from holdfast.errors import ConfigError

SIMPLE = Policy(design=Design.SIMPLE)
POLICY = Policy(design=Design.DEFERRED, delay_ms=30_000)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"delay_ms": -1}, "delay_ms: found -1"),
        ({"interval_ms": 2**31}, "interval_ms: found 2147483648"),
        ({"batch": 0}, "batch: found 0"),
        ({"group_batch": -1}, "group_batch: found -1"),
        ({"weights": {"k": 0}}, "weight of k: found 0"),
        ({"leader_state_limit_bytes": -1}, "leader_state_limit_bytes: found -1"),
        ({"record_limit_bytes": -1}, "record_limit_bytes: found -1"),
    ],
)
def test_settings_out_of_range_are_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        Policy(**fields)


def member_owning(
    name: str, *owned: int, generation: int = 1, leader_state: bytes | None = None
) -> SubscribedMember:
    own = (("t", owned),) if owned else ()
    return subscribed(
        name, topics=("t",), owned=own, generation=generation, leader_state=leader_state
    )


def group_with(
    *members: SubscribedMember, gone: dict[str, tuple[int, ...]], **fields
) -> list[SubscribedMember]:
    """Return members with their shards of a round in which others owned the rest."""
    owned = {name: (("t", numbers),) for name, numbers in gone.items() if numbers}
    owned |= {m.member_id: m.subscription.owned for m in members if m.subscription.owned}
    others = [subscribed(name, topics=("t",)) for name in gone]
    shards = carried([*members, *others], owned, **fields)
    return [reports(m, leader_state=shards[m.member_id]) for m in members]


def test_what_members_say_they_revoked_is_no_loss_where_no_shard_says_who_owned_it():
    (alone,) = group_with(
        member_owning("A", 0, generation=2), gone={"gone": (2,)}, left_out=LeftOut.OWNED
    )
    says = reports(alone, already_revoked=(("t", (1,)),))
    done = plan_round(POLICY, [says], {"t": 3}, generation=3)
    assert done.assignments["A"].gained == (("t", (1,)),)  # partition 2 waits for whoever had it
    assert done.delay_ms == 30_000


def test_while_something_waits_nobody_who_was_there_gets_what_was_lost():
    members = group_with(
        member_owning("A", 0, 1, 2),
        member_owning("B"),
        gone={"C": (3, 4, 5)},
        waiting=(awaited("S", 6, instance_id="s"),),
    )
    done = plan_round(POLICY, [*members, member_owning("E", generation=-1)], {"t": 7}, generation=2)
    gained = {m: planned.gained for m, planned in done.assignments.items()}
    # Even loads would be 3, 2 and 2: the one that is above E's is not B's before the deadline.
    assert gained == {"A": (), "B": (), "E": (("t", (3, 4, 5)),)}
    # E's are not lost any more, so the next round evens them out; its deadline is in the leader
    # state.
    assert (done.delay_ms, done.again) == (0, True)


def view(**fields) -> MemberView:
    values = {"topics": ("t",), "owned": (), "previous": (("t", 1),), "generation": 4}
    return MemberView(**(values | fields))


def test_an_eager_sticky_member_says_what_it_gave_up():
    data = decode_subscription(EagerAssignor("sticky").subscribe(view())).user_data
    said = decode_sticky_user_data(data)
    assert (said.partitions, said.generation) == ((("t", (1,)),), 4)
    assert decode_subscription(EagerAssignor("range").subscribe(view())).user_data is None


def test_a_cooperative_assignor_does_not_run_eager():
    with pytest.raises(ConfigError, match="cooperative-sticky is cooperative"):
        EagerAssignor("cooperative-sticky")


def claims_of(assignor, **claims) -> tuple[JoinedMember, ...]:
    """Members with these resources, all of generation 5."""
    views = {name: view(owned=own, generation=5 if own else -1) for name, own in claims.items()}
    return joining_members(assignor, **views)


def reads(assignor, *, unbroken: bool, lie: int):
    """Instructions of a round of generation 6 in which a third member claims a's and b's all."""
    owns = {
        "a": (5, (("t", 0), ("t", 1))),
        "b": (5, (("t", 2), ("t", 3))),
        "liar": (lie, tuple(("t", p) for p in range(4))),
    }
    views = {m: view(owned=own, generation=generation) for m, (generation, own) in owns.items()}
    members = joining_members(assignor, **views)
    leader_round = LeaderRound(
        members=members, partitions={"t": 5}, generation=6, unbroken=unbroken
    )
    plan = assignor.lead(leader_round)
    assert {assignor.read(d).assigned for d in assignor.stay(leader_round).values()} == (
        {frozenset(owns["a"][1]), frozenset(owns["b"][1]), frozenset()}
        if unbroken
        else {frozenset(owns["liar"][1]), frozenset()}
    )
    return {name: assignor.read(data) for name, data in plan.items()}


@pytest.mark.parametrize("lie", [6, 7, 2**31 - 1])
@pytest.mark.parametrize(
    "assignor", [CooperativeAssignor(), DesignAssignor(SIMPLE), DesignAssignor(POLICY)]
)
def test_only_a_leader_of_the_round_before_knows_which_generations_cannot_be(assignor, lie):
    told = reads(assignor, unbroken=True, lie=lie)
    assert told["a"].assigned == {("t", 0), ("t", 1)}
    assert told["b"].assigned == {("t", 2), ("t", 3)}
    assert told["liar"].assigned == {("t", 4)}
    assert not told["a"].again
    if isinstance(assignor, DesignAssignor):  # it alone gets a list; elsewhere absence revokes
        assert told["liar"].revoked == {("t", p) for p in range(4)}
        assert told["liar"].again
    told = reads(assignor, unbroken=False, lie=lie)  # the coordinator may have lost records
    assert told["a"].assigned | told["b"].assigned <= {("t", 4)}


def test_what_a_message_names_as_assigned_and_revoked_is_revoked():
    both = encode_member_assignment(
        MemberAssignment(assigned=(("t", (0, 1)),), revoked=(("t", (1,)),))
    )
    told = DesignAssignor(POLICY).read(both)
    assert (told.assigned, told.revoked) == ({("t", 0)}, {("t", 1)})


def test_a_member_does_not_come_back_as_something_else():
    g = Group()
    a, b = g.stable("a", "b")
    (answer,) = g.join("b", b, protocol_type="connect")
    assert answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    (answer,) = g.join("b", b, protocol_names=("sticky",))
    assert answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert g.group.state.name == "STABLE"
    assert a in g.group.members


def test_the_leader_s_own_state_is_older_by_what_its_join_has_waited():
    design = DesignAssignor(POLICY)
    members = joining_members(
        design, **dict.fromkeys("ab", view(leader_state=b"share", state_age_ms=300))
    )
    ages = {c.member_id: c.subscription.state_age_ms for c in subscribed_members(members, "a", 700)}
    assert ages == {"a": 1_000, "b": 300}


def test_a_kind_may_wait_shorter_or_not_at_all():
    kinds = {"now": KindPolicy(delay_ms=0), "soon": KindPolicy(delay_ms=5_000)}
    policy = replace(POLICY, kinds=kinds)
    counts = {"late": 2, "now": 2, "soon": 2}
    play = HandPlayedGroup(policy, counts)
    for name in "AB":
        play.join(name, *counts)
    play.settle()
    lost = set(play.owned("B").split(","))
    play.leave("B")
    done = play.round()
    assert done.delay_ms == 5_000
    assert [p for p in lost if p in play.owned("A")] == [p for p in lost if p.startswith("now")]
    play.now_ms += 5_000
    done = play.round()
    assert done.delay_ms == 25_000
    assert {p for p in lost if p not in play.owned("A")} == {
        p for p in lost if p.startswith("late")
    }
    play.now_ms += 5_000
    play.join("C", *counts)
    play.settle()
    assert {p for p in lost if p.startswith("late")} <= set(play.owned("C").split(","))


def test_a_new_member_replaces_one_member_whatever_its_kinds_wait():
    policy = replace(POLICY, kinds={"soon": KindPolicy(delay_ms=5_000)})
    counts = {"late": 4, "soon": 4}
    play = HandPlayedGroup(policy, counts)
    for name in "AB":
        play.join(name, *counts)
    play.settle()
    lost = play.owned("B")
    play.leave("B")
    assert play.round().delay_ms == 5_000
    play.now_ms += 1_000
    play.join("C", *counts)
    done = play.round()
    assert (done.delay_ms, play.owned("C")) == (0, lost)


@pytest.mark.parametrize("design", [Design.SIMPLE, Design.DEFERRED])
def test_a_kind_may_have_a_design_of_its_own(design):
    kinds = {"slow": KindPolicy(design=Design.INCREMENTAL)}
    policy = replace(POLICY, design=design, kinds=kinds, isolate=True)
    counts = {"fast": 6, "slow": 6}
    play = HandPlayedGroup(policy, counts)
    play.join("A", *counts)
    play.settle()
    play.join("B", *counts)
    revoked = []
    while True:
        done = play.round()
        revoked.append(
            Counter(t for s in done.assignments.values() for t, n in s.revoked for _ in n)
        )
        play.now_ms += done.delay_ms
        if not (done.again or done.delay_ms):
            break
    assert revoked[0] == {"fast": 3, "slow": 1}
    assert sum(revoked, Counter()) == {"fast": 3, "slow": 3}
    assert max(r["slow"] for r in revoked) == 1
    if design is Design.DEFERRED:
        return
    play.leave("B")  # of a group that waits for nobody, only this kind waits
    assert play.round().delay_ms == POLICY.delay_ms
    assert play.owned("A").count("fast") == 6
    assert play.owned("A").count("slow") == 3


def test_what_a_leader_without_a_plan_owes_waits_as_its_kind_does():
    policy = replace(POLICY, kinds={"a": KindPolicy(delay_ms=0), "b": KindPolicy(delay_ms=7)})
    gone = MemberEntry(identity="01" * 32, owned=(("a", (0,)), ("b", (1,)), ("c", (2, 3))))
    leader_state = LeaderState(generation=1, named=(gone,))
    assert [(w.delay_ms, w.owned) for w in owed(policy, [], leader_state)] == [
        (7, (("b", (1,)),)),
        (POLICY.delay_ms, (("c", (2, 3)),)),
    ]


def test_a_delay_of_a_kind_is_checked():
    with pytest.raises(ConfigError, match="delay_ms of k: found -1"):
        Policy(kinds={"k": KindPolicy(delay_ms=-1)})

"""From a configuration to what a member offers, and what its leader plans with."""

import pytest

from holdfast.adapters.member.membership import Leadership, assignors_of
from holdfast.adapters.settings import Settings
from holdfast.assignors.registry import ASSIGNORS
from holdfast.errors import AdapterError, ConfigError
from holdfast.machine.actions import ComputeAssignment
from holdfast.machine.events import JoinedMember
from holdfast.machine.leader.embedded import MemberView, RebalanceMode
from holdfast.machine.leader.subscriptions import subscribed_members
from holdfast.wire.layouts.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_subscription,
)

NEEDED = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


def settings(**more):
    return Settings.parse({**NEEDED, **{k.replace("_", "."): v for k, v in more.items()}})


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_every_assignor_is_offered_in_its_own_mode(name):
    (offered,) = assignors_of(settings(partition_assignment_strategy=name))
    assert offered.name == name
    assert (RebalanceMode.COOPERATIVE in offered.modes) == ASSIGNORS[name].cooperative


@pytest.mark.parametrize("name", [n for n, info in ASSIGNORS.items() if info.cooperative])
def test_a_cooperative_assignor_is_refused_under_the_eager_policy(name):
    wanted = settings(
        holdfast_policy="eager", partition_assignment_strategy=["range", name, "sticky"]
    )
    with pytest.raises(ConfigError, match=r"needs holdfast\.policy=simple"):
        assignors_of(wanted)


def plan(leadership, members, partitions, topics=("t",)):
    """Who gets what, by a leader of these members."""
    computed = leadership.compute(
        ComputeAssignment(
            token=1,
            generation=2,
            protocol_name="range",
            members=tuple(
                JoinedMember(
                    member_id=name,
                    metadata=encode_subscription(
                        Subscription(version=3, topics=topics, user_data=None, owned=(), rack=rack)
                    ),
                )
                for name, rack in members
            ),
            partitions=partitions,
            member_id=members[0][0],
            waited_ms=0,
        )
    )
    assert computed.failure is None
    return {
        name: [p for _, parts in decode_assignment(data).partitions for p in parts]
        for name, data in computed.assignments
    }


def leadership(**lookups):
    wanted = settings(holdfast_policy="eager")
    return Leadership(wanted, assignors_of(wanted), lambda topics: {"t": 4}, **lookups)


def test_racks_are_looked_up_for_members_that_have_one():
    found = {"t": [("b",), ("b",), ("a",), ("a",)]}
    near = leadership(find_racks=lambda topics: found)
    assert plan(near, [("m1", "a"), ("m2", "b")], (("t", 4),)) == {"m1": [2, 3], "m2": [0, 1]}
    asked = []
    plain = leadership(find_racks=asked.append)
    assert plan(plain, [("m1", None), ("m2", None)], (("t", 4),)) == {"m1": [0, 1], "m2": [2, 3]}
    assert asked == []


def test_racks_of_a_topic_that_grew_meanwhile_still_fit():
    found = {"t": [("b",), ("b",)]}
    grown = leadership(find_racks=lambda topics: found)
    plans = plan(grown, [("m1", "a"), ("m2", "b")], (("t", 4),))
    assert sorted(p for parts in plans.values() for p in parts) == [0, 1, 2, 3]


def test_without_an_answer_the_round_is_planned_without_racks(caplog):
    def broken(topics):
        raise AdapterError("no broker answered")

    plans = plan(leadership(find_racks=broken), [("m1", "a"), ("m2", "b")], (("t", 4),))
    assert plans == {"m1": [0, 1], "m2": [2, 3]}
    assert "no broker answered" in caplog.text


def test_topics_of_others_are_counted_not_guessed():
    assert plan(leadership(), [("m1", None)], ()) == {"m1": [0, 1, 2, 3]}


@pytest.mark.parametrize("missing", [(), ("gone",)])
def test_a_leader_reads_every_subscription_once(monkeypatch, missing):
    from holdfast.machine.leader import leader_turn

    real, reads = leader_turn.decode_subscriptions, []

    def counted(messages, table, *, cooperative):
        reads.append(len(messages))
        return real(messages, table, cooperative=cooperative)

    monkeypatch.setattr(leader_turn, "decode_subscriptions", counted)
    topics = ("t", *missing)
    assert plan(leadership(), [("m1", None), ("m2", None)], (), topics) == {
        "m1": [0, 1],
        "m2": [2, 3],
    }
    assert reads == [2] + [2] * len(missing)  # again only where a topic does not exist


@pytest.mark.parametrize("policy", ["simple", "deferred"])
def test_the_topics_of_every_kind_of_assignor_come_from_one_reading(policy):
    wanted = settings(holdfast_policy=policy)
    offered = assignors_of(wanted)
    view = MemberView(
        topics=("u", "t"), owned=(), previous=(), generation=-1, mode=RebalanceMode.COOPERATIVE
    )
    request = ComputeAssignment(
        token=1,
        generation=2,
        protocol_name=offered[0].name,
        members=(
            JoinedMember(member_id="a", metadata=offered[0].subscribe(view)),
            JoinedMember(member_id="b", metadata=b"odd"),
        ),
        partitions=(),
        member_id="a",
        waited_ms=0,
    )
    asked = []
    looked_up = Leadership(wanted, offered, lambda topics: asked.append(topics) or {"t": 2})
    subscribed_members.cache_clear()
    computed = looked_up.compute(request)
    assert computed.failure is None
    assert asked == [{"t", "u"}]
    given = dict(computed.assignments)["a"]
    assert decode_assignment(given).partitions == (("t", (0, 1)),)
    assert subscribed_members.cache_info().misses == (policy == "deferred")

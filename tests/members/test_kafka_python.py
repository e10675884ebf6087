"""Assignors for kafka-python's own consumer, without a broker: bytes, protocols, rounds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafka.structs import TopicPartition
from tests.members.plugin_group import Cluster, Group

from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.core.machine.leader.assignor_protocol import ReceivedAssignment
from holdfast.core.machine.leader.designs import COOPERATIVE, CooperativeAssignor, DesignAssignor
from holdfast.core.machine.policy import DESIGNS, Policy
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
)
from holdfast.core.wire.layouts.container import MemberAssignment, encode_member_assignment
from holdfast.errors import ConfigError, LocalProtocolError
from holdfast.members.clients.kafka.assignors import (
    CooperativeSticky,
    KafkaPythonAssignor,
    Range,
    RoundRobin,
    Sticky,
    assignor,
    replica_racks,
)

OPTIONS = {"lag": {"group_id": "g"}}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_every_assignor_of_the_registry_runs_a_group(name):
    """Members come one by one, one dies: never two owners, in the end everything is owned."""
    group = Group(7)
    for member in ("a", "b", "c"):
        group.come(member, assignor(name, **OPTIONS.get(name, {})))
    group.kill("b")
    group.settle()
    assert sorted(p for m in group.members.values() for p in m.partitions()) == list(range(7))


def test_subscription_is_javas_for_javas_name():
    group = Group(4)
    member = group.come("a", CooperativeSticky(rack="r1"))
    group.call()
    group.settle()
    data = group.sent["a"]
    read = decode_subscription(data)
    assert (read.version, read.topics, read.rack) == (3, ("t",), "r1")
    assert read.owned == (("t", (0, 1, 2, 3)),)
    assert read.generation == 1
    assert decode_cooperative_user_data(read.user_data) == 1
    assert ConsumerProtocolSubscription.decode(data).encode() == data
    assert member.partitions() == [0, 1, 2, 3]


def test_sticky_carries_what_it_had_and_since_when():
    group = Group(3)
    group.come("a", Sticky())
    group.call()
    group.settle()
    read = decode_subscription(group.sent["a"])
    assert read.owned == ()
    claim = decode_sticky_user_data(read.user_data)
    assert (claim.partitions, claim.generation) == ((("t", (0, 1, 2)),), 1)


@pytest.mark.parametrize("plain", [Range, RoundRobin])
def test_stateless_assignors_carry_nothing(plain):
    read = decode_subscription(plain().metadata(["t"]))
    assert (read.user_data, read.owned) == (None, ())


def test_state_is_the_instances_own():
    """aiokafka and older kafka-python keep it on the class, so two consumers in one process mix."""
    first, second = Group(2), Group(2)
    first.join("a", CooperativeSticky())
    second.join("a", CooperativeSticky())
    first.settle()
    second.round()
    assert decode_subscription(second.sent["a"]).owned == ()


def test_modes():
    cooperative, eager = RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER
    assert CooperativeSticky().supported_protocols() == [cooperative]
    assert CooperativeSticky(upgrading=True).supported_protocols() == [eager]
    for name, info in ASSIGNORS.items():
        expected = [cooperative] if info.cooperative else [eager]
        assert assignor(name).supported_protocols() == expected
        assert assignor(name, upgrading=True).supported_protocols() == [eager]


def test_an_upgrading_member_claims_nothing_and_a_cooperative_one_what_it_owns():
    """Or a cooperative leader withholds what nobody holds, and nobody asks again."""
    for upgrading, owned in ((True, ()), (False, (("t", (0, 1, 2, 3)),))):
        group = Group(4)
        member = group.come("a", CooperativeSticky(upgrading=upgrading))
        assert member.partitions() == [0, 1, 2, 3]
        assert decode_subscription(member.assignor.metadata(["t"])).owned == owned


@pytest.mark.parametrize("leader", ["a", "c"], ids=["cooperative", "upgrading"])
def test_members_of_the_second_bounce_and_of_the_first_share_a_group(leader):
    """KIP-429: whoever leads, no partition has two owners, and in the end all are owned."""
    group = Group(7)
    for name, upgrading in (("a", False), ("b", False), ("c", True), ("d", True)):
        group.join(name, CooperativeSticky(upgrading=upgrading))
        group.leader = leader
        group.call()
        group.settle()
    group.kill("b")
    group.settle()
    group.come("b", CooperativeSticky())
    assert sorted(len(m.partitions()) for m in group.members.values()) == [1, 2, 2, 2]


def test_what_the_client_gives_up_before_it_joins_is_not_claimed():
    """It drops the partitions of a topic that it is not subscribed to any more (KIP-429)."""
    plain = CooperativeSticky()
    both = AssignmentMessage(partitions=(("t", (0,)), ("u", (1,))), user_data=None)
    plain.on_assignment(ConsumerProtocolAssignment.decode(encode_assignment(both)), 3)
    assert decode_subscription(plain.metadata(["t"])).owned == (("t", (0,)),)
    assert decode_subscription(plain.metadata(["t", "u"])).owned == (("t", (0,)),)


def test_a_lost_member_gets_back_what_nobody_has_had_since():
    group = Group(4)
    member = group.come("a", CooperativeSticky())
    member.lose()
    group.settle()
    assert member.partitions() == [0, 1, 2, 3]


def test_what_a_lost_member_still_claims_may_wait_for_the_next_round():
    """As with kafka-python's own cooperative assignor: the client does not tell it of the loss."""
    group = Group(3)
    for name in ("a", "b"):
        group.come(name, CooperativeSticky())
    lost = next(m for m in group.members.values() if len(m.partitions()) == 2)
    lost.lose()
    newcomer = group.come("c", CooperativeSticky())
    assert newcomer.partitions() == []
    group.call()
    group.settle()
    assert [len(m.partitions()) for m in group.members.values()] == [1, 1, 1]


def test_a_stale_claim_never_beats_a_fresh_one():
    """A member that was away still claims what has a new owner since."""
    group = Group(4)
    group.come("a", CooperativeSticky())
    away = group.kill("a")
    group.come("b", CooperativeSticky())
    assert group.members["b"].partitions() == [0, 1, 2, 3]
    group.come("c", away.assignor)
    # What anybody claims is withheld from others, but the old claim gives c nothing at once.
    assert group.log[2]["c"] == []
    assert len(group.members["b"].partitions()) == len(group.members["c"].partitions()) == 2


def test_a_leader_that_cannot_plan_lets_members_keep_what_they_have(monkeypatch, caplog):
    from holdfast.core.machine.leader import leader_round

    group = Group(4)
    group.join("a", CooperativeSticky())
    group.come("b", CooperativeSticky())
    before = dict(group.log[-1])

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(leader_round, "read_group", broken)
    group.members["b"].rejoin = True
    group.settle()
    assert group.log[-1] == before
    assert "out of luck" in caplog.text


def test_an_announced_round_is_read_and_odd_user_data_of_a_foreign_leader_is_not_fatal(caplog):
    own = (("t", (0,)),)
    announced = encode_member_assignment(MemberAssignment(assigned=own, revoked=()))
    plain = CooperativeSticky()
    plain.on_assignment(ConsumerProtocolAssignment.decode(announced), 4)
    assert decode_subscription(plain.metadata(["t"])).owned == own
    assert caplog.text == ""
    cut = ConsumerProtocolAssignment.decode(announced)
    cut.user_data = cut.user_data[:-1]
    plain.on_assignment(cut, 5)
    assert "odd user data" in caplog.text
    assert decode_subscription(plain.metadata(["t"])).generation == 5


class Remembering(CooperativeAssignor):
    """An assignor of a user, whose leader gives every member a memory to carry."""

    def __init__(self):
        super().__init__(name="remembering")
        object.__setattr__(self, "seen", [])

    __slots__ = ("seen",)

    def subscribe(self, view):
        self.seen.append((view.nonce, view.leader_state))
        return super().subscribe(view)

    def read(self, assignment):
        return ReceivedAssignment(assigned=frozenset(), leader_state=b"m")


def test_an_assignor_of_the_user_carries_its_memory_and_never_joins_twice_with_the_same_nonce():
    mine = Remembering()
    plain = assignor(mine)
    plain.metadata(["t"])
    empty = encode_assignment(AssignmentMessage(partitions=(), user_data=None))
    plain.on_assignment(ConsumerProtocolAssignment.decode(empty), 1)
    plain.metadata(["t"])
    assert mine.seen == [(1, None), (2, b"m")]


def of_rack(rack: str | None) -> SimpleNamespace:
    said = CooperativeSticky(rack=rack).metadata(["t"])
    return SimpleNamespace(metadata=ConsumerProtocolSubscription.decode(said))


def test_racks_reach_the_leader():
    cluster = Cluster({"t": 4}, {1: "x", 2: "y"})
    assert replica_racks(cluster, [of_rack(None)], {}) is None
    assert replica_racks(cluster, [of_rack(None), of_rack("x")], {"t": 4}) == {
        "t": [("x",), ("y",), ("x",), ("y",)]
    }


def test_members_get_partitions_of_their_rack():
    group = Group(4)
    group.cluster = Cluster({"t": 4}, {1: "x", 2: "y"})
    group.join("a", CooperativeSticky(rack="y"))
    group.come("b", CooperativeSticky(rack="x"))
    assert group.log[-1] == {"a": [1, 3], "b": [0, 2]}


def test_lags_reach_the_leader():
    lag = [90, 1, 1, 80]
    group = Group(4)
    for name in ("a", "b"):
        group.come(name, assignor("lag", lags=lambda _: {"t": lag}, group_id="g"))
    assert sorted(sum(lag[p] for p in own) for own in group.log[-1].values()) == [81, 91]


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: assignor("stiky"), "did you mean"),
        (lambda: assignor("range", speed=1), "unknown option 'speed'"),
        (lambda: assignor(CooperativeAssignor(), speed=1), "it takes no options, found speed"),
        (
            lambda: assignor(CooperativeAssignor(rebalance_protocols=COOPERATIVE), upgrading=True),
            "upgrading: cooperative-sticky does not run eager",
        ),
    ],
)
def test_bad_settings_are_refused(call, word):
    with pytest.raises(ConfigError, match=word):
        call()


@pytest.mark.parametrize(
    ("protocol", "policy"),
    [
        ("holdfast-simple", "holdfast-simple"),
        ("holdfast-deferred", "deferred"),
        ("holdfast-incremental", "incremental"),
    ],
)
def test_a_design_is_refused_with_what_to_use_instead(protocol, policy):
    instead = rf"holdfast\.kafka\.KafkaConsumer\(\.\.\., holdfast_policy='{policy}'\)"
    for given in (protocol, DesignAssignor(Policy(design=DESIGNS[protocol]))):
        with pytest.raises(ConfigError, match=instead):
            assignor(given)


def test_lag_wants_the_group_for_its_last_tie_break():
    with pytest.raises(LocalProtocolError, match=r"give assignor\('lag', group_id=\.\.\.\)"):
        assignor("lag").metadata({"t"})
    assert assignor("lag", group_id="etl").metadata({"t"})


def test_an_unknown_topic_of_a_member_has_no_partitions():
    plain: KafkaPythonAssignor = CooperativeSticky()
    said = ConsumerProtocolSubscription.decode(plain.metadata(["nowhere"]))
    member = SimpleNamespace(member_id="a", group_instance_id=None, metadata=said)
    plan = plain.assign(Cluster({"t": 4}), [member])
    assert ConsumerProtocolAssignment.decode(plan["a"]).partitions() == []
    assert TopicPartition("nowhere", 0) not in plan

"""Plug-ins for kafka-python, without a broker: bytes, modes, rounds, designs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafka.structs import TopicPartition
from tests.adapters.plugin_group import Cluster, Group

from holdfast.adapters import kafka_python_attach
from holdfast.adapters.cluster.broker_lags import BrokerLags
from holdfast.adapters.kafka_python import (
    Attached,
    CooperativeSticky,
    Deferred,
    HoldfastSimple,
    Incremental,
    PluginAssignor,
    Range,
    RoundRobin,
    Sticky,
    assignor,
    replica_racks,
)
from holdfast.assignors.registry import ASSIGNORS
from holdfast.errors import ConfigError, LocalProtocolError
from holdfast.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    decode_subscription,
    encode_assignment,
)
from holdfast.wire.layouts.container import MemberAssignment, encode_member_assignment
from holdfast.wire.layouts.frames import Leaving
from holdfast.wire.layouts.sticky_user_data import (
    decode_cooperative_user_data,
    decode_sticky_user_data,
)

DESIGNS = {
    "holdfast-simple": lambda group: HoldfastSimple(),
    "deferred": lambda group: timed(Deferred(delay_ms=30_000), group),
    "incremental": lambda group: timed(
        Incremental(delay_ms=30_000, batch=2, interval_ms=1_000), group
    ),
}


def timed(plugin: PluginAssignor, group: Group) -> PluginAssignor:
    """The plug-in reads the group's clock."""
    plugin._clock = group.clock
    return plugin


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_every_assignor_of_the_registry_runs_a_group(name):
    """Members come one by one, one dies: never two owners, in the end everything is owned."""
    group = Group(7)
    eager = not ASSIGNORS[name].cooperative
    for member in ("a", "b", "c"):
        group.join(member, assignor(name), eager=eager)
        for other in group.members.values():
            other.rejoin = True
        group.settle()
    group.kill("b")
    group.settle()
    assert sorted(p for m in group.members.values() for p in m.partitions()) == list(range(7))


def test_subscription_is_javas_for_javas_name():
    group = Group(4)
    member = group.join("a", CooperativeSticky(rack="r1"))
    group.settle()
    group.members["a"].rejoin = True
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
    group.join("a", Sticky(), eager=True)
    group.settle()
    group.members["a"].rejoin = True
    group.settle()
    read = decode_subscription(group.sent["a"])
    assert read.owned == ()
    claim = decode_sticky_user_data(read.user_data)
    assert (claim.partitions, claim.generation) == ((("t", (0, 1, 2)),), 1)


@pytest.mark.parametrize("plugin", [Range, RoundRobin])
def test_stateless_assignors_carry_nothing(plugin):
    read = decode_subscription(plugin().metadata(["t"]))
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
    assert CooperativeSticky(upgrading=True).supported_protocols() == [cooperative, eager]
    assert Deferred().supported_protocols() == [cooperative]
    for name, info in ASSIGNORS.items():
        expected = [cooperative] if info.cooperative else [eager]
        assert assignor(name).supported_protocols() == expected


def test_upgrading_needs_to_know_the_mode():
    with pytest.raises(LocalProtocolError, match=r"call attach\(consumer\)"):
        CooperativeSticky(upgrading=True).metadata(["t"])


def test_eager_mode_claims_nothing():
    """Or a cooperative leader withholds what nobody holds, and nobody asks again."""
    group = Group(4)
    plugin = CooperativeSticky(upgrading=True)
    member = group.join("a", plugin, eager=True)
    group.settle()
    assert member.partitions() == [0, 1, 2, 3]
    assert decode_subscription(plugin.metadata(["t"])).owned == ()
    member.eager = False
    assert decode_subscription(plugin.metadata(["t"])).owned == (("t", (0, 1, 2, 3)),)


def test_a_loss_leaves_no_claim():
    group = Group(4)
    plugin = CooperativeSticky()
    member = group.join("a", plugin)
    group.settle()
    member.owned.clear()  # the client drops its partitions
    plugin.forget()
    read = decode_subscription(plugin.metadata(["t"]))
    assert (read.owned, read.generation) == ((), -1)


def test_a_stale_claim_never_beats_a_fresh_one():
    """K3: a member that was away still claims what has a new owner since."""
    group = Group(4)
    group.join("a", CooperativeSticky())
    group.settle()
    away = group.kill("a")
    group.join("b", CooperativeSticky())
    group.settle()
    assert group.members["b"].partitions() == [0, 1, 2, 3]
    late = CooperativeSticky()
    late._memory.last = frozenset(("t", p) for p in range(4))
    late._memory.generation = away.assignor._memory.generation
    group.join("c", late, attached=False)
    group.settle()
    # What anybody claims is withheld from others, but the old claim gives c nothing at once.
    assert group.log[2]["c"] == []
    assert len(group.members["b"].partitions()) == len(group.members["c"].partitions()) == 2


@pytest.mark.parametrize("plugin", [CooperativeSticky, HoldfastSimple, Deferred, Sticky])
def test_a_claim_of_a_generation_that_cannot_exist_takes_nothing(plugin):
    group = Group(6)
    for name in ("a", "b"):
        group.join(name, plugin())
        group.settle()
    before = {name: member.partitions() for name, member in group.members.items()}
    liar = plugin()
    liar._memory.last = frozenset(("t", p) for p in range(6))
    liar._memory.generation = 10**6
    member = group.join("c", liar)
    member.held = lambda: {TopicPartition("t", p) for p in range(6)}  # so it says
    group.members["a"].rejoin = group.members["b"].rejoin = True
    group.round()
    for name in ("a", "b"):
        kept = group.members[name].partitions()
        assert len(kept) == 2  # its share of a group of three
        assert set(kept) < set(before[name])


@pytest.mark.parametrize("plugin", [CooperativeSticky, HoldfastSimple, Deferred])
def test_a_leader_knows_what_it_gave_to_whom_in_the_last_round(plugin):
    """A member that claims what others own, under the last generation, would stop all of them."""
    group = Group(6)
    for name in ("a", "b", "c"):
        group.join(name, plugin())
        group.settle()
    before = {name: member.partitions() for name, member in group.members.items()}
    liar = group.members["c"]
    liar.held = lambda: {TopicPartition("t", p) for p in range(6)}  # so it says
    for _ in range(3):
        group.members["a"].rejoin = True
        group.round()
        assert {name: group.members[name].partitions() for name in "abc"} == before


def test_without_attach_the_last_assignment_counts():
    group = Group(4)
    group.join("a", CooperativeSticky(), attached=False)
    group.join("b", CooperativeSticky(), attached=False)
    group.settle()
    group.join("c", CooperativeSticky(), attached=False)
    for member in group.members.values():
        member.rejoin = True
    group.settle()
    assert sorted(len(m.partitions()) for m in group.members.values()) == [1, 1, 2]


@pytest.mark.parametrize("plugin", [HoldfastSimple, Deferred, Incremental])
def test_designs_need_attach(plugin):
    with pytest.raises(LocalProtocolError, match=r"call attach\(consumer\)"):
        plugin().metadata(["t"])


def test_an_assignor_belongs_to_one_consumer():
    group = Group()
    plugin = CooperativeSticky()
    group.join("a", plugin)
    with pytest.raises(LocalProtocolError, match="belongs to one consumer"):
        group.join("b", plugin)


@pytest.mark.parametrize("design", sorted(DESIGNS))
def test_designs_balance_members_that_come_one_by_one(design):
    group = Group(6)
    for name in ("a", "b", "c"):
        group.join(name, DESIGNS[design](group))
        for other in group.members.values():
            other.rejoin = True
        group.settle()
        for _ in range(40):  # Design III moves in batches
            group.advance(1.1)
            group.settle()
    assert sorted(len(m.partitions()) for m in group.members.values()) == [2, 2, 2]


@pytest.mark.parametrize("victim", ["a", "c"], ids=["leader", "follower"])
@pytest.mark.parametrize("design", ["deferred", "incremental"])
def test_a_member_back_in_time_gets_exactly_what_it_had(design, victim):
    """Whoever led: the memory travels through the members."""
    group = three_settled(design)
    assert group.leader == "a"
    before = {name: member.partitions() for name, member in group.members.items()}
    group.kill(victim)
    group.settle()
    survivors = {n: p for n, p in before.items() if n != victim}
    assert {n: m.partitions() for n, m in group.members.items()} == survivors
    group.advance(12)
    group.settle()
    group.join("back", DESIGNS[design](group))
    group.members["back"].rejoin = True
    group.settle()
    assert group.members["back"].partitions() == before[victim]
    assert {n: m.partitions() for n, m in group.members.items() if n != "back"} == survivors


@pytest.mark.parametrize("victim", ["a", "c"], ids=["leader", "follower"])
def test_a_member_that_stays_away_is_replaced_when_the_delay_is_over(victim):
    group = three_settled("deferred")
    group.kill(victim)
    group.settle()
    group.advance(29)
    group.settle()
    assert sum(len(m.partitions()) for m in group.members.values()) == 4
    group.advance(1.5)
    group.settle()
    assert sorted(len(m.partitions()) for m in group.members.values()) == [3, 3]


def test_a_second_leader_inherits_what_remains_of_the_delay():
    group = three_settled("deferred")
    group.kill("c")
    group.settle()
    group.advance(10)
    group.kill("a")
    group.settle()
    due = group.members["b"].due
    assert due is not None
    assert due - group.now == pytest.approx(20, abs=0.2)


def three_settled(design: str) -> Group:
    group = Group(6)
    for name in ("a", "b", "c"):
        group.join(name, DESIGNS[design](group))
    for _ in range(10):
        group.settle()
        group.advance(1.1)
    group.settle()
    assert sorted(len(m.partitions()) for m in group.members.values()) == [2, 2, 2]
    return group


def test_a_member_that_leaves_for_good_says_so():
    group = Group(6)
    for name in ("a", "b", "c"):
        plugin = Deferred(delay_ms=30_000, clean_leave="immediate")
        group.join(name, timed(plugin, group))
    group.settle()
    leaving = group.members["c"]
    leaving.assignor.announce(Leaving.FOR_GOOD)
    leaving.rejoin = True
    for _ in range(5):
        if group.members["c"].rejoin or any(m.rejoin for m in group.members.values()):
            group.round()
    assert leaving.partitions() == []
    group.kill("c")
    group.settle()
    assert sorted(len(m.partitions()) for m in group.members.values()) == [3, 3]


def test_a_follower_that_joins_again_sends_other_bytes():
    """With the same bytes the coordinator would start no round."""
    plugin = Deferred()
    group = Group()
    group.join("a", plugin)
    assert plugin.metadata(["t"]) != plugin.metadata(["t"])


def test_a_leader_that_cannot_plan_lets_members_keep_what_they_have(monkeypatch, caplog):
    from holdfast.machine.leader import leader_turn

    group = Group(4)
    group.join("a", CooperativeSticky())
    group.join("b", CooperativeSticky())
    group.settle()
    before = dict(group.log[-1])

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(leader_turn, "read_group", broken)
    group.members["b"].rejoin = True
    group.settle()
    assert group.log[-1] == before
    assert "out of luck" in caplog.text


def test_odd_user_data_of_a_foreign_leader_is_not_fatal(caplog):
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    plugin = Deferred()
    group = Group()
    group.join("a", plugin)
    plugin.on_assignment(ConsumerProtocolAssignment(1, [("t", [0])], b"json?"), 5)
    assert "odd user data" in caplog.text
    assert decode_subscription(plugin.metadata(["t"])).generation == 5


def test_racks_reach_the_leader():
    cluster = Cluster({"t": 4}, {1: "x", 2: "y"})
    member = lambda rack: type(  # noqa: E731
        "M",
        (),
        {
            "metadata": ConsumerProtocolSubscription.decode(
                CooperativeSticky(rack=rack).metadata(["t"])
            )
        },
    )
    assert replica_racks(cluster, [member(None)]) is None
    assert replica_racks(cluster, [member(None), member("x")]) == {
        "t": [("x",), ("y",), ("x",), ("y",)]
    }


def test_members_get_partitions_of_their_rack():
    group = Group(4)
    group.cluster = Cluster({"t": 4}, {1: "x", 2: "y"})
    group.join("a", CooperativeSticky(rack="y"))
    group.join("b", CooperativeSticky(rack="x"))
    group.settle()
    assert group.log[-1] == {"a": [1, 3], "b": [0, 2]}


def test_lags_reach_the_leader():
    group = Group(4)
    for name in ("a", "b"):
        group.join(name, assignor("lag", lags=lambda _: {"t": [90, 1, 1, 80]}), eager=True)
    group.settle()
    lag = [90, 1, 1, 80]
    assert sorted(sum(lag[p] for p in own) for own in group.log[-1].values()) == [81, 91]


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: assignor("stiky"), "did you mean"),
        (lambda: assignor("range", speed=1), "unknown option 'speed'"),
        (lambda: Deferred(delay_ms=-1), "delay_ms"),
        (lambda: Incremental(batch=0), "batch"),
        (lambda: Deferred(omit_unchanged=True), "omit_unchanged"),
    ],
)
def test_bad_settings_are_refused(call, word):
    with pytest.raises(ConfigError, match=word):
        call()


def test_attach_refuses_what_it_was_not_tested_with(monkeypatch):
    consumer = SimpleNamespace(config={"group_id": None})
    monkeypatch.setattr(kafka_python_attach.kafka, "__version__", "9.0.1")
    with pytest.raises(ConfigError, match=r"kafka-python 9\.0\.1 was not tested .*3\.0\.12"):
        kafka_python_attach.attach(consumer)
    with pytest.raises(ConfigError, match="no group_id"):
        kafka_python_attach.attach(consumer, allow_untested=True)
    again = SimpleNamespace(config={"group_id": "g"}, _holdfast_attached=True)
    with pytest.raises(LocalProtocolError, match="attached already"):
        kafka_python_attach.attach(again, allow_untested=True)


def test_rounds_that_are_announced_are_paced_as_those_of_our_own_members():
    group = Group(2)
    plugin = CooperativeSticky()
    member = group.join("a", plugin)
    own = (("t", (0,)),)
    announced = encode_member_assignment(MemberAssignment(assigned=own, revoked=()))
    settled = encode_assignment(AssignmentMessage(partitions=own, user_data=None))

    def pauses(*messages: bytes) -> list[int | None]:
        member.pauses_ms.clear()
        member.rejoin = False
        for data in messages:
            plugin.on_assignment(ConsumerProtocolAssignment.decode(data), 1)
        assert not member.rejoin  # never at once
        return list(member.pauses_ms)

    growing = [50, 100, 200, 400, 800, 1_600, 3_000, 3_000]
    assert pauses(*[announced] * 8) == growing
    assert pauses(settled, announced) == [None, 50]
    plugin.forget()
    assert pauses(announced) == [50]


class AttachedMember:
    """As much of an attached consumer as plug-ins use; made for several of them."""

    def __init__(self, *, eager=False):
        self.shared = None
        self.eager = eager
        self.owned = set()

    def is_eager(self):
        return self.eager

    def held(self):
        return set(self.owned)

    def rack(self):
        return None

    def generation(self):
        return 5

    def group_id(self):
        return "etl"

    def auto_offset_reset(self):
        return "earliest"

    def heartbeat_interval_ms(self):
        return 3_000

    def rejoin_after(self, delay_ms):
        pass

    def ms_until_rejoin(self):
        return None

    def remembered(self, own):
        self.shared = self.shared or own
        return self.shared


def given(*partitions):
    message = AssignmentMessage(partitions=(("t", partitions),), user_data=None)
    return ConsumerProtocolAssignment.decode(encode_assignment(message))


def test_plug_ins_of_one_consumer_share_the_last_assignment():
    """The client tells only the chosen one; when the group changes, the other one must know."""
    member = AttachedMember()
    member.owned = {TopicPartition("t", 0), TopicPartition("t", 1)}
    chosen, other = CooperativeSticky(), assignor("holdfast-deferred")
    for plugin in (chosen, other):
        plugin.bind(member)
    chosen.on_assignment(given(0, 1), 5)
    read = decode_subscription(other.metadata(["t"]))
    assert (read.owned, read.generation) == ((("t", (0, 1)),), 5)


def test_an_eager_plug_in_of_two_keeps_its_claims_over_a_loss_and_a_change_of_assignor():
    member = AttachedMember(eager=True)
    plain, sticky, cooperative = Range(), Sticky(), CooperativeSticky(upgrading=True)
    for plugin in (plain, sticky, cooperative):
        plugin.bind(member)
    plain.on_assignment(given(0, 1), 5)
    for plugin in (plain, sticky, cooperative):
        plugin.forget()
    claim = decode_sticky_user_data(decode_subscription(sticky.metadata(["t"])).user_data)
    assert (claim.partitions, claim.generation) == ((("t", (0, 1)),), 5)
    lost = decode_subscription(cooperative.metadata(["t"]))
    assert (lost.owned, lost.generation) == ((), -1)


def test_lag_takes_group_and_reset_from_its_consumer():
    lags = BrokerLags(None, None, "latest")
    plugin = assignor("lag", lags=lags)
    plugin.bind(AttachedMember(eager=True))
    assert plugin.spoken.options == {"group_id": "etl"}
    assert lags.reset == "earliest"
    own = assignor("lag", group_id="mine")
    own.bind(AttachedMember(eager=True))
    assert own.spoken.options == {"group_id": "mine"}


@pytest.mark.parametrize("given", ["earliest", "smallest", "latest", "largest"])
def test_the_old_names_of_auto_offset_reset_are_understood(given):
    consumer = SimpleNamespace(
        _coordinator=SimpleNamespace(_assignors={}), config={"auto_offset_reset": given}
    )
    attached = Attached.__new__(Attached)
    attached.consumer = consumer
    assert attached.auto_offset_reset() in ("earliest", "latest")
    assert (attached.auto_offset_reset() == "earliest") == (given in ("earliest", "smallest"))


def test_options_of_a_design_are_checked_when_it_is_made():
    with pytest.raises(ConfigError, match="unknown option 'delay'; did you mean delay_ms"):
        assignor("holdfast-deferred", delay=3)
    assert assignor("holdfast-deferred", delay_ms=3).spoken.policy.delay_ms == 3
    assert Deferred(upgrading=True).supported_protocols()[-1] is RebalanceProtocol.EAGER


def test_lag_without_attach_wants_the_group_for_its_last_tie_break():
    with pytest.raises(LocalProtocolError, match=r"attach\(consumer\) first, or .*group_id"):
        assignor("lag").metadata({"t"})
    assert assignor("lag", group_id="etl").metadata({"t"})

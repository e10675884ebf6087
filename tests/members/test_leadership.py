"""From a configuration to a member's protocols, and to the plans of its leader."""

import threading
from dataclasses import replace
from functools import partial

import pytest
from tests.live.waiting import until
from tests.members.configured import NEEDED, keys
from tests.members.configured import settings_of as settings
from tests.members.plugin_group import Group as PluginGroup
from tests.members.worker_group import round_of

import holdfast
from holdfast import Consumer, Worker
from holdfast.cluster.lookup import FoundTopics
from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.leader.assignor_protocol import MemberView, RebalanceProtocol
from holdfast.core.machine.leader.designs import EagerAssignor
from holdfast.core.machine.policy import When
from holdfast.core.model.group import Group
from holdfast.core.wire.layouts.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_subscription,
)
from holdfast.errors import ClientError, ConfigError, PlanError
from holdfast.members.clients.aiokafka import assignors as aiokafka_assignors
from holdfast.members.clients.kafka import assignors as kafka_assignors
from holdfast.members.config.own_assignors import resolve
from holdfast.members.config.policy import assignors_of
from holdfast.members.runtime.leader_planner import LeaderPlanner, LeaderWarnings
from holdfast.members.runtime.member_status import MemberLog


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_every_assignor_is_offered_in_its_own_mode(name):
    (offered,) = assignors_of(settings(partition_assignment_strategy=name))
    assert offered.name == name
    assert (RebalanceProtocol.COOPERATIVE in offered.rebalance_protocols) == ASSIGNORS[
        name
    ].cooperative


@pytest.mark.parametrize("name", [n for n, info in ASSIGNORS.items() if info.cooperative])
def test_a_cooperative_assignor_is_refused_under_the_eager_policy(name):
    wanted = settings(
        holdfast_policy="eager", partition_assignment_strategy=["range", name, "sticky"]
    )
    with pytest.raises(ConfigError, match=r"needs holdfast\.policy=simple"):
        assignors_of(wanted)


def plan(leadership, members, partitions, topics=("t",)):
    """Who gets what, by a leader of these members."""
    sent = {
        name: encode_subscription(
            Subscription(version=3, topics=topics, user_data=None, owned=(), rack=rack)
        )
        for name, rack in members
    }
    computed = leadership.compute(round_of("range", sent, partitions))
    assert computed.failure is None
    return {
        name: [p for _, parts in owned for p in parts] for name, owned in given(computed).items()
    }


def leadership(**lookups):
    wanted = settings(holdfast_policy="eager")
    return LeaderPlanner(
        wanted, assignors_of(wanted), lambda topics: FoundTopics(counts={"t": 4}), **lookups
    )


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
        raise ClientError("no broker answered")

    plans = plan(leadership(find_racks=broken), [("m1", "a"), ("m2", "b")], (("t", 4),))
    assert plans == {"m1": [0, 1], "m2": [2, 3]}
    assert "no broker answered" in caplog.text


def test_a_plan_says_with_which_counts_it_was_made():
    """The watch may have found more by the time the plan is ready."""
    request = asking("deferred", ("m1", ("t", "gone"), ()), ("m2", ("u",), ()))
    led = leading("deferred", FoundTopics(counts={"t": 4, "u": 1, "other": 7}))
    assert led.compute(request).partitions == (("gone", 0), ("t", 4), ("u", 1))


@pytest.mark.parametrize("missing", [(), ("gone",)])
def test_a_leader_reads_every_subscription_once(monkeypatch, missing):
    from holdfast.core.machine.leader import leader_round

    real, reads = leader_round.decode_subscriptions, []

    def counted(messages, table, *, cooperative):
        reads.append(len(messages))
        return real(messages, table, cooperative=cooperative)

    monkeypatch.setattr(leader_round, "decode_subscriptions", counted)
    topics = ("t", *missing)
    assert plan(leadership(), [("m1", None), ("m2", None)], (), topics) == {
        "m1": [0, 1],
        "m2": [2, 3],
    }
    assert reads == [2]


@pytest.mark.parametrize("policy", ["simple", "deferred"])
def test_the_topics_of_every_kind_of_assignor_come_from_one_reading(policy, monkeypatch):
    from holdfast.core.machine.leader import subscriptions

    real, reads = subscriptions.read_subscribed_member, []

    def counted(member_id, *arguments, **named):
        reads.append(member_id)
        return real(member_id, *arguments, **named)

    monkeypatch.setattr(subscriptions, "read_subscribed_member", counted)
    wanted = settings(holdfast_policy=policy)
    offered = assignors_of(wanted)
    view = MemberView(topics=("u", "t"), owned=(), previous=(), generation=-1)
    request = round_of(offered[0].name, {"a": offered[0].subscribe(view), "b": b"odd"})
    asked = []
    looked_up = LeaderPlanner(
        wanted, offered, lambda topics: asked.append(topics) or FoundTopics(counts={"t": 2})
    )
    computed = looked_up.compute(request)
    assert computed.failure is None
    assert asked == [{"t", "u"}]
    assert given(computed)["a"] == (("t", (0, 1)),)
    assert reads == (["a", "b"] if policy == "deferred" else [])


SPOKEN = {
    policy: assignors_of(settings(holdfast_policy=policy)) for policy in ("simple", "deferred")
}


def asking(policy, *members):
    """A round of members (id, topics, owned partitions of t)."""
    (spoken,) = SPOKEN[policy]
    views = {
        name: MemberView(
            topics=topics, owned=tuple(("t", p) for p in owned), previous=(), generation=1
        )
        for name, topics, owned in members
    }
    sent = {name: spoken.subscribe(view) for name, view in views.items()}
    return round_of(spoken.name, sent, (("t", 4),))


def given(computed):
    return {name: decode_assignment(data).partitions for name, data in computed.assignments}


def leading(policy, count):
    """A leader that learns of topics by a function, or always the same."""
    look = count if callable(count) else lambda _: count
    return LeaderPlanner(settings(holdfast_policy=policy), SPOKEN[policy], look)


HONEST = (("a", ("t",), (0, 1)), ("b", ("t",), (2, 3)))


def of_ours(caplog):
    """What holdfast logged; a client of an earlier test may still log that nobody answers."""
    return [r.getMessage() for r in caplog.records if r.name.startswith("holdfast")]


@pytest.mark.parametrize("policy", SPOKEN)
@pytest.mark.parametrize("code", [3, 17, 29])
def test_a_topic_that_cannot_be_described_costs_nobody_else_anything(policy, code, caplog):
    leadership = leading(policy, FoundTopics(counts={"t": 4}, refused={"payroll": code}))
    request = asking(policy, *HONEST, ("z", ("payroll",), ()))
    computed = leadership.compute(request)
    assert computed.failure is None
    assert given(computed) == {"a": (("t", (0, 1)),), "b": (("t", (2, 3)),), "z": ()}
    (record,) = caplog.records
    assert "topic 'payroll' gets no owner in this round" in record.getMessage()
    assert ErrorCode(code).name in record.getMessage()
    assert record.getMessage().endswith("subscribed by 'z'")
    leadership.compute(request)
    assert len(caplog.records) == 1  # told once
    leadership.compute(asking(policy, *HONEST, ("y", ("payroll",), ()), ("z", ("payroll",), ())))
    assert of_ours(caplog)[-1].endswith("subscribed by 'y', 'z'")
    leadership.compute(asking(policy, *HONEST))
    leadership.compute(request)
    assert len(caplog.records) == 3  # it was gone meanwhile


def test_a_topic_of_the_leaders_own_that_does_not_exist_is_reported_by_its_own_look(caplog):
    found = FoundTopics(counts={"t": 4}, refused={"oders": 3, "payroll": 29})
    mine, other = ("a", ("oders", "payroll", "t"), ()), ("z", ("oders",), ())
    leading("simple", found).compute(asking("simple", mine, other))
    (told,) = of_ours(caplog)
    assert "'payroll'" in told
    leading("simple", found).compute(asking("simple", ("a", ("t", "payroll"), ()), other))
    assert any("'oders' gets no owner" in line for line in of_ours(caplog)[1:])


def test_ten_thousand_names_and_a_long_one_do_not_fill_the_log(caplog):
    names = ("x" * 30_000, *(f"n{i}" for i in range(2_000)))

    def count(topics):
        return FoundTopics(counts={"t": 4}, refused=dict.fromkeys(topics - {"t"}, 29))

    computed = leading("simple", count).compute(asking("simple", *HONEST, ("z", names, ())))
    assert given(computed)["a"] == (("t", (0, 1)),)
    told = of_ours(caplog)
    assert len(told) == 11
    assert "1991 more topics" in told[-1]
    long_one = LeaderWarnings(settings(), MemberLog(settings()))
    long_one.log_left_out({names[0]: 29}, asking("simple", ("z", names[:1], ())).members, "a")
    assert len(of_ours(caplog)[-1]) < 600


@pytest.mark.parametrize("policy", SPOKEN)
@pytest.mark.parametrize(
    "error", [ClientError("no broker answered"), TimeoutError(), KeyError("t")]
)
def test_a_leader_that_cannot_ask_lets_everybody_keep_what_it_claims(policy, error, caplog):
    def count(topics):
        raise error

    computed = leading(policy, count).compute(asking(policy, *HONEST, ("z", ("u",), ())))
    assert type(error).__name__ in computed.failure
    assert given(computed) == {"a": (("t", (0, 1)),), "b": (("t", (2, 3)),), "z": ()}
    assert bool(caplog.records) == isinstance(error, KeyError)  # a bug of ours has a traceback


def test_a_count_of_zero_is_asked_for_again_and_is_no_topic():
    asked = []

    def count(topics):
        asked.append(topics)
        return FoundTopics(counts={"t": 4}, refused={"u": 3})

    request = asking("simple", *HONEST, ("z", ("u",), ()))
    leading("simple", count).compute(replace(request, partitions=(("t", 4), ("u", 0))))
    assert asked == [{"t", "u"}]


JAVA = "org.apache.kafka.clients.consumer."


@pytest.mark.parametrize(
    ("written", "offered"),
    [
        (f"{JAVA}StickyAssignor", ["sticky"]),
        (f"{JAVA}CooperativeStickyAssignor,{JAVA}RangeAssignor", ["cooperative-sticky", "range"]),
        ([f"{JAVA}RoundRobinAssignor", "range"], ["roundrobin", "range"]),
        ("holdfast-deferred,cooperative-sticky", ["holdfast-deferred", "cooperative-sticky"]),
        (["holdfast-deferred", "range"], ["holdfast-deferred", "range"]),
    ],
)
def test_a_list_is_offered_as_it_is_written(written, offered):
    made = assignors_of(settings(partition_assignment_strategy=written))
    assert [a.name for a in made] == offered


@pytest.mark.parametrize(
    ("policy", "listed", "words"),
    [
        ("eager", "cooperative-sticky", r"holdfast\.policy=eager contradicts .*cooperative-sticky"),
        ("eager", "holdfast-simple", r"holdfast\.policy=eager contradicts"),
        ("eager-sticky", "range", r"holdfast\.policy=eager-sticky contradicts"),
        ("simple", "range", r"holdfast\.policy=simple contradicts"),
        ("deferred", "cooperative-sticky,range", "lacks holdfast-deferred"),
        ("deferred", "holdfast-incremental", "lacks holdfast-deferred"),
        ("deferred", "rnage", "unknown assignor 'rnage'; did you mean range"),
    ],
)
def test_a_policy_and_a_list_that_contradict_each_other_are_refused_at_construction(
    policy, listed, words
):
    config = {
        **NEEDED,
        "holdfast.policy": policy,
        "partition.assignment.strategy": listed,
    }
    with pytest.raises(ConfigError, match=words):
        Consumer(config)


@pytest.mark.parametrize("make", [Consumer, partial(Worker, resources={"k": 1})])
def test_assignors_that_share_no_rebalance_protocol_are_refused_at_construction(make):
    cooperative = frozenset({RebalanceProtocol.COOPERATIVE})
    two = [EagerAssignor("sticky", rebalance_protocols=cooperative), EagerAssignor("range")]
    with pytest.raises(ConfigError, match="sticky, range share no rebalance protocol"):
        make({**NEEDED, "partition.assignment.strategy": two})


def test_a_policy_beside_a_list_that_has_it_is_no_contradiction():
    both = settings(
        holdfast_policy="deferred",
        partition_assignment_strategy="holdfast-deferred,range",
        holdfast_target_assignor="lag-sticky",
    )
    design, other = assignors_of(both)
    assert (design.policy.assignor, other.name) == ("lag-sticky", "range")


class Mine(EagerAssignor):
    """An assignor of a user: range, in the other order of preference."""

    def __init__(self):
        super().__init__("range")


def broken_factory():
    raise OSError("no licence")


@pytest.mark.parametrize(
    "written",
    [Mine, Mine(), f"{__name__}.Mine", f"{__name__}:Mine", [f"{__name__}:Mine", "sticky"]],
)
def test_a_users_own_assignor_is_taken_by_every_client(written):
    first = written[0] if isinstance(written, list) else written
    mine = Consumer({**NEEDED, "partition.assignment.strategy": written}).assignors[0]
    assert isinstance(mine, Mine)
    worker = Worker({**NEEDED, "partition.assignment.strategy": [first]}, {"k": 1})
    assert [type(a) for a in worker.assignors] == [Mine]
    assert isinstance(kafka_assignors.assignor(first).protocol, Mine)
    assert isinstance(aiokafka_assignors.assignor(first).protocol, Mine)


def everything_to_the_first(members, topics, claims):
    return {(t, p): min(members) for t, numbers in topics.items() for p in numbers}


FIRST = holdfast.assignor("first", everything_to_the_first)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (FIRST, "first"),
        (f"{__name__}:FIRST", "first"),
        (f"{__name__}:everything_to_the_first", "everything_to_the_first"),
        (everything_to_the_first, "everything_to_the_first"),
        (lambda: FIRST, "first"),
    ],
)
def test_a_function_of_the_user_is_taken_by_every_client(written, name):
    config = {**NEEDED, "partition.assignment.strategy": [written]}
    (mine,) = Consumer(config).assignors
    assert (mine.name, mine.rebalance_protocols) == (name, {RebalanceProtocol.EAGER})
    for make in (Consumer, lambda c: Worker(c, {"k": 1})):
        design = make({**config, "holdfast.policy": "incremental"}).assignors[0]
        assert (design.name, design.policy.assignor.name) == ("holdfast-incremental", name)
    design = Consumer({**NEEDED, "holdfast.policy": "deferred", TARGET: written}).assignors[0]
    assert design.policy.assignor.name == name
    assert kafka_assignors.assignor(written).protocol.name == name
    assert aiokafka_assignors.assignor(written).protocol.name == name


TARGET = "holdfast.target.assignor"


def test_a_target_in_bytes_is_refused():
    with pytest.raises(ConfigError, match="computes no targets for others"):
        Consumer({**NEEDED, "holdfast.policy": "deferred", TARGET: f"{__name__}:Mine"})


def test_a_worker_leaves_kinds_to_a_function_of_the_user():
    config = {**NEEDED, "partition.assignment.strategy": [FIRST]}
    for more in ({"holdfast.isolate": True}, {"holdfast.kinds": {"k": {"weight": 2}}}):
        with pytest.raises(ConfigError, match="assignor first: it alone decides"):
            Worker({**config, **more}, {"k": 1})


def test_a_cooperative_function_goes_into_no_stock_aiokafka():
    own = replace(FIRST, cooperative=True)
    with pytest.raises(ConfigError, match="first is cooperative"):
        aiokafka_assignors.assignor(own)
    assert kafka_assignors.assignor(own).protocol.row.cooperative


def test_a_function_that_is_late_fails_the_plan_and_is_not_asked_again_before_it_ends():
    go, done = threading.Event(), threading.Event()

    def slow(members, topics, claims):
        go.wait(10)
        done.set()
        return everything_to_the_first(members, topics, claims)

    own = resolve(holdfast.assignor("slow", slow, timeout_ms=20))
    group = Group.from_dict({"partitions": {"t": 1}, "members": [{"id": "a", "topics": ["t"]}]})
    with pytest.raises(PlanError, match="slow: its function gave no answer within 20 ms"):
        holdfast.assign(group, own)
    with pytest.raises(PlanError, match="slow: its function still works on an earlier round"):
        holdfast.assign(group, own)
    go.set()
    assert done.wait(10)
    until(lambda: not own.plan.is_busy, "the function to end")
    assert holdfast.assign(group, own).to_dict() == {"a": {"t": [0]}}


def test_a_failed_plan_of_the_user_ends_as_every_failed_plan_does():
    """Members of a cooperative group keep what they claim."""
    own = holdfast.assignor("mine", lambda members, topics, claims: {}, cooperative=True)
    group = PluginGroup(4)
    for name in ("a", "b"):
        group.join(name, kafka_assignors.assignor(replace(FIRST, cooperative=True)))
    group.settle()
    assert group.log[-1] == {"a": [0, 1, 2, 3], "b": []}
    for member in group.members.values():
        member.assignor.protocol = replace(member.assignor.protocol, own=own)
    group.call()
    group.settle()
    assert group.log[-1] == {"a": [0, 1, 2, 3], "b": []}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("nowhere.at.all", "no factory: No module named 'nowhere'"),
        (f"{__name__}.absent", "no factory"),
        (f"{JAVA}StikyAssignor", rf"did you mean {JAVA}StickyAssignor"),
        (f"{__name__}.broken_factory", "its factory raised OSError"),
        (object(), "object has no name, rebalance_protocols, subscribe"),
        (len, "its factory raised TypeError"),
    ],
)
def test_what_is_no_assignor_is_refused(written, words):
    for make in (
        lambda: Consumer({**NEEDED, "partition.assignment.strategy": [written]}),
        lambda: Worker({**NEEDED, "partition.assignment.strategy": [written]}, {"k": 1}),
        lambda: kafka_assignors.assignor(written),
        lambda: aiokafka_assignors.assignor(written),
    ):
        with pytest.raises(ConfigError, match=words):
            make()


@pytest.mark.parametrize("option", ["partition.assignment.strategy", "holdfast.target.assignor"])
def test_an_unknown_assignor_is_refused_when_a_worker_is_made(option):
    with pytest.raises(ConfigError, match="unknown assignor 'bogus'"):
        Worker({**NEEDED, option: "bogus"}, {"k": 1})


def test_the_group_id_reaches_the_last_tie_break_of_lag():
    (mine,) = assignors_of(settings(partition_assignment_strategy="lag", group_id="etl"))
    assert mine.options == {"group_id": "etl"}
    (given,) = assignors_of(
        settings(
            partition_assignment_strategy="lag",
            group_id="etl",
            holdfast_assignor_options={"group_id": "other"},
        )
    )
    assert given.options == {"group_id": "other"}


def test_a_worker_offers_its_own_design_first_and_a_list_as_it_stands():
    def names(**more):
        return [a.name for a in Worker({**NEEDED, **keys(**more)}, {"k": 1}).assignors]

    assert names() == ["holdfast-simple", "holdfast-deferred", "holdfast-incremental"]
    assert names(holdfast_policy="deferred")[0] == "holdfast-deferred"
    assert set(names(holdfast_policy="deferred")) == set(names())
    assert names(partition_assignment_strategy="holdfast-deferred") == ["holdfast-deferred"]
    two = ["holdfast-deferred", "holdfast-simple"]
    assert names(partition_assignment_strategy=two) == two
    with pytest.raises(ConfigError, match="found sticky in a list"):
        names(partition_assignment_strategy=["holdfast-deferred", "sticky"])
    with pytest.raises(ConfigError, match="lacks holdfast-incremental"):
        names(holdfast_policy="incremental", partition_assignment_strategy=two)


LEAVE = "holdfast.clean.leave"


@pytest.mark.parametrize("make", [Consumer, partial(Worker, resources={"k": 1})])
def test_a_member_that_nobody_would_wait_for_cannot_promise_to_come_back(make):
    for policy in ("deferred", "incremental", "failback"):
        make({**NEEDED, "holdfast.policy": policy, LEAVE: "deferred"})
    make({**NEEDED, LEAVE: "deferred", "group.instance.id": "i"})
    make({**NEEDED, LEAVE: "immediate"})
    with pytest.raises(ConfigError, match=r"clean\.leave: .*no member waits"):
        make({**NEEDED, LEAVE: "deferred"})


@pytest.mark.parametrize("make", [Consumer, partial(Worker, resources={"k": 1})])
def test_every_option_of_a_design_is_configured_by_a_setting_of_its_own(make):
    waits = {
        "scheduled.rebalance.max.delay.ms": 60_000,
        "holdfast.first.member": "deferred",
        "holdfast.first.member.delay.ms": 7_000,
        "holdfast.clean.leave": "immediate",
        "holdfast.successor.delay.ms": 40_000,
        "holdfast.incremental.batch": 3,
        "holdfast.incremental.group.batch": 12,
        "holdfast.incremental.interval.ms": 9_000,
        "holdfast.record.limit.bytes": 90_000,
        "holdfast.leader.state.limit.bytes": 40_000,
    }
    member = make({**NEEDED, **waits, "holdfast.policy": "incremental"})
    made = member.assignors[0].policy
    assert (made.delay_ms, made.first_member_delay_ms) == (60_000, 7_000)
    assert (made.first_member, made.successor_delay_ms) == (When.DEFERRED, 40_000)
    assert not member._settings.returns
    assert (made.batch, made.group_batch, made.interval_ms) == (3, 12, 9_000)
    assert (made.record_limit_bytes, made.leader_state_limit_bytes) == (90_000, 40_000)

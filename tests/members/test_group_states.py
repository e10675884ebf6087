"""Queries for states of groups: each answer by itself, in few requests."""

from __future__ import annotations

import concurrent.futures
import itertools
from contextlib import contextmanager
from types import SimpleNamespace as Answer

import kafka.errors
import pytest
from tests.members.fake_connections import GroupBrokers

from holdfast.cli.live_groups import GroupStatePoller
from holdfast.cluster import groups as group_questions
from holdfast.cluster.groups_now import states_now
from holdfast.cluster.snapshot import JOINING
from holdfast.core.wire.layouts.consumer_protocol import AssignmentMessage, encode_assignment
from holdfast.errors import SourceError

NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND = 16, 30, 69
OWNED = encode_assignment(AssignmentMessage(partitions=(("t", (0, 2)),)))


class Brokers(GroupBrokers):
    """Brokers with states of groups, and what each group answers."""

    def __init__(self, groups, *, codes=None, unreachable=(), answers=None):
        super().__init__(groups)
        self.codes, self.unreachable, self.answers = codes or {}, set(unreachable), answers

    def answered(self, name, node, request):
        if node in self.unreachable:
            raise kafka.errors.KafkaConnectionError(f"node {node} is away")
        if name == "ListGroups":
            self.asked.append((name, node, None))
            return self.listed(node)
        names = list(request.groups if name == "DescribeGroups" else request.group_ids)
        self.asked.append((name, node, names))
        return Answer(groups=[self.described(group, name) for group in names])

    def described(self, group, name):
        code = self.codes.get(group, 0)
        if callable(code):
            code = code()
        if code:
            return Answer(group_id=group, error_code=code, group_state="", members=[])
        if group not in self.groups:
            return Answer(group_id=group, error_code=NOT_COORDINATOR, group_state="", members=[])
        state = self.groups[group][2]
        if name != "DescribeGroups":
            return self.answers(group, state)
        one = Answer(
            member_id="m-1",
            group_instance_id="i-1",
            client_id="c",
            client_host="/h",
            member_metadata=b"",
            member_assignment=OWNED,
        )
        return Answer(
            group_id=group,
            error_code=0,
            group_state=state,
            protocol_type="consumer",
            protocol_data="range",
            members=[one],
        )


class Cluster:
    """A cluster whose questions go to scripted brokers."""

    def __init__(self, brokers):
        self.brokers = brokers

    @contextmanager
    def connected(self, isolation=""):
        def asked(name, query):
            found: concurrent.futures.Future = query(self.brokers)
            try:
                return found.result()
            except kafka.errors.KafkaError as error:
                raise SourceError(f"{name}: {error}") from error

        yield asked


def now(brokers, describe=lambda group: True, known=()):
    return states_now(Cluster(brokers), lambda names: names, describe=describe, known=known)


def test_states_come_with_the_list_and_members_of_what_is_described():
    brokers = Brokers({"a": ("classic", 1, "Stable"), "b": ("classic", 2, JOINING)})
    found = now(brokers, lambda group: group.is_rebalancing)
    assert {name: one.state for name, one in found.groups.items()} == {"a": "Stable", "b": JOINING}
    assert found.groups["a"].members is None
    (member,) = found.groups["b"].members
    assert (member.member_id, member.instance_id, member.client_host) == ("m-1", "i-1", "/h")
    assert member.partitions == (("t", (0, 2)),)
    assert (member.n_pending_revocations, member.is_behind) == (None, None)
    assert brokers.asked == [
        ("ListGroups", 1, None),
        ("ListGroups", 2, None),
        ("DescribeGroups", 2, ["b"]),
    ]


def test_a_broker_that_lists_no_states_is_asked_for_every_group():
    brokers = Brokers({"a": ("", 1, ""), "b": ("", 1, "")})
    found = now(brokers, lambda group: False)
    assert brokers.asked[-1] == ("DescribeGroups", 1, ["a", "b"])
    assert found.groups["a"].members is not None


def test_requests_grow_with_the_brokers_and_not_with_the_groups(monkeypatch):
    monkeypatch.setattr(group_questions, "AT_ONCE", 500)
    many = {f"g{i:05}": ("classic", 1 + i % 2, "Stable") for i in range(10_000)}
    brokers = Brokers(many)
    found = now(brokers)
    assert len(found.groups) == 10_000
    assert len(brokers.asked) == 2 + 20
    brokers.asked.clear()
    now(brokers, lambda group: group.is_rebalancing)
    assert len(brokers.asked) == 2


def test_one_group_that_may_not_be_described_takes_no_other_away():
    brokers = Brokers(
        dict.fromkeys("abc", ("classic", 1, "Stable")), codes={"b": GROUP_AUTHORIZATION_FAILED}
    )
    found = now(brokers).groups
    assert {name: one.refused for name, one in found.items()} == {
        "a": "",
        "b": "GROUP_AUTHORIZATION_FAILED",
        "c": "",
    }
    assert (found["b"].state, found["b"].members) == ("Stable", None)
    assert len(found["a"].members) == 1


def test_a_group_whose_coordinator_moves_is_asked_about_again_and_then_told():
    said = iter([NOT_COORDINATOR, 0])
    brokers = Brokers({"a": ("classic", 1, "Stable")}, codes={"a": lambda: next(said)})
    assert now(brokers).groups["a"].members is not None
    brokers = Brokers({"a": ("classic", 1, "Stable")}, codes={"a": NOT_COORDINATOR})
    found = now(brokers).groups["a"]
    assert (found.refused, found.members) == ("NOT_COORDINATOR", None)
    assert [name for name, *_ in brokers.asked].count("DescribeGroups") == 3


def test_a_group_that_ends_between_the_list_and_the_question_is_gone():
    brokers = Brokers({"a": ("classic", 1, "Stable")}, codes={"a": GROUP_ID_NOT_FOUND})
    assert now(brokers).groups["a"].state == "Dead"


def test_a_broker_that_is_away_takes_only_its_own_groups_away():
    groups = {"a": ("classic", 1, "Stable"), "b": ("classic", 2, "Stable")}
    found = now(Brokers(groups, unreachable=[2]), known=["b"])
    assert found.groups.keys() == {"a"}
    assert found.gone == frozenset()  # its coordinator may be the one that is away
    (told,) = found.unanswered
    assert told.startswith("broker 2 (h2:9092): ") and "away" in told
    with pytest.raises(SourceError):
        now(Brokers(groups, unreachable=[1, 2]))


def test_a_group_is_gone_where_no_broker_lists_it_and_it_may_be_described():
    brokers = Brokers({"a": ("classic", 1, "Stable")}, codes={"hidden": GROUP_AUTHORIZATION_FAILED})
    found = now(brokers, known=["a", "deleted", "hidden"])
    assert found.gone == {"deleted"}
    assert brokers.asked[-1] == ("DescribeGroups", None, ["deleted", "hidden"])


def epochs(member_epoch, has, shall, group_epoch=5):
    def parts(numbers):
        return Answer(
            topic_partitions=[Answer(topic_id="t", topic_name="t", partitions=list(numbers))]
        )

    def answer(group, state):
        one = Answer(
            member_id="m",
            instance_id=None,
            client_id="c",
            client_host="/h",
            rack_id=None,
            subscribed_topic_names=["t"],
            subscribed_topic_regex=None,
            member_epoch=member_epoch,
            assignment=parts(has),
            target_assignment=parts(shall),
        )
        return Answer(
            group_id=group,
            error_code=0,
            group_state=state,
            group_epoch=group_epoch,
            assignment_epoch=group_epoch,
            assignor_name="uniform",
            members=[one],
        )

    return answer


@pytest.mark.parametrize(
    ("epoch", "has", "shall", "expected"),
    [
        (5, [0, 1], [0, 1], (0, False)),
        (4, [0, 1], [0], (1, True)),
        (5, [0], [0, 1], (0, False)),  # it waits for another member
        (-1, [0], [0], (0, False)),  # a static member that is away for a while
    ],
)
def test_epochs_and_targets_say_whom_a_group_of_kip_848_waits_for(epoch, has, shall, expected):
    brokers = Brokers({"a": ("consumer", 1, "Reconciling")}, answers=epochs(epoch, has, shall))
    (member,) = now(brokers).groups["a"].members
    assert (member.n_pending_revocations, member.is_behind) == expected
    assert brokers.asked[-1] == ("ConsumerGroupDescribe", 1, ["a"])


def asked(brokers, said, groups=(), *, all_groups=True):
    return GroupStatePoller(Cluster(brokers), groups, all_groups=all_groups, note=said.append)


def test_what_cannot_be_asked_is_said_once_and_the_rest_is_known():
    said = []
    codes = {"b": GROUP_AUTHORIZATION_FAILED, "c": GROUP_AUTHORIZATION_FAILED}
    brokers = Brokers(dict.fromkeys("abc", ("classic", 1, "Stable")), codes=codes)
    states = asked(brokers, said)
    for _ in range(2):
        states.query_all([])
    assert said == [
        "the members of 2 groups (such as b) could not be read: GROUP_AUTHORIZATION_FAILED"
    ]
    assert states.live.of("a").seen.members is not None
    brokers.unreachable = {1, 2}
    before = states.live
    assert states.query_states() is before
    assert len(said) == 2 and said[1].startswith("states of groups could not be read: ")


def test_only_the_groups_that_were_asked_for_are_described():
    brokers = Brokers(dict.fromkeys(("etl-1", "etl-2", "web"), ("classic", 1, "Stable")))
    assert asked(brokers, [], ["etl-*"]).query_states().names == ("etl-1", "etl-2")
    spark = Brokers(dict.fromkeys(("spark-kafka-source-1", "web"), ("classic", 1, "Empty")))
    assert asked(spark, [], all_groups=False).query_states().names == ("web",)


def test_a_rebalance_that_is_seen_for_the_first_time_is_looked_at_twice(monkeypatch):
    clock = itertools.count(1_000, 1_000)
    monkeypatch.setattr("time.time_ns", lambda: next(clock) * 1_000_000)
    brokers, waited = Brokers({"a": ("classic", 1, JOINING), "b": ("classic", 1, "Stable")}), []

    def passes(seconds):
        waited.append(seconds)
        brokers.groups["a"] = ("classic", 1, "Stable")

    states = asked(brokers, [])
    states.query_all([], passes)
    assert len(waited) == 1 and states.live.rebalancing == ()
    assert states.live.of("b").seen.members is not None  # as of a moment before
    brokers.groups["a"] = ("classic", 1, JOINING)
    states.query_states()
    states.query_all([], passes)  # it was seen before that: nothing is waited for
    assert len(waited) == 1 and states.live.rebalancing == ("a",)
    assert states.live.of("a").since_ms <= states.live.seen.queried_ms


def test_groups_without_members_are_not_described():
    brokers = Brokers({"a": ("classic", 1, "Empty"), "b": ("classic", 1, "Stable")})
    asked(brokers, []).query_all([])
    assert brokers.asked[-1] == ("DescribeGroups", 1, ["b"])

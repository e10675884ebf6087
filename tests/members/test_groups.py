"""Queries about groups, and the handling of unusual answers."""

from __future__ import annotations

from types import SimpleNamespace as Answer

import kafka.errors
import pytest
from kafka.protocol.broker_version_data import BrokerVersionData
from tests.members.fake_connections import GroupBrokers

from holdfast.cluster.group_messages import request_class
from holdfast.cluster.groups import DESCRIBED, GroupQuestions, GroupType, Position
from holdfast.cluster.versions import GROUP_REQUESTS, REQUESTS
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.errors import RemoteProtocolError

NOT_COORDINATOR, GROUP_ID_NOT_FOUND, GROUP_AUTHORIZATION_FAILED = 16, 69, 30


class Brokers(GroupBrokers):
    """Brokers with scripted answers."""

    def __init__(self, groups, answers):
        super().__init__(groups)
        self.answers = answers

    def answered(self, name, node, request):
        if name == "ListGroups":
            return self.listed(node)
        self.asked.append((name, node))
        return self.answers(name, node, request)

    async def again(self, attempt, most_s=None):
        for _ in range(3):
            try:
                return await attempt()
            except kafka.errors.KafkaError as error:
                if not error.retriable:
                    raise
        raise AssertionError("asked three times")


def questions(brokers):
    return GroupQuestions(brokers).ask().result()


def member(name, **more):
    return Answer(member_id=name, client_id="c", client_host="/h", **more)


def described(group, members, code=0, **more):
    return Answer(groups=[Answer(group_id=group, error_code=code, members=members, **more)])


def test_groups_are_listed_with_kind_and_node_and_an_old_broker_names_no_kind():
    brokers = Brokers({"a": ("Consumer", 1), "b": ("", 2)}, None)
    listed = questions(brokers).listed
    assert {(g.group, g.kind, g.node) for g in listed.values()} == {
        ("a", GroupType.CONSUMER, 1),
        ("b", GroupType.CLASSIC, 2),
    }


@pytest.mark.parametrize(
    ("protocol_type", "read"), [("consumer", (("t", (0, 2)), ("u", (1,)))), ("connect", ())]
)
def test_members_of_a_classic_group_read_what_their_assignment_says(protocol_type, read):
    owned = encode_assignment(AssignmentMessage(partitions=(("t", (0, 2)), ("u", (1,)))))
    asks = encode_subscription(Subscription(topics=("t", "u", "v")))

    def answer(name, node, request):
        given = [
            member("m1", member_assignment=owned, member_metadata=asks),
            member("m2", member_assignment=b"", member_metadata=b""),  # a round is under way
            member("m3", member_assignment=b"\0", member_metadata=b"\0"),
        ]
        return described("g", given, protocol_type=protocol_type)

    brokers = Brokers({"g": ("classic", 1)}, answer)
    found = questions(brokers).members(GroupType.CLASSIC, ["g"]).result()
    assert {one.member_id: one.partitions for one in found} == {"m1": read, "m2": (), "m3": ()}
    asked = frozenset("tuv") if protocol_type == "consumer" else None
    assert [one.subscribed for one in found] == [asked, None, None]
    assert brokers.asked == [("DescribeGroups", 1)]


def test_members_of_a_streams_group_read_the_topics_of_their_active_tasks():
    parts = [
        Answer(
            subtopology_id="0", source_topics=["t"], repartition_source_topics=[Answer(name="r")]
        ),
        Answer(subtopology_id="1", source_topics=["t"], repartition_source_topics=[]),
    ]
    tasks = [
        Answer(subtopology_id="0", partitions=[1]),
        Answer(subtopology_id="1", partitions=[0]),
        Answer(subtopology_id="2", partitions=[9]),
    ]
    given = [member("m", assignment=Answer(active_tasks=tasks))]
    for topology, read, asked in (
        (Answer(subtopologies=parts), (("r", (1,)), ("t", (0, 1))), frozenset("rt")),
        (None, (), None),
    ):
        brokers = Brokers(
            {"g": ("streams", 2)}, lambda *_, at=topology: described("g", given, topology=at)
        )
        (found,) = questions(brokers).members(GroupType.STREAMS, ["g"]).result()
        assert (found.partitions, found.subscribed) == (read, asked)


@pytest.mark.parametrize("kind", [GroupType.CONSUMER, GroupType.SHARE])
def test_members_of_groups_that_brokers_assign_read_what_they_are_given(kind):
    topics = [Answer(topic_name="t", partitions=[3, 1])]
    asks = {"subscribed_topic_names": ["t", "u"], "subscribed_topic_regex": None}
    given = [member("m", assignment=Answer(topic_partitions=topics), **asks)]
    brokers = Brokers({"g": (kind, 2)}, lambda *_: described("g", given))
    (found,) = questions(brokers).members(kind, ["g"]).result()
    assert found.partitions == (("t", (1, 3)),)
    assert found.subscribed == (frozenset("tu") if kind is GroupType.CONSUMER else None)
    given[0].subscribed_topic_regex = "t.*"  # what it names is known to the broker alone
    (found,) = questions(brokers).members(kind, ["g"]).result()
    assert found.subscribed is None
    brokers.asked.pop()
    assert brokers.asked == [(DESCRIBED[kind].request, 2)]


def test_a_group_that_moves_is_asked_about_at_its_new_coordinator():
    def answer(name, node, request):
        if node == 1:
            brokers.groups = {"g": ("classic", 2)}
            return described("g", [], NOT_COORDINATOR)
        given = [member("m", member_assignment=b"", member_metadata=b"")]
        return described("g", given, protocol_type="consumer")

    brokers = Brokers({"g": ("classic", 1)}, answer)
    (found,) = questions(brokers).members(GroupType.CLASSIC, ["g"]).result()
    assert found.member_id == "m"
    assert [node for _, node in brokers.asked] == [1, 2]


def test_a_group_that_has_ended_has_nothing_and_a_refusal_is_named():
    brokers = Brokers({"g": ("share", 1)}, lambda *_: described("g", [], code))
    for code in (GROUP_ID_NOT_FOUND, GROUP_AUTHORIZATION_FAILED):
        asked = questions(brokers)
        assert asked.members(GroupType.SHARE, ["g"]).result() == []
        if code == GROUP_ID_NOT_FOUND:
            assert asked.refused == {}
        else:
            assert asked.refused == {"g": "GROUP_AUTHORIZATION_FAILED"}
            with pytest.raises((RemoteProtocolError, kafka.errors.KafkaError), match="group 'g'"):
                asked.failure().result()


@pytest.mark.parametrize("version", [7, 9])
def test_one_refused_group_takes_no_commit_of_another_away(version):
    def answer(name, node, request):
        codes = {"secret": GROUP_AUTHORIZATION_FAILED}
        if version == 7:
            group = request.group_id
            return Answer(API_VERSION=7, **vars(fetched(group, 4, code=codes.get(group, 0))))
        every = [fetched(g.group_id, 4, code=codes.get(g.group_id, 0)) for g in request.groups]
        return Answer(API_VERSION=9, groups=every)

    groups = {"a": ("classic", 1), "secret": ("classic", 1), "z": ("consumer", 2)}
    asked = questions(Brokers(groups, answer))
    found = asked.commits([*groups]).result()
    assert [one.group for one in found] == ["a", "z"]
    assert asked.refused == {"secret": "GROUP_AUTHORIZATION_FAILED"}
    # What was refused is not asked for again.
    assert asked.commits(["secret"]).result() == []


def test_a_coordinator_that_does_not_answer_takes_no_group_of_another_away():
    def answer(name, node, request):
        if node == 2:
            raise kafka.errors.KafkaConnectionError("111")
        return Answer(API_VERSION=9, groups=[fetched(one.group_id, 4) for one in request.groups])

    brokers = Brokers({"a": ("classic", 1), "b": ("classic", 2)}, answer)
    asked = questions(brokers)
    found = asked.commits(["a", "b"]).result()
    assert [one.group for one in found] == ["a"]
    assert asked.refused == {"b": "KafkaConnectionError: Connection refused"}
    assert [node for _, node in brokers.asked].count(1) == 1
    brokers.answers = lambda *_: Answer(API_VERSION=9, groups=[fetched("b", 7)])
    again = questions(brokers)
    assert [one.offset for one in again.commits(["b"]).result()] == [7]


def fetched(group, *offsets, code=0):
    parts = [
        Answer(partition_index=p, committed_offset=at, error_code=0, metadata="note")
        for p, at in enumerate(offsets)
    ]
    return Answer(group_id=group, error_code=code, topics=[Answer(name="t", partitions=parts)])


@pytest.mark.parametrize("version", [7, 9])
def test_commits_of_many_groups_take_one_request_and_one_each_of_an_old_broker(version):
    def answer(name, node, request):
        if version == 7:
            return Answer(API_VERSION=7, **vars(fetched(request.group_id, 4, -1)))
        every = [fetched(one.group_id, 4, -1) for one in request.groups]
        return Answer(API_VERSION=9, groups=every)

    brokers = Brokers({"g": ("classic", 1), "h": ("consumer", 1)}, answer)
    found = questions(brokers).commits(["g", "h"]).result()
    at = {"topic": "t", "partition": 0, "offset": 4, "metadata": "note"}
    assert found == [Position(group=group, **at) for group in ("g", "h")]
    assert len(brokers.asked) == (2 if version == 7 else 1)


def test_a_share_group_starts_where_it_says_and_nowhere_before_it_has_begun():
    parts = [
        Answer(partition_index=0, start_offset=5, lag=2, error_code=0),
        Answer(partition_index=1, start_offset=-1, lag=-1, error_code=0),
    ]
    group = Answer(group_id="g", error_code=0, topics=[Answer(topic_name="t", partitions=parts)])
    brokers = Brokers({"g": ("share", 1)}, lambda *_: Answer(groups=[group]))
    assert questions(brokers).share_starts(["g"]).result() == [
        Position(group="g", topic="t", partition=0, offset=5, share_lag=2)
    ]


@pytest.mark.parametrize("name", GROUP_REQUESTS)
def test_requests_that_kafka_python_lacks_are_sent_in_the_version_that_both_know(name):
    span, made = GROUP_REQUESTS[name], request_class(name)
    assert (span.key, span.newest) == (made.API_KEY, made.max_version)
    broker = BrokerVersionData(api_versions={span.key: (0, span.newest + 3)})
    request = made(**span.bounds)
    assert broker.api_version(request) == span.newest
    assert span.key not in {one.key for one in REQUESTS.values()}

"""A fault of one member, and a refusal of a broker, end no other member: on a real broker."""

from __future__ import annotations

import logging
from contextlib import ExitStack

import pytest
from tests.live.crew import ConsumerThread, Topic, closing, fresh, spread
from tests.live.raw_member import RawMember
from tests.live.security import DENY, entries
from tests.live.waiting import until
from tests.suites import further

from holdfast.core.machine.leader.assignor_protocol import MemberView
from holdfast.core.machine.policy import Policy
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.model.partitions import resources_of
from holdfast.core.wire.layouts.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_subscription,
)
from holdfast.errors import RemoteProtocolError

pytestmark = pytest.mark.broker

POLICIES = {"eager": "range", "simple": "cooperative-sticky", "deferred": "holdfast-deferred"}


def subscription(policy: str, *topics: str) -> bytes:
    """Bytes of a member of this policy that owns nothing."""
    view = MemberView(topics=tuple(sorted(topics)), owned=(), previous=(), generation=-1)
    return assignors_for(policy, Policy())[0].subscribe(view)


def given(raw: RawMember) -> set[tuple[str, int]]:
    return resources_of(decode_assignment(raw.assignment).partitions) if raw.assignment else set()


def refreshes(consumer_thread: ConsumerThread) -> list[object]:
    """Every question for topics of a member from now on."""
    runtime = consumer_thread.consumer._session.runtime
    assert runtime is not None
    ask, asked = runtime.lookup.partitions, []

    def count(topics):
        asked.append(topics)
        return ask(topics)

    runtime.lookup.partitions = count
    return asked


@pytest.mark.parametrize("policy", further(POLICIES, stays=["deferred"]))
def test_a_topic_that_the_leader_may_not_describe_ends_nobody(broker, security, caplog, policy):
    """All lead on for all other topics, say whose topic it is, and mend it when they may."""
    caplog.set_level(logging.WARNING, "holdfast.member")
    topic, payroll = Topic(broker.bootstrap, 12), Topic(broker.bootstrap, 2)
    group = fresh("group")
    mine = security.login(broker, "PLAIN", **{"holdfast.policy": policy, "group.id": group})
    mine["metadata.max.age.ms"] = 500
    with ExitStack() as stack:
        forbidden = stack.enter_context(ExitStack())
        forbidden.enter_context(entries(broker, [("topic", payroll.name, "DESCRIBE")], DENY))
        consumer_threads = [
            ConsumerThread(broker.bootstrap_of("PLAIN"), group, [topic.name], **mine).start()
            for _ in range(3)
        ]
        until(lambda: spread(consumer_threads, topic), "three members share the topic")
        raw = stack.enter_context(
            RawMember(
                broker.bootstrap,
                group,
                POLICIES[policy],
                subscription(policy, topic.name, payroll.name),
            )
        )

        def all_owned() -> bool:
            held = [
                (topic.name, p)
                for consumer_thread in consumer_threads
                for p in consumer_thread.owns
            ]
            return sorted([*held, *given(raw)]) == [(topic.name, p) for p in range(12)]

        until(lambda: len(given(raw)) == 3 and all_owned(), "12 partitions held by four members")
        asked = [refreshes(consumer_thread) for consumer_thread in consumer_threads]
        until(
            lambda: sum(payroll.name in (t or ()) for some in asked for t in some) >= 5,
            "refreshes of the leader's metadata",
        )
        assert all_owned()
        warning = next(r.getMessage() for r in caplog.records if payroll.name in r.getMessage())
        assert "TOPIC_AUTHORIZATION_FAILED" in warning
        assert raw.member_id in warning
        forbidden.close()  # the right is granted
        until(lambda: {(payroll.name, 0), (payroll.name, 1)} <= given(raw), "its own topic")
        assert not raw.has_led
        raw.leave()
        until(lambda: spread(consumer_threads, topic) or policy == "deferred", "what it left")
        assert closing(consumer_threads) == {}


def large(topic: str) -> bytes:
    """A subscription of 1.1 MB, more than a stock broker writes in one record."""
    user_data = b"x" * 1_100_000
    return encode_subscription(Subscription(version=3, topics=(topic,), user_data=user_data))


def test_a_record_that_is_too_large_is_tried_again_and_the_group_recovers(broker, caplog):
    caplog.set_level(logging.WARNING, "holdfast.member")
    topic, group = Topic(broker.bootstrap, 6), fresh("group")
    consumer_threads = [
        ConsumerThread(broker.bootstrap, group, [topic.name]).start() for _ in range(3)
    ]
    until(lambda: spread(consumer_threads, topic), "three members share the topic")
    with RawMember(broker.bootstrap, group, "cooperative-sticky", large(topic.name)) as raw:
        until(lambda: raw.sync_errors.count(-1) >= 4, "rounds that the broker refuses")
        topic.produce(10)
        until(
            lambda: sum(len(consumer_thread.read) for consumer_thread in consumer_threads) == 60,
            "records read meanwhile",
        )
        said = [r.getMessage() for r in caplog.records if "message.max.bytes" in r.getMessage()]
        assert any(
            "UNKNOWN_SERVER_ERROR" in text and f"subscription of member {raw.member_id}" in text
            for text in said
        )
        assert {consumer_thread.error for consumer_thread in consumer_threads} == {None}
        assert spread(consumer_threads, topic)
        assert set(raw.sync_errors) <= {-1, 27}  # 27: others have begun the next round
    generation = consumer_threads[0].consumer.generation
    topic.produce(10)
    until(
        lambda: sum(len(consumer_thread.read) for consumer_thread in consumer_threads) == 120,
        "records read afterwards",
    )
    until(
        lambda: (
            {consumer_thread.consumer.metrics().state for consumer_thread in consumer_threads}
            == {"STABLE"}
        ),
        "a group that is stable again",
    )
    assert consumer_threads[0].consumer.generation >= generation
    assert spread(consumer_threads, topic)
    assert closing(consumer_threads) == {}


def test_a_member_that_shall_not_wait_for_ever_fails_and_names_the_size(broker):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    consumer_thread = ConsumerThread(
        broker.bootstrap, group, [topic.name], holdfast_error_timeout_ms=1_000
    ).start()
    until(lambda: consumer_thread.owns == [0, 1], "a member that has all")
    with RawMember(broker.bootstrap, group, "cooperative-sticky", large(topic.name)):
        until(lambda: consumer_thread.error is not None, "the end of its patience")
        consumer_thread.stop()
    assert isinstance(consumer_thread.error, RemoteProtocolError)
    assert "message.max.bytes" in str(consumer_thread.error)

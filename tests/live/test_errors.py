"""A fault of one member, and a refusal of a broker, end no other member: on a real broker."""

from __future__ import annotations

import logging
from contextlib import ExitStack

import pytest
from tests.live.crew import ConsumerThread, ThreadGroup, Topic
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


def refreshes(thread: ConsumerThread) -> list[object]:
    """Every question for topics of a member from now on."""
    runtime = thread.consumer._session.runtime
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
    payroll = Topic(broker.bootstrap, 2)
    login = security.login(broker, "PLAIN", **{"metadata.max.age.ms": 500})
    mine = {key: one for key, one in login.items() if key != "group.id"}
    with ExitStack() as stack:
        forbidden = stack.enter_context(ExitStack())
        forbidden.enter_context(entries(broker, [("topic", payroll.name, "DESCRIBE")], DENY))
        made = ThreadGroup(broker.bootstrap, 12, holdfast_policy=policy, **mine)
        group, topic = stack.enter_context(made), made.topic
        for _ in range(3):
            group.join()
        group.await_spread()
        own = subscription(policy, topic.name, payroll.name)
        raw = stack.enter_context(RawMember(broker.bootstrap, group.name, POLICIES[policy], own))

        def all_owned() -> bool:
            held = [(topic.name, p) for thread in group.threads for p in thread.owns]
            return sorted([*held, *given(raw)]) == [(topic.name, p) for p in range(12)]

        until(lambda: len(given(raw)) == 3 and all_owned(), "12 partitions held by four members")
        asked = [refreshes(thread) for thread in group.threads]
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
        until(lambda: group.is_spread() or policy == "deferred", "what it left")


def large(topic: str) -> bytes:
    """A subscription of 1.1 MB, more than a stock broker writes in one record."""
    user_data = b"x" * 1_100_000
    return encode_subscription(Subscription(version=3, topics=(topic,), user_data=user_data))


def test_a_record_that_is_too_large_is_tried_again_and_the_group_recovers(broker, caplog):
    caplog.set_level(logging.WARNING, "holdfast.member")
    with ThreadGroup(broker.bootstrap, 6) as group:
        threads, topic = [group.join() for _ in range(3)], group.topic
        group.await_spread()
        with RawMember(
            broker.bootstrap, group.name, "cooperative-sticky", large(topic.name)
        ) as raw:
            until(lambda: raw.sync_errors.count(-1) >= 4, "rounds that the broker refuses")
            topic.produce(10)
            group.await_read()
            said = [r.getMessage() for r in caplog.records if "message.max.bytes" in r.getMessage()]
            assert any(
                "UNKNOWN_SERVER_ERROR" in text and f"subscription of member {raw.member_id}" in text
                for text in said
            )
            assert {thread.error for thread in threads} == {None}
            assert group.is_spread()
            assert set(raw.sync_errors) <= {-1, 27}  # 27: others have begun the next round
        generation = threads[0].consumer.generation
        topic.produce(10)
        group.await_read()
        until(
            lambda: {thread.consumer.metrics().state for thread in threads} == {"STABLE"},
            "a group that is stable again",
        )
        assert threads[0].consumer.generation >= generation
        assert group.is_spread()


def test_a_member_that_shall_not_wait_for_ever_fails_and_names_the_size(broker):
    with ThreadGroup(broker.bootstrap, 2, holdfast_error_timeout_ms=1_000) as group:
        thread = group.join()
        group.await_spread()
        with RawMember(broker.bootstrap, group.name, "cooperative-sticky", large(group.topic.name)):
            until(lambda: thread.error is not None, "the end of its patience")
        error, thread.error = thread.error, None
        assert isinstance(error, RemoteProtocolError)
        assert "message.max.bytes" in str(error)

"""One broken member in a group that a stock client with our plug-in leads."""

from __future__ import annotations

import asyncio
import struct
from contextlib import ExitStack

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType
from tests.live.crew import Topic, fresh
from tests.live.raw_member import RawMember
from tests.live.security import PASSWORD, USER
from tests.live.test_refusals import acl
from tests.live.test_repairs import Polling, consumer, poll_until
from tests.live.waiting import until

from holdfast.adapters import aiokafka_assignor
from holdfast.adapters.kafka_python import CooperativeSticky, attach
from holdfast.machine.member.options import AGAIN_PAUSE_MS
from holdfast.wire.layouts.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_subscription,
)

pytestmark = pytest.mark.broker

COOPERATIVE = "cooperative-sticky"
GOOD = encode_subscription(Subscription(version=3, topics=("odd-one",), user_data=b"x"))
ODD = {
    "empty": b"",
    "cut": GOOD[:-5],
    "bad UTF-8": GOOD.replace(b"odd", b"\xff\xfe\xfd"),
    "version -1": struct.pack(">h", -1) + GOOD[2:],
}
"""Bytes that a broker passes on. It refuses wrong counts itself, with JoinGroup error -1."""


def given(raw: RawMember) -> list[tuple[str, tuple[int, ...]]]:
    return list(decode_assignment(raw.assignment).partitions)


@pytest.mark.parametrize("repaired", [False, True], ids=["plain", "attached"])
def test_k8_a_subscription_that_does_not_parse_stops_nobody(broker, repaired, caplog):
    topic = Topic(broker.bootstrap, 4)
    group = fresh("group")
    plugin = {"partition_assignment_strategy": [CooperativeSticky()]}
    with ExitStack() as stack:
        leader = stack.enter_context(consumer(broker.bootstrap, topic.name, group, **plugin))
        if repaired:
            attach(leader)
        poll_until(leader, lambda: len(leader.assignment()) == 4, "the leader has all")
        if not repaired:
            odd = RawMember(broker.bootstrap, group, COOPERATIVE, b"")
            stack.callback(odd.leave)
            odd.__enter__()
            with pytest.raises(struct.error):
                poll_until(leader, lambda: False, "the end of the leader")
            return
        raw = [
            stack.enter_context(RawMember(broker.bootstrap, group, COOPERATIVE, odd))
            for odd in ODD.values()
        ]
        poll_until(leader, lambda: all(one.assignment for one in raw), "a round of them all")
        assert [given(one) for one in raw] == [[]] * len(ODD)
        assert len(leader.assignment()) == 4
        for one in raw:
            told = [r for r in caplog.records if repr(one.member_id) in r.getMessage()]
            assert len(told) == 1
            assert "cannot be read" in told[0].getMessage()
        assert not any(one.has_led for one in raw)


def test_k9_a_topic_that_the_leader_may_not_describe_blinds_nobody(broker, security):
    """Unrepaired, the client mostly keeps its old picture of the topics here, but not always."""
    topic, payroll = Topic(broker.bootstrap, 2), Topic(broker.bootstrap, 1)
    group = fresh("group")
    settings = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "ssl_cafile": security.ca,
        "metadata_max_age_ms": 300,
        "partition_assignment_strategy": [CooperativeSticky()],
    }
    asks = encode_subscription(
        Subscription(version=3, topics=tuple(sorted((topic.name, payroll.name))), user_data=None)
    )
    rule = (AclOperation.DESCRIBE, AclPermissionType.DENY)
    with (
        acl(broker, ResourceType.TOPIC, payroll.name, *rule),
        consumer(broker.bootstrap_of("PLAIN"), topic.name, group, **settings) as leader,
    ):
        attach(leader)
        poll_until(leader, lambda: len(leader.assignment()) == 2, "the leader has all")
        with RawMember(broker.bootstrap, group, COOPERATIVE, asks) as raw:
            poll_until(
                leader,
                lambda: raw.assignment and len(leader.assignment()) == 1 and given(raw),
                "one partition each",
            )
            topic.grow(4)
            known = leader._coordinator._cluster
            poll_until(
                leader,
                lambda: (
                    len(known.partitions_for_topic(topic.name) or ()) == 4
                    and payroll.name in known.unauthorized_topics
                ),
                "new metadata",
            )
            poll_until(leader, lambda: len(leader.assignment()) == 2, "what was added")
            until(lambda: sum(len(ps) for _, ps in given(raw)) == 2, "and for the other one")


def test_rounds_that_are_announced_in_a_row_are_paced(broker):
    """A member whose bytes never change claims for ever what another one shall have."""
    topic, group = Topic(broker.bootstrap, 12), fresh("group")
    liar = encode_subscription(
        Subscription(
            version=3,
            topics=(topic.name,),
            user_data=None,
            owned=((topic.name, tuple(range(12))),),
            generation=0,
        )
    )
    beat_ms = 400
    pauses: dict[str, list[int | None]] = {"first": [], "second": []}
    at_once: list[str] = []

    def join(name: str):
        made = stack.enter_context(
            consumer(
                broker.bootstrap,
                topic.name,
                group,
                heartbeat_interval_ms=beat_ms,
                partition_assignment_strategy=[CooperativeSticky()],
            )
        )
        attached = attach(made)
        rejoin_after, request_rejoin = attached.rejoin_after, attached.request_rejoin

        def noted(delay_ms: int | None) -> None:
            pauses[name].append(delay_ms)
            rejoin_after(delay_ms)

        def noted_at_once() -> None:
            at_once.append(name)
            request_rejoin()

        attached.rejoin_after, attached.request_rejoin = noted, noted_at_once
        return made

    with ExitStack() as stack:
        first = join("first")
        poll_until(first, lambda: len(first.assignment()) == 12, "the first one has all")
        polling = stack.enter_context(Polling(first))
        raw = stack.enter_context(RawMember(broker.bootstrap, group, COOPERATIVE, liar))
        until(lambda: len(first.assignment()) == 6 and raw.assignment, "half each")
        second = join("second")
        poll_until(
            second, lambda: min(map(len, pauses.values())) >= 10, "rounds that are announced"
        )
        polling.pause()
        assert at_once == []
        for asked in pauses.values():
            last = len(asked) - 1 - asked[::-1].index(AGAIN_PAUSE_MS)
            in_a_row = asked[last:]
            assert len(in_a_row) >= 6, asked
            assert in_a_row == [min(AGAIN_PAUSE_MS << n, beat_ms) for n in range(len(in_a_row))]
        polling.resume()


def test_aiokafka_a_subscription_that_does_not_parse_stops_nobody(broker, caplog):
    topic, group = Topic(broker.bootstrap, 4), fresh("group")

    async def wait(condition) -> None:
        async with asyncio.timeout(120):
            while not condition():
                await asyncio.sleep(0.05)

    async def scenario() -> None:
        leader = AIOKafkaConsumer(
            topic.name,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            heartbeat_interval_ms=200,
            session_timeout_ms=30_000,
            partition_assignment_strategy=[aiokafka_assignor.Range()],
        )
        aiokafka_assignor.attach(leader)
        await leader.start()
        stack = ExitStack()
        try:
            await wait(lambda: len(leader.assignment()) == 4)
            raw = [
                stack.enter_context(RawMember(broker.bootstrap, group, "range", odd))
                for odd in ODD.values()
            ]
            await wait(lambda: all(one.assignment for one in raw) and len(leader.assignment()) == 4)
            assert [given(one) for one in raw] == [[]] * len(ODD)
            assert not any(one.has_led for one in raw)
        finally:
            await asyncio.to_thread(stack.close)
            await leader.stop()

    asyncio.run(scenario())
    assert "cannot be read" in caplog.text

"""Whether the group waits for a member that leaves: its program decides, alike for every client.

The first member owns everything before the second one joins, so it leads; its metrics show for whom
the group waits. The delay is ten minutes: waiting partitions stay unassigned while a test runs. See
:mod:`tests.live.all_clients`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.live.all_clients import Stage, sentence
from tests.live.crew import fresh, group_of
from tests.live.waiting import until

import holdfast
from holdfast import confluent

pytestmark = pytest.mark.broker
DEFERRED = {
    "holdfast.policy": "deferred",
    "scheduled.rebalance.max.delay.ms": 600_000,
}
FOR_GOOD = {**DEFERRED, "holdfast.clean.leave": "immediate"}


def two(stage: Stage, topic: Any, keys: dict[str, Any], **second: Any) -> tuple[Any, Any]:
    """Two members with places of their own that share a topic; the first one leads."""
    first = stage.owner(topic, client_id="first", **keys)
    other = stage.member(topic, client_id="second", **{**keys, **second})
    stage.share(topic, first, other)
    return first, other


def goes(stage: Stage, member: Any) -> tuple[Any, ...]:
    """Unsubscribe; return who must poll until the member has left: one of librdkafka's itself."""
    member.unsubscribe()
    return (member,) if stage.client == "confluent" else ()


def gets_all(stage: Stage, first: Any, *others: Any) -> None:
    stage.until(lambda: len(first.owns()) == 4, "the first member owns all", first, *others)


def waits(stage: Stage, first: Any, *others: Any) -> None:
    """The leader waits for a member, and has not been given what it owned."""
    stage.until(lambda: first.runtime.metrics().waiting, "the group waits", first, *others)
    assert len(first.owns()) == 2


@sentence()
def test_a_member_that_leaves_says_what_the_key_says(stage):
    topic = stage.topic(4)
    first, other = two(stage, topic, FOR_GOOD)
    other.close()
    gets_all(stage, first)
    other = stage.member(topic, client_id="third", **FOR_GOOD)
    stage.share(topic, first, other)
    gets_all(stage, first, *goes(stage, other))


@sentence()
def test_without_the_key_a_member_that_leaves_comes_back(stage):
    topic = stage.topic(4)
    first, other = two(stage, topic, DEFERRED)
    owned = other.owns()
    waits(stage, first, *goes(stage, other))
    other.subscribe([topic.name])
    stage.until(lambda: other.owns() == owned, "its own again", first, other)
    other.close()
    waits(stage, first)


@sentence()
def test_a_close_says_otherwise_than_the_key(stage):
    topic = stage.topic(4)
    first, other = two(stage, topic, DEFERRED)
    other.close(returns=False)
    gets_all(stage, first)
    other = stage.member(topic, client_id="third", **FOR_GOOD)
    stage.share(topic, first, other)
    other.close(returns=True)
    waits(stage, first)


@sentence()
def test_a_static_member_stays_in_its_group_unless_it_leaves_for_good_or_unsubscribes(stage):
    topic = stage.topic(4)
    keys = {"partition.assignment.strategy": "cooperative-sticky"}
    first = stage.owner(topic, **keys)

    def second(**more: Any) -> Any:
        other = stage.member(topic, group_instance_id="second", **keys, **more)
        stage.share(topic, first, other)
        return other

    second().close()
    assert len(group_of(stage.bootstrap, stage.group).members) == 2
    for leaves in (
        lambda: second().close(returns=False),
        lambda: second(holdfast_clean_leave="immediate").close(),
    ):
        leaves()
        gets_all(stage, first)
    gets_all(stage, first, *goes(stage, second()))


def test_a_worker_says_what_the_key_says_or_its_close(broker):
    group, counts = fresh("workers"), {"shard": 4}

    def begun(name: str, **more: Any) -> holdfast.Worker:
        config = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": name}
        more = {k.replace("_", "."): v for k, v in more.items()}
        beat = {"heartbeat.interval.ms": 300, **DEFERRED, **more}
        made = holdfast.Worker({**config, **beat}, counts, run=lambda _, stop: stop.wait())
        made.start()
        return made

    first = begun("first")
    until(lambda: len(first.owned) == 4, "one worker has all")
    second = begun("second", holdfast_clean_leave="immediate")
    until(lambda: len(second.owned) == 2, "two workers share")
    second.close()
    until(lambda: len(first.owned) == 4, "what left for good is handed out")
    third = begun("third")
    until(lambda: len(third.owned) == 2, "two workers share")
    third.close(returns=False)
    until(lambda: len(first.owned) == 4, "what left for good is handed out")
    fourth = begun("fourth")
    until(lambda: len(fourth.owned) == 2, "two workers share")
    fourth.close()
    until(lambda: first.metrics().waiting, "the group waits")
    assert len(first.owned) == 2
    first.close()


def test_the_asyncio_consumer_of_confluent_says_it_too(broker):
    async def play() -> None:
        stage = Stage(broker.bootstrap, "confluent")
        topic = stage.topic(4)
        config = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": stage.group,
            "heartbeat.interval.ms": 300,
            **DEFERRED,
        }
        first = confluent.AIOConsumer({**config, "client.id": "first"})
        second = confluent.AIOConsumer({**config, "client.id": "second"})

        async def share(n: int, *polled: Any) -> None:
            for _ in range(600):
                for each in polled:
                    await each.poll(0.05)
                if len(await first.assignment()) == n:
                    return
            raise AssertionError(await first.assignment())

        await first.subscribe([topic.name])
        await share(4, first)
        await second.subscribe([topic.name])
        await share(2, first, second)
        await second.close(returns=False)
        await share(4, first)
        await first.close()

    asyncio.run(play())

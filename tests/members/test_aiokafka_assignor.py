"""Assignors for the stock aiokafka: their state, claims without a generation, live groups."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from tests.live.processes import create_topic
from tests.members.plugin_group import Cluster
from tests.suites import further

from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.core.wire.layouts.consumer_protocol import (
    StickyUserData,
    decode_sticky_user_data,
    decode_subscription,
    encode_sticky_user_data,
    encode_subscription,
)
from holdfast.errors import ConfigError, LocalProtocolError
from holdfast.members.clients.aiokafka.assignors import (
    AiokafkaAssignor,
    Range,
    RoundRobin,
    Sticky,
    assignor,
)

EAGER = sorted(name for name, info in ASSIGNORS.items() if not info.cooperative)


class Group:
    """aiokafka's calls in aiokafka's order, without a broker."""

    def __init__(self, partitions: int):
        self.cluster = Cluster({"t": partitions})
        self.members: dict[str, AiokafkaAssignor] = {}
        self.generations: dict[str, int] = {}  # of members whose client tells theirs

    def join(self, name: str, plugin: AiokafkaAssignor) -> None:
        self.members[name] = plugin

    def sent(self, name: str) -> bytes:
        """A member's subscription, with a generation where its client has one."""
        said = decode_subscription(bytes(self.members[name].metadata(["t"])))
        if name in self.generations:
            claim = replace(claimed(self.members[name]), generation=self.generations[name])
            said = replace(said, user_data=encode_sticky_user_data(claim))
        return encode_subscription(said)

    def round(self) -> dict[str, list[int]]:
        decoded = {n: ConsumerProtocolMemberMetadata.decode(self.sent(n)) for n in self.members}
        leader = next(iter(self.members.values()))
        plan = leader.assign(self.cluster, decoded)
        owned = {}
        for name, plugin in self.members.items():
            assignment = ConsumerProtocolMemberAssignment.decode(plan[name])
            plugin.on_assignment(assignment)
            owned[name] = sorted(tp.partition for tp in assignment.partitions())
        assert sorted(p for own in owned.values() for p in own) == list(
            range(self.cluster.partitions["t"])
        )
        return owned


def claimed(plugin: AiokafkaAssignor) -> StickyUserData:
    """What a member's next subscription claims."""
    return decode_sticky_user_data(decode_subscription(plugin.metadata(["t"])).user_data)


@pytest.mark.parametrize("name", EAGER)
def test_every_eager_assignor_runs_a_group(name):
    group = Group(7)
    options = {"group_id": "g"} if name == "lag" else {}
    for member in ("a", "b", "c"):
        group.join(member, assignor(name, **options))
        group.round()
    del group.members["a"]
    assert sorted(group.round()) == ["b", "c"]


def test_a_bounce_of_every_member_moves_no_more_than_it_must():
    """Who stays keeps all it has while a member is away, and gives up one when it is back."""
    group = Group(6)
    for member in ("a", "b", "c"):
        group.join(member, Sticky())
    before = group.round()
    for bounced in ("a", "b", "c"):
        del group.members[bounced]
        away = group.round()
        assert all(set(away[member]) > set(before[member]) for member in away)
        group.join(bounced, Sticky())  # a new process: it claims nothing
        back = group.round()
        assert all(set(back[member]) < set(away[member]) for member in away)
        assert {len(own) for own in back.values()} == {2}
        before = back


def grown(partitions: int) -> tuple[Group, dict[str, list[int]]]:
    """A group whose members came one by one, and what they own: not what all at once would."""
    group, at_once = Group(partitions), Group(partitions)
    for member in ("c", "b", "a"):
        group.join(member, Sticky())
        at_once.join(member, Sticky())
        owned = group.round()
    assert owned != at_once.round()
    return group, owned


def test_two_consumers_of_one_process_do_not_mix():
    first, second = Group(2), Group(2)
    mine, other = Sticky(), Sticky()
    first.join("a", mine)
    second.join("a", other)
    first.round()
    assert claimed(mine) == StickyUserData(partitions=(("t", (0, 1)),), generation=-1)
    assert claimed(other) == StickyUserData(partitions=(), generation=-1)


@pytest.mark.parametrize("first", ["a", "z"], ids=["stale-first", "stale-last"])
def test_a_stale_claim_costs_moves_and_nothing_else(first):
    """A member that was away claims what others have meanwhile, and nobody can tell its age."""
    group = Group(6)
    stale, other = first, "m"
    group.join(stale, Sticky())
    group.round()  # it has all, and is removed from the group without being told
    away = group.members.pop(stale)
    for member in (other, "n"):
        group.join(member, Sticky())
    group.round()
    group.join(stale, away)
    after = (
        group.round()
    )  # every partition is claimed twice; round() checks that each has one owner
    assert {len(own) for own in after.values()} == {2}
    assert group.round() == after  # and it is at rest


def test_a_claim_with_a_generation_goes_before_one_without():
    """Whether the member that knows its generation is listed first or last."""
    for knows, other in (("a", "z"), ("z", "a")):
        group = Group(4)
        group.join(knows, Sticky())
        group.round()
        old = group.members.pop(knows)
        group.join(other, Sticky())
        group.round()
        group.join(knows, old)
        group.join("m", Sticky())
        group.generations = {knows: 7}
        after = group.round()  # both claim all four; the newer claim keeps its share
        assert {len(own) for own in after.values()} <= {1, 2}
        assert len(after[knows]) == 2


def test_a_claim_without_a_generation_counts_where_nobody_else_claims():
    group, before = grown(6)
    group.generations = {"b": 7}  # a Java member among ours
    assert group.round() == before


def test_lags_reach_the_leader():
    group = Group(4)
    lag = [90, 1, 1, 80]
    for name in ("a", "b"):
        group.join(name, assignor("lag", lags=lambda _: {"t": lag}, group_id="g"))
    owned = group.round()
    assert sorted(sum(lag[p] for p in own) for own in owned.values()) == [81, 91]


def test_a_leader_that_cannot_plan_falls_back_to_range(monkeypatch, caplog):
    from holdfast.core.machine.leader import leader_round

    real = leader_round.read_group

    def broken(name, *rest, **options):
        if getattr(name, "name", name) == "sticky":
            raise RuntimeError("out of luck")
        return real(name, *rest, **options)

    monkeypatch.setattr(leader_round, "read_group", broken)
    group = Group(4)
    for name in ("a", "b"):
        group.join(name, Sticky())
    assert group.round() == {"a": [0, 1], "b": [2, 3]}
    assert "out of luck" in caplog.text


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda: assignor("cooperative-sticky"), ConfigError, "aiokafka runs only eager"),
        (lambda: assignor("range", speed=1), ConfigError, "unknown option 'speed'"),
        (lambda: assignor("rang"), ConfigError, "did you mean"),
        (lambda: assignor("holdfast-deferred"), ConfigError, r"or holdfast\.aiokafka"),
        (lambda: assignor("lag").metadata(["t"]), LocalProtocolError, r"give .*group_id"),
    ],
)
def test_misuse_is_refused(call, error, word):
    with pytest.raises(error, match=word):
        call()


async def started(broker, topic: str, plugin: AiokafkaAssignor) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=topic,
        heartbeat_interval_ms=200,
        session_timeout_ms=30_000,
        partition_assignment_strategy=[plugin],
    )
    await consumer.start()
    return consumer


async def until_shared(*consumers: AIOKafkaConsumer) -> list[set]:
    """Wait until these share six partitions evenly; the partitions of each."""
    async with asyncio.timeout(120):
        while True:
            owned = [set(consumer.assignment()) for consumer in consumers]
            if {len(own) for own in owned} == {6 // len(owned)} and len(set.union(*owned)) == 6:
                return owned
            await asyncio.sleep(0.05)


@pytest.mark.broker
@pytest.mark.parametrize("plugin", further([Sticky, Range, RoundRobin]))
def test_live_group(broker, plugin):
    """Two members share, one leaves, the other one has all."""
    topic = create_topic(broker.bootstrap, 6)

    async def scenario() -> None:
        running = [await started(broker, topic, plugin())]
        try:
            await until_shared(*running)
            running.append(await started(broker, topic, plugin()))
            await until_shared(*running)
            await running.pop().stop()
            await until_shared(*running)
        finally:
            for consumer in running:
                await consumer.stop()

    asyncio.run(scenario())


@pytest.mark.broker
def test_live_bounce_of_a_sticky_group(broker):
    """Every member stops once and comes back; the two others keep what they have."""
    topic = create_topic(broker.bootstrap, 6)

    async def scenario() -> None:
        running: list[AIOKafkaConsumer] = []
        try:
            for _ in range(3):
                running.append(await started(broker, topic, Sticky()))
                before = await until_shared(*running)
            for _ in range(3):  # the one that stops is the oldest of them
                await running.pop(0).stop()
                away = await until_shared(*running)
                assert all(had < has for had, has in zip(before[1:], away, strict=True))
                running.append(await started(broker, topic, Sticky()))
                before = await until_shared(*running)
                assert all(has < had for had, has in zip(away, before, strict=False))
        finally:
            for consumer in running:
                await consumer.stop()

    asyncio.run(scenario())

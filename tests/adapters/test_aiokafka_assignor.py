"""Plug-ins for aiokafka: state of their own, a generation, and a live group."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from tests.adapters.plugin_group import Cluster
from tests.live.processes import create_topic

from holdfast.adapters import aiokafka_assignor
from holdfast.adapters.aiokafka_assignor import (
    AiokafkaAssignor,
    Range,
    RoundRobin,
    Sticky,
    assignor,
    attach,
)
from holdfast.adapters.cluster.broker_lags import BrokerLags
from holdfast.assignors.registry import ASSIGNORS
from holdfast.errors import ConfigError, LocalProtocolError
from holdfast.wire.layouts.consumer_protocol import decode_subscription
from holdfast.wire.layouts.sticky_user_data import decode_sticky_user_data

EAGER = sorted(name for name, info in ASSIGNORS.items() if not info.cooperative)


class Group:
    """aiokafka's calls in aiokafka's order, without a broker."""

    def __init__(self, partitions: int):
        self.cluster = Cluster({"t": partitions})
        self.generation = 0
        self.members: dict[str, AiokafkaAssignor] = {}

    def join(self, name: str, plugin: AiokafkaAssignor) -> None:
        plugin.bind(lambda: self.generation, lambda: None)
        self.members[name] = plugin

    def round(self) -> dict[str, list[int]]:
        sent = {name: plugin.metadata(["t"]) for name, plugin in self.members.items()}
        self.generation += 1
        decoded = {n: ConsumerProtocolMemberMetadata.decode(data) for n, data in sent.items()}
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


@pytest.mark.parametrize("name", EAGER)
def test_every_eager_assignor_runs_a_group(name):
    group = Group(7)
    for member in ("a", "b", "c"):
        group.join(member, assignor(name))
        group.round()
    del group.members["a"]
    assert sorted(group.round()) == ["b", "c"]


def test_sticky_keeps_what_it_can():
    group = Group(6)
    for member in ("a", "b", "c"):
        group.join(member, Sticky())
    before = group.round()
    del group.members["b"]
    after = group.round()
    assert set(after["a"]) > set(before["a"])
    assert set(after["c"]) > set(before["c"])


def test_two_consumers_of_one_process_do_not_mix():
    first, second = Group(2), Group(2)
    mine, other = Sticky(), Sticky()
    first.join("a", mine)
    second.join("a", other)
    first.round()
    assert decode_subscription(other.metadata(["t"])).user_data is not None
    claim = decode_sticky_user_data(decode_subscription(other.metadata(["t"])).user_data)
    assert (claim.partitions, claim.generation) == ((), -1)


def test_a_claim_carries_its_generation():
    """The newest claim wins although a stale one is listed last."""
    group = Group(4)
    old, new = Sticky(), Sticky()
    group.join("z", old)
    group.round()
    del group.members["z"]
    group.join("a", new)
    group.round()
    group.members["z"] = old
    claims = [
        decode_sticky_user_data(decode_subscription(p.metadata(["t"])).user_data)
        for p in (old, new)
    ]
    assert [claim.generation for claim in claims] == [1, 2]
    kept = group.round()["a"]
    assert len(kept) == 2


def test_a_claim_of_a_generation_that_cannot_exist_counts_as_none():
    group = Group(6)
    for name in ("a", "b"):
        group.join(name, Sticky())
        group.round()
    before = group.round()
    liar = Sticky()
    group.join("c", liar)
    liar._memory.last, liar._memory.generation = frozenset(("t", p) for p in range(6)), 10**6
    after = group.round()
    assert set(after["a"]) < set(before["a"])
    assert set(after["b"]) < set(before["b"])
    # A leader that missed rounds knows the generation of this one, not only that of its last one.
    group.generation += 5
    liar._memory.generation = group.generation
    group.members["b"]._memory.generation = group.generation
    liar._memory.last = frozenset()
    assert set(group.round()["b"]) == set(after["b"])


def test_lags_reach_the_leader():
    group = Group(4)
    lag = [90, 1, 1, 80]
    for name in ("a", "b"):
        group.join(name, assignor("lag", lags=lambda _: {"t": lag}))
    owned = group.round()
    assert sorted(sum(lag[p] for p in own) for own in owned.values()) == [81, 91]


def test_a_leader_that_cannot_plan_falls_back_to_range(monkeypatch, caplog):
    from holdfast.machine.leader import leader_turn

    real = leader_turn.perform_assignment

    def broken(name: str, *rest, **options):
        if name == "sticky":
            raise RuntimeError("out of luck")
        return real(name, *rest, **options)

    monkeypatch.setattr(leader_turn, "perform_assignment", broken)
    group = Group(4)
    for name in ("a", "b"):
        group.join(name, Sticky())
    assert group.round() == {"a": [0, 1], "b": [2, 3]}
    assert "out of luck" in caplog.text


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda: assignor("cooperative-sticky"), ConfigError, "aiokafka runs eager"),
        (lambda: assignor("range", speed=1), ConfigError, "unknown option 'speed'"),
        (lambda: assignor("rang"), ConfigError, "did you mean"),
        (lambda: Sticky().metadata(["t"]), LocalProtocolError, r"call attach\(consumer\)"),
    ],
)
def test_misuse_is_refused(call, error, word):
    with pytest.raises(error, match=word):
        call()


def test_an_untested_version_is_refused(monkeypatch):
    consumer = SimpleNamespace(
        _partition_assignment_strategy=[Sticky()],
        _coordinator=None,
        _group_id="g",
        _auto_offset_reset="latest",
    )
    monkeypatch.setattr(aiokafka_assignor.aiokafka, "__version__", "9.0")
    with pytest.raises(ConfigError, match=r"aiokafka 9\.0 was not tested"):
        attach(consumer)
    attach(consumer, allow_untested=True)
    with pytest.raises(LocalProtocolError, match="belongs to one consumer"):
        attach(consumer, allow_untested=True)


@pytest.mark.broker
@pytest.mark.parametrize("plugin", [Sticky, Range, RoundRobin])
def test_live_group(broker, plugin):
    """Two members share, one leaves, the other one has all; sticky keeps what it had."""
    topic = create_topic(broker.bootstrap, 6)

    async def start() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=topic,
            heartbeat_interval_ms=200,
            session_timeout_ms=30_000,
            partition_assignment_strategy=[plugin()],
        )
        attach(consumer)
        await consumer.start()
        return consumer

    async def wait(condition) -> None:
        async with asyncio.timeout(120):
            while not condition():
                await asyncio.sleep(0.05)

    async def scenario() -> None:
        first, second = await start(), None
        try:
            await wait(lambda: len(first.assignment()) == 6)
            second = await start()
            await wait(lambda: len(first.assignment()) == len(second.assignment()) == 3)
            assert not first.assignment() & second.assignment()
            kept = first.assignment()
            await second.stop()
            second = None
            await wait(lambda: len(first.assignment()) == 6)
            (one,) = first._partition_assignment_strategy
            assert one._memory.generation == first._coordinator.generation >= 3
            assert kept < first.assignment()
        finally:
            for consumer in (first, second):
                if consumer is not None:
                    await consumer.stop()

    asyncio.run(scenario())


def test_attached_assignors_share_what_they_know_and_take_group_and_reset():
    """aiokafka tells only the chosen assignor of an assignment."""
    lags = BrokerLags(None, None, "latest")
    made = [Range(), Sticky(), assignor("lag", lags=lags)]
    consumer = SimpleNamespace(
        _partition_assignment_strategy=made,
        _coordinator=None,
        _group_id="etl",
        _auto_offset_reset="earliest",
    )
    attach(consumer)
    made[0].on_assignment(
        SimpleNamespace(partitions=lambda: [SimpleNamespace(topic="t", partition=0)])
    )
    claim = decode_sticky_user_data(decode_subscription(made[1].metadata(["t"])).user_data)
    assert claim.partitions == (("t", (0,)),)
    assert made[2].spoken.options == {"group_id": "etl"}
    assert lags.reset == "earliest"


def test_lag_without_attach_wants_the_group_for_its_last_tie_break():
    with pytest.raises(LocalProtocolError, match=r"attach\(consumer\) first, or .*group_id"):
        assignor("lag").metadata({"t"})
    assert assignor("lag", group_id="etl").metadata({"t"})

"""Rules of a member that only a real coordinator can show: one sentence of docs/members.md each."""

from __future__ import annotations

import contextlib
import logging

import pytest
from tests.live.crew import (
    ConsumerThread,
    Held,
    Topic,
    account,
    closing,
    commit_alone,
    commit_in,
    fresh,
    overlaps,
    spread,
    transaction,
)
from tests.live.polled import Stock
from tests.live.waiting import until

from holdfast.core.machine import actions
from holdfast.members.runtime.lags import BrokerLags

pytestmark = pytest.mark.broker


def committed(consumer_thread: ConsumerThread, topic: Topic) -> int:
    tps = [(topic.name, p) for p in range(topic.n_partitions)]
    return sum(at or 0 for at in consumer_thread.consumer.committed(tps).values())


def test_members_read_and_commit_while_a_round_waits_for_one_of_them(broker):
    topic, group = Topic(broker.bootstrap, 4), fresh("group")
    late = ConsumerThread(broker.bootstrap, group, [topic.name]).start()
    quick = ConsumerThread(broker.bootstrap, group, [topic.name]).start()
    until(lambda: spread([late, quick], topic), "two members share")
    held = Held(late.consumer._session.runtime, actions.SendJoin)
    joiner = ConsumerThread(broker.bootstrap, group, [topic.name]).start()
    until(lambda: held.n_held, "the round has begun, and waits")
    until(lambda: quick.consumer.metrics().state == "PREPARING_REBALANCE", "the quick one joins")
    generation = quick.consumer.generation
    topic.produce(10)
    until(lambda: account([late, quick], topic)[0] == 0, "both read on")
    until(lambda: committed(quick, topic) == 40, "both commit")
    assert quick.consumer.generation == generation
    held.let_go()
    consumer_threads = [late, quick, joiner]
    until(lambda: spread(consumer_threads, topic), "three members share")
    assert closing(consumer_threads) == {}
    assert account(consumer_threads, topic) == (0, 0)


def test_a_partition_starts_after_the_open_transaction_that_commits_it(broker):
    topic, group = Topic(broker.bootstrap, 1, 8), fresh("group")
    producer = transaction(broker.bootstrap)
    commit_in(producer, broker.bootstrap, group, topic.name, 6)
    consumer_thread = ConsumerThread(broker.bootstrap, group, [topic.name]).start()
    coordinator = consumer_thread.consumer._session.runtime.coordinator
    asked, fetch = [], coordinator._fetch_committed

    def count(*request):
        asked.append(request)
        return fetch(*request)

    coordinator._fetch_committed = count
    until(lambda: len(asked) >= 3, "it asks again and again: the offset is not stable")
    assert consumer_thread.read == []
    producer.commit_transaction(60)
    until(lambda: len(consumer_thread.read) == 2, "it reads what is left")
    assert [offset for _, _, offset in consumer_thread.read] == [6, 7]
    assert closing([consumer_thread]) == {}


def test_a_static_leader_that_returns_keeps_the_assignment_and_watches_the_topics(broker):
    """KIP-814: it skips the assignment, and still sees new partitions.

    Under Design II: elsewhere the leader asks for a round as soon as it is back.
    """
    topic, group = Topic(broker.bootstrap, 4), fresh("group")

    def consumer_thread(name):
        return ConsumerThread(
            broker.bootstrap,
            group,
            [topic.name],
            group_instance_id=name,
            metadata_max_age_ms=300,
            holdfast_policy="deferred",
        ).start()

    leader = consumer_thread("a")
    until(lambda: len(leader.owns) == 4, "one member owns all")
    follower = consumer_thread("b")
    until(lambda: spread([leader, follower], topic), "two members share")
    until(lambda: leader.consumer.generation == follower.consumer.generation, "settled")
    assert leader.consumer.metrics().is_leader
    generation, had = leader.consumer.generation, leader.owns
    leader.stop(returns=True)
    again = consumer_thread("a")
    until(lambda: again.owns == had, "it has its partitions back")
    assert (again.consumer.generation, again.consumer.metrics().is_leader) == (generation, True)
    topic.grow(6)
    until(lambda: spread([again, follower], topic), "the new partitions are shared")
    assert again.consumer.generation > generation
    assert closing([again, follower]) == {}
    assert overlaps([leader, again, follower]) == []


def test_latest_begins_at_the_end(broker):
    topic, group = Topic(broker.bootstrap, 1, 5), fresh("group")
    consumer_thread = ConsumerThread(
        broker.bootstrap, group, [topic.name], auto_offset_reset="latest"
    ).start()
    until(consumer_thread.consumer._session.adapter.has_begun, "it has begun")
    topic.produce(2)
    until(lambda: len(consumer_thread.read) == 2, "the new records")
    assert [offset for _, _, offset in consumer_thread.read] == [5, 6]
    assert closing([consumer_thread]) == {}


def test_a_partition_paused_in_its_callback_hands_nothing_out(broker):
    topic, group = Topic(broker.bootstrap, 2, 5), fresh("group")
    consumer_thread = ConsumerThread(broker.bootstrap, group, [topic.name])
    consumer_thread.on_assigned = lambda parts: consumer_thread.consumer.pause(
        [p for p in parts if p.partition == 0]
    )
    consumer_thread.start()
    until(lambda: len(consumer_thread.read) == 5, "the other partition is read")
    assert {p for _, p, _ in consumer_thread.read} == {1}
    consumer_thread.consumer.resume([(topic.name, 0)])
    until(lambda: account([consumer_thread], topic) == (0, 0), "all is read, once")
    assert closing([consumer_thread]) == {}


def test_an_offset_committed_in_the_callback_is_where_the_partition_starts(broker):
    topic, group = Topic(broker.bootstrap, 1, 9), fresh("group")
    consumer_thread = ConsumerThread(broker.bootstrap, group, [topic.name])
    consumer_thread.on_assigned = lambda parts: consumer_thread.consumer.commit(
        {(p.topic, p.partition): 6 for p in parts}
    )
    consumer_thread.start()
    until(lambda: len(consumer_thread.read) == 3, "what is left")
    assert [offset for _, _, offset in consumer_thread.read] == [6, 7, 8]
    assert closing([consumer_thread]) == {}


def test_what_a_callback_of_the_close_commits_is_committed(broker):
    topic, group = Topic(broker.bootstrap, 2, 5), fresh("group")
    consumer_thread = ConsumerThread(
        broker.bootstrap, group, [topic.name], enable_auto_commit=False
    )
    asked = []

    def revoked(partitions):
        here, owned = consumer_thread.consumer, sorted(consumer_thread.consumer.assignment())
        asked.append((owned, [here.position(tp) for tp in owned], here.committed(owned)))
        here.commit()
        asked.append(here.committed(owned))

    consumer_thread.on_partitions_revoked = revoked
    consumer_thread.start()
    until(lambda: len(consumer_thread.read) == 10, "all is read")
    assert closing([consumer_thread]) == {}
    both = [(topic.name, 0), (topic.name, 1)]
    assert asked == [(both, [5, 5], dict.fromkeys(both)), dict.fromkeys(both, 5)]
    after = ConsumerThread(broker.bootstrap, group, [topic.name]).start()
    until(lambda: len(after.owns) == 2, "the next owner")
    assert committed(after, topic) == 10
    assert closing([after]) == {}


def test_what_is_logged_carries_group_member_and_generation(broker, caplog):
    topic, group = Topic(broker.bootstrap, 1), fresh("group")
    caplog.set_level(logging.INFO, "holdfast.member")
    consumer_thread = ConsumerThread(broker.bootstrap, group, [topic.name], client_id="me").start()
    until(lambda: len(consumer_thread.owns) == 1, "an assignment")
    records = [r for r in caplog.records if getattr(r, "group", None) == group]
    rounds = [r for r in records if "gained 1" in r.getMessage()]
    assert len(rounds) == 1
    assert rounds[0].client_id == "me"
    assert rounds[0].member_id == consumer_thread.consumer.member_id != ""
    assert rounds[0].generation == consumer_thread.consumer.generation >= 1
    assert closing([consumer_thread]) == {}


# Lags


def lagging(broker, group: str, topic: Topic, lags: list[int]) -> None:
    """A group that has committed so far behind."""
    topic.produce(max(lags))
    behind = {(topic.name, p): max(lags) - lag for p, lag in enumerate(lags)}
    commit_alone(broker.bootstrap, group, behind)


def test_the_ready_source_reads_lags_from_the_broker(broker):
    topic, group = Topic(broker.bootstrap, 4), fresh("group")
    lagging(broker, group, topic, [90, 0, 3, 88])
    config = {"bootstrap.servers": broker.bootstrap, "group.id": group}
    never = Topic(broker.bootstrap, 1)
    never.produce(7)
    counts = {topic.name: 4, never.name: 1}
    for reset, unread in (("earliest", 7), ("latest", 0)):
        source = BrokerLags.connect({**config, "auto.offset.reset": reset})
        try:
            assert source(counts) == {topic.name: [90, 0, 3, 88], never.name: [unread]}
            assert source({}) == {}
        finally:
            source.close()


@pytest.mark.parametrize(
    "strategy", [{"holdfast_policy": "eager"}, {"holdfast_policy": "deferred"}], ids=str
)
def test_lags_from_the_broker_decide_without_any_setting(broker, strategy):
    """By counts the second member would get neighbours; by lags it gets a large and a small one."""
    topic, group = Topic(broker.bootstrap, 4), fresh("group")
    lagging(broker, group, topic, [90, 80, 3, 1])
    name = "lag" if strategy["holdfast_policy"] == "eager" else "lag-sticky"
    wanted = {
        "partition_assignment_strategy": name,
        "enable_auto_commit": False,
        "holdfast_lag_timeout_ms": 60_000,  # a broker that is late would be no reason to go without
        **strategy,
    }
    consumer_threads = [
        ConsumerThread(broker.bootstrap, group, [topic.name], **wanted).start() for _ in range(2)
    ]
    until(lambda: spread(consumer_threads, topic), "two members share")
    assert sorted(h.owns for h in consumer_threads) == [[0, 3], [1, 2]]
    assert closing(consumer_threads) == {}


# Our assignors in kafka-python's consumer


@pytest.mark.every
def test_every_assignor_of_the_registry_serves_a_stock_client(broker):
    from holdfast.core.assignors.registry import ASSIGNORS
    from holdfast.members.clients.kafka.assignors import assignor

    topic, members = Topic(broker.bootstrap, 3), {}
    with contextlib.ExitStack() as stack:
        for name, info in ASSIGNORS.items():
            group = fresh(name)
            options = {"group_id": group} if "group_id" in info.options else {}
            stock = Stock(broker.bootstrap, group, topic.name, assignor(name, **options))
            members[name] = stack.enter_context(stock)
        for name, member in members.items():
            until(lambda m=member: len(m.owns) == 3, name)


def test_lags_from_the_broker_decide_in_a_stock_client(broker):
    from holdfast.members.clients.kafka.assignors import assignor

    topic, group = Topic(broker.bootstrap, 4), fresh("group")
    lagging(broker, group, topic, [90, 80, 3, 1])
    asked = {"bootstrap.servers": broker.bootstrap, "group.id": group}

    def member():
        ours = assignor("lag", lags=source, lag_timeout_ms=8_000, group_id=group)
        return Stock(broker.bootstrap, group, topic.name, ours)

    with (
        contextlib.closing(BrokerLags.connect(asked | {"auto.offset.reset": "earliest"})) as source,
        member() as one,
        member() as other,
    ):
        until(lambda: len(one.owns) == len(other.owns) == 2, "two members share")
        assert sorted([one.owns, other.owns]) == [[0, 3], [1, 2]]

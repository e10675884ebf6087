"""Rules of a member that only a real coordinator can show: one sentence of docs/members.md each."""

from __future__ import annotations

import contextlib
import logging

import pytest
from tests.live.crew import (
    ConsumerThread,
    Held,
    ThreadGroup,
    Topic,
    commit_alone,
    commit_in,
    fresh,
    transaction,
)
from tests.live.polled import Stock
from tests.live.waiting import until

from holdfast.core.machine import actions
from holdfast.members.runtime.coordinator_client import BrokerLags

pytestmark = pytest.mark.broker


def committed(thread: ConsumerThread, topic: Topic) -> int:
    tps = [(topic.name, p) for p in range(topic.n_partitions)]
    return sum(at or 0 for at in thread.consumer.committed(tps).values())


def test_members_read_and_commit_while_a_round_waits_for_one_of_them(broker):
    with ThreadGroup(broker.bootstrap, 4) as group:
        late, quick = group.join(), group.join()
        group.await_spread()
        held = Held(late.consumer._session.runtime, actions.SendJoin)
        group.join()
        until(lambda: held.n_held, "the round has begun, and waits")
        until(
            lambda: quick.consumer.metrics().state == "PREPARING_REBALANCE", "the quick one joins"
        )
        generation = quick.consumer.generation
        group.topic.produce(10)
        group.await_read()
        until(lambda: committed(quick, group.topic) == 40, "both commit")
        assert quick.consumer.generation == generation
        held.let_go()
        group.await_spread()
    assert group.account() == (0, 0)


def test_a_partition_starts_after_the_open_transaction_that_commits_it(broker):
    with ThreadGroup(broker.bootstrap, 1, 8) as group:
        producer = transaction(broker.bootstrap)
        commit_in(producer, broker.bootstrap, group.name, group.topic.name, 6)
        thread = group.join()
        coordinator = thread.consumer._session.runtime.coordinator
        asked, fetch = [], coordinator._fetch_committed

        def count(*request):
            asked.append(request)
            return fetch(*request)

        coordinator._fetch_committed = count
        until(lambda: len(asked) >= 3, "it asks again and again: the offset is not stable")
        assert thread.read == []
        producer.commit_transaction(60)
        until(lambda: thread.offsets == [6, 7], "it reads what is left")


def test_a_static_leader_that_returns_keeps_the_assignment_and_watches_the_topics(broker):
    """KIP-814: it skips the assignment, and still sees new partitions.

    Under Design II: elsewhere the leader asks for a round as soon as it is back.
    """
    config = {"metadata_max_age_ms": 300, "holdfast_policy": "deferred"}
    with ThreadGroup(broker.bootstrap, 4, **config) as group:
        leader = group.join(group_instance_id="a")
        group.await_spread()
        follower = group.join(group_instance_id="b")
        group.await_spread()
        until(lambda: leader.consumer.generation == follower.consumer.generation, "settled")
        assert leader.consumer.metrics().is_leader
        generation, had = leader.consumer.generation, leader.owns
        leader.stop(returns=True)
        again = group.join(group_instance_id="a")
        until(lambda: again.owns == had, "it has its partitions back")
        now = again.consumer
        assert (now.generation, now.metrics().is_leader) == (generation, True)
        group.topic.grow(6)
        group.await_spread()
        assert now.generation > generation
    assert group.overlaps() == []


def test_latest_begins_at_the_end(broker):
    with ThreadGroup(broker.bootstrap, 1, 5, auto_offset_reset="latest") as group:
        thread = group.join()
        until(thread.consumer._session.adapter.is_fetching, "it has begun")
        group.topic.produce(2)
        until(lambda: thread.offsets == [5, 6], "the new records")


def test_a_partition_paused_in_its_callback_hands_nothing_out(broker):
    with ThreadGroup(broker.bootstrap, 2, 5) as group:
        thread = group.consumer()
        thread.on_assigned = lambda parts: thread.consumer.pause(
            [p for p in parts if p.partition == 0]
        )
        thread.start()
        until(lambda: len(thread.read) == 5, "the other partition is read")
        assert {p for _, p, _ in thread.read} == {1}
        thread.consumer.resume([(group.topic.name, 0)])
        group.await_read()
    assert group.account() == (0, 0)


def test_an_offset_committed_in_the_callback_is_where_the_partition_starts(broker):
    with ThreadGroup(broker.bootstrap, 1, 9) as group:
        thread = group.consumer()
        thread.on_assigned = lambda parts: thread.consumer.commit(
            {(p.topic, p.partition): 6 for p in parts}
        )
        thread.start()
        until(lambda: thread.offsets == [6, 7, 8], "what is left")


def test_what_a_callback_of_the_close_commits_is_committed(broker):
    with ThreadGroup(broker.bootstrap, 2, 5) as group:
        thread, asked = group.consumer(enable_auto_commit=False), []

        def revoked(partitions):
            here, owned = thread.consumer, sorted(thread.consumer.assignment())
            asked.append((owned, [here.position(tp) for tp in owned], here.committed(owned)))
            here.commit()
            asked.append(here.committed(owned))

        thread.on_partitions_revoked = revoked
        thread.start()
        group.await_read()
        thread.stop()
        both = [(group.topic.name, 0), (group.topic.name, 1)]
        assert asked == [(both, [5, 5], dict.fromkeys(both)), dict.fromkeys(both, 5)]
        after = group.join()
        group.await_spread()
        assert committed(after, group.topic) == 10


def test_what_is_logged_carries_group_member_and_generation(broker, caplog):
    caplog.set_level(logging.INFO, "holdfast.member")
    with ThreadGroup(broker.bootstrap, 1) as group:
        thread = group.join(client_id="me")
        group.await_spread()
        records = [r for r in caplog.records if getattr(r, "group", None) == group.name]
        (assigned,) = [r for r in records if "gained 1" in r.getMessage()]
        assert assigned.client_id == "me"
        assert assigned.member_id == thread.consumer.member_id != ""
        assert assigned.generation == thread.consumer.generation >= 1


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


@pytest.mark.parametrize("policy", ["eager", "deferred"])
def test_lags_from_the_broker_decide_without_any_setting(broker, policy):
    """By counts the second member would get neighbours; by lags it gets a large and a small one."""
    wanted = {
        "holdfast_policy": policy,
        "partition_assignment_strategy": "lag" if policy == "eager" else "lag-sticky",
        "enable_auto_commit": False,
        "holdfast_lag_timeout_ms": 60_000,  # a broker that is late would be no reason to go without
    }
    with ThreadGroup(broker.bootstrap, 4, **wanted) as group:
        lagging(broker, group.name, group.topic, [90, 80, 3, 1])
        one, other = group.join(), group.join()
        group.await_spread()
        assert sorted([one.owns, other.owns]) == [[0, 3], [1, 2]]


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

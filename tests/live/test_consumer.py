"""What only ``holdfast.Consumer`` has, in real groups on a real broker.

What the programs of every client see is in ``test_sessions.py`` and its neighbours.
"""

from __future__ import annotations

import pytest
from tests.live.crew import QUICK, ThreadGroup, Topic, fresh
from tests.live.waiting import until
from tests.members.test_client_keys import FAMILIAR
from tests.suites import further

from holdfast import Consumer
from holdfast.cluster import client_configs
from holdfast.errors import LocalProtocolError
from holdfast.members.clients.librdkafka.consumer_adapter import ConsumerAdapter
from holdfast.metrics import prometheus_text

pytestmark = pytest.mark.broker

POLICIES = ["eager", "simple", "deferred", "incremental"]


@pytest.mark.parametrize("policy", further(POLICIES, stays=["deferred"]))
def test_a_group_grows_and_shrinks_and_every_record_is_read_once(broker, policy):
    delay = {"scheduled_rebalance_max_delay_ms": 1_000, "holdfast_policy": policy}
    with ThreadGroup(broker.bootstrap, 6, 20, **delay) as group:
        group.join()
        group.await_spread()
        second, _ = group.join(), group.join()
        group.await_spread()
        group.topic.produce(20)
        second.stop(returns=False)
        group.await_spread()
        group.topic.produce(20)
        group.await_read()
    assert group.overlaps() == []
    assert group.account() == (0, 0)


def test_others_go_on_while_one_member_is_busy_with_its_batch(broker):
    with ThreadGroup(broker.bootstrap, 4) as group:
        busy, quick = group.join(), group.join()
        group.await_spread()
        busy.hold()
        group.topic.produce(5)
        until(busy.is_held.is_set, "the busy member is busy")
        joiner = group.join()
        # The round completes with the busy member in it: it joins in the background.
        until(lambda: busy.consumer.generation == joiner.consumer.generation > 0, "a round")
        before = len(quick.read)
        group.topic.produce(5)
        until(lambda: len(quick.read) > before, "the quick member reads on")
        assert busy.is_held.is_set()
        busy.release()
        group.await_read()
    assert group.overlaps() == []


def test_an_eager_sticky_member_does_not_fetch_again_what_comes_back_to_it(broker, monkeypatch):
    """KIP-54, "Motivation": its records wait in the buffers for the end of the round."""
    began, fetched = ConsumerAdapter.use_start_offsets, []

    def note(adapter, places):
        given = began(adapter, places)
        fetched.extend(adapter for _ in given)
        return given

    monkeypatch.setattr(ConsumerAdapter, "use_start_offsets", note)
    with ThreadGroup(broker.bootstrap, 4, 50, partition_assignment_strategy="sticky") as group:
        group.join()
        group.await_read()
        assert len(fetched) == 4
        second = group.join()
        group.await_spread()
        group.topic.produce(50)
        group.await_read()
        assert fetched[4:] == [second.consumer._session.adapter] * 2
    assert group.account() == (0, 0)


def test_a_deferring_group_need_not_wait_for_a_member_that_left_for_good(broker):
    policy = {
        "holdfast_policy": "deferred",
        "scheduled_rebalance_max_delay_ms": 600_000,
        "holdfast_clean_leave": "immediate",
    }
    with ThreadGroup(broker.bootstrap, 4, **policy) as group:
        _, other = group.join(), group.join()
        group.await_spread()
        other.stop(returns=False)
        group.await_spread()


def test_lags_decide_and_a_broken_source_does_not_stop_the_group(broker):
    calls = []

    def lags(partitions):
        calls.append(dict(partitions))
        if len(calls) > 3:
            raise TimeoutError("the source is gone")
        return {group.topic.name: [900, 10, 10, 880]}

    lag = {
        "holdfast_policy": "eager",
        "partition_assignment_strategy": "lag",
        "holdfast_lag_source": lags,
    }
    with ThreadGroup(broker.bootstrap, 4, **lag) as group:
        first, second = group.join(), group.join()
        group.await_spread()
        assert calls[0] == {group.topic.name: 4}
        assert sorted([first.owns, second.owns]) != [[0, 3], [1, 2]]
        group.join()
        group.await_spread()  # by counts


def test_numbers_for_people_and_prometheus(broker):
    with ThreadGroup(broker.bootstrap, 2, 5) as group:
        consumer = group.join().consumer
        until(lambda: consumer.metrics().records_consumed_total == 10, "records are counted")
        until(lambda: consumer.metrics().commit_total >= 1, "commits are counted")
        now = consumer.metrics()
        assert (now.assigned_partitions, now.rebalance_total >= 1, now.is_leader) == (2, True, True)
        assert now.rebalance_latency_max >= max(now.join_time_max, now.sync_time_max) > 0
        assert (now.join_total, now.sync_total) >= (1, 1)
        name = "kafka_consumer_coordinator_assigned_partitions"
        line = f'{name}{{client_id="holdfast",group="{group.name}"}}'
        assert line in prometheus_text(consumer)


def test_a_consumer_asks_for_topics_and_offsets_and_commits_without_waiting(broker):
    topic, answers = Topic(broker.bootstrap, 2, 5), []
    both = [(topic.name, 0), (topic.name, 1)]
    config = {"bootstrap.servers": broker.bootstrap, "group.id": fresh("group"), **QUICK}
    with Consumer({**config, "enable.auto.commit": False}) as consumer:
        consumer.subscribe([topic.name])
        until(lambda: consumer.poll_one(0.2) is not None, "there is a record")
        assert consumer.subscription() == {topic.name}
        assert consumer.list_topics()[topic.name] == 2
        assert consumer.beginning_offsets(both) == dict.fromkeys(both, 0)
        assert consumer.end_offsets(both) == dict.fromkeys(both, 5)
        times = {(topic.name, 0): 0, (topic.name, 1): 10**15}
        assert consumer.offsets_for_times(times) == {(topic.name, 0): 0, (topic.name, 1): None}
        with pytest.raises(LocalProtocolError, match="not negative"):
            consumer.offsets_for_times({(topic.name, 0): -1})
        consumer.seek_to_end()
        assert [consumer.position(tp) for tp in both] == [5, 5]
        consumer.commit_async({both[0]: 3}, lambda *answer: answers.append(answer))
        until(lambda: consumer.poll(0.1) == [] and answers, "a later call tells the answer")
        assert answers == [({both[0]: 3}, None)]
        consumer.seek_to_committed(both[0])
        consumer.seek_to_beginning(both[1])
        assert [consumer.position(tp) for tp in both] == [3, 0]
        with pytest.raises(LocalProtocolError, match="not this member's"):
            consumer.commit_async({(topic.name, 7): 1})
        metadata = consumer.group_metadata()
        assert consumer.member_id.encode() in metadata
        before = consumer.generation
        consumer.enforce_rebalance()
        until(lambda: consumer.poll(0.1) is not None and consumer.generation > before, "a round")
        consumer.unsubscribe()
        with pytest.raises(LocalProtocolError, match="subscribe"):
            consumer.poll()


def test_a_pause_ends_with_the_ownership_of_its_partition(broker):
    """Somebody else had it meanwhile."""
    with ThreadGroup(broker.bootstrap, 2) as group:
        one, topic = group.join(), group.topic
        group.await_spread()
        one.consumer.pause([(topic.name, 0), (topic.name, 1)])
        other = group.join()
        group.await_spread()
        (away,) = other.owns
        other.stop()
        group.await_spread()
        topic.produce(5)
        until(lambda: len(one.read) == 5, "records of what came back")
        assert {p for _, p, _ in one.read} == {away}
        assert one.consumer.paused() == {(topic.name, 1 - away)}


SAME = {"max.in.flight", "socket.receive.buffer.bytes"}  # beside the key that they are
ALL = {
    key: value
    for key, value in FAMILIAR.items()
    if key not in {*QUICK, *SAME, "debug"} and client_configs.ALIASES.get(key, key) not in QUICK
}
OTHER_SPELLINGS = {key: ALL[key] for key in ALL if key in client_configs.ALIASES}
FIRST_SPELLINGS = {key: ALL[key] for key in ALL if key not in client_configs.ALIASES}
GROUPS = {
    "first spellings": FIRST_SPELLINGS,
    "other spellings": OTHER_SPELLINGS,
}


@pytest.mark.parametrize("keys", GROUPS.values(), ids=GROUPS)
def test_records_come_under_familiar_keys(broker, keys):
    assert len(keys) >= 5
    topic, group = Topic(broker.bootstrap, 1, 3), fresh("group")
    config = {"bootstrap.servers": broker.bootstrap, "group.id": group, **QUICK, **keys}
    if "group.instance.id" in config:
        config["group.instance.id"] = fresh("instance")
    with Consumer(config) as consumer:
        consumer.subscribe([topic.name])
        got: list[object] = []
        until(lambda: got.extend(consumer.poll(0.2)) or len(got) == 3, "records")
        consumer.commit()
        assert consumer.committed([(topic.name, 0)]) == {(topic.name, 0): 3}

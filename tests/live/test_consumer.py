"""What only ``holdfast.Consumer`` has, in real groups on a real broker.

What the programs of every client see is in ``test_sessions.py`` and its neighbours.
"""

from __future__ import annotations

import pytest
from tests.live.crew import QUICK, ConsumerThread, Topic, account, closing, fresh, overlaps, spread
from tests.live.waiting import until
from tests.suites import further

from holdfast import Consumer
from holdfast.errors import LocalProtocolError
from holdfast.members.clients.librdkafka.consumer_adapter import ConsumerAdapter
from holdfast.metrics import prometheus_text

pytestmark = pytest.mark.broker

POLICIES = ["eager", "simple", "deferred", "incremental"]


@pytest.mark.parametrize("policy", further(POLICIES, stays=["deferred"]))
def test_a_group_grows_and_shrinks_and_every_record_is_read_once(broker, policy):
    topic, group = Topic(broker.bootstrap, 6, 20), fresh("group")
    delay = {"scheduled_rebalance_max_delay_ms": 1_000, "holdfast_policy": policy}

    def consumer_thread():
        return ConsumerThread(broker.bootstrap, group, [topic.name], **delay).start()

    first = consumer_thread()
    until(lambda: len(first.owns) == 6, "one member owns all")
    second, third = consumer_thread(), consumer_thread()
    until(lambda: spread([first, second, third], topic), "three members share evenly")
    topic.produce(20)
    second.stop(returns=False)
    until(lambda: spread([first, third], topic), "two members share evenly")
    topic.produce(20)
    consumer_threads = [first, second, third]
    until(lambda: account(consumer_threads, topic)[0] == 0, "every record is read")
    assert closing([first, third]) == {}
    assert overlaps(consumer_threads) == []
    assert account(consumer_threads, topic) == (0, 0)


def test_others_go_on_while_one_member_is_busy_with_its_batch(broker):
    topic, group = Topic(broker.bootstrap, 4), fresh("group")
    busy = ConsumerThread(broker.bootstrap, group, [topic.name]).start()
    quick = ConsumerThread(broker.bootstrap, group, [topic.name]).start()
    until(lambda: spread([busy, quick], topic), "two members share")
    busy.hold()
    topic.produce(5)
    until(busy.is_held.is_set, "the busy member is busy")
    joiner = ConsumerThread(broker.bootstrap, group, [topic.name]).start()
    # The round completes with the busy member in it: it joins in the background.
    until(lambda: busy.consumer.generation == joiner.consumer.generation > 0, "a round completes")
    before = len(quick.read)
    topic.produce(5)
    until(lambda: len(quick.read) > before, "the quick member reads on")
    assert busy.is_held.is_set()
    busy.release()
    consumer_threads = [busy, quick, joiner]
    until(lambda: account(consumer_threads, topic)[0] == 0, "every record is read")
    assert closing(consumer_threads) == {}
    assert overlaps(consumer_threads) == []


def test_an_eager_sticky_member_does_not_fetch_again_what_comes_back_to_it(broker, monkeypatch):
    """KIP-54, "Motivation": its records wait in the buffers for the end of the round."""
    began, fetched = ConsumerAdapter.began, []

    def note(consumer_threads, places):
        given = began(consumer_threads, places)
        fetched.extend((consumer_threads, tp) for tp in given)
        return given

    monkeypatch.setattr(ConsumerAdapter, "began", note)
    topic, group = Topic(broker.bootstrap, 4, 50), fresh("group")
    sticky = {"partition_assignment_strategy": "sticky"}
    first = ConsumerThread(broker.bootstrap, group, [topic.name], **sticky).start()
    until(lambda: account([first], topic)[0] == 0, "every record is read")
    assert len(fetched) == 4
    second = ConsumerThread(broker.bootstrap, group, [topic.name], **sticky).start()
    consumer_threads = [first, second]
    until(lambda: spread(consumer_threads, topic), "two members share")
    topic.produce(50)
    until(lambda: account(consumer_threads, topic)[0] == 0, "every record is read")
    assert {
        (consumer_threads is second.consumer._session.adapter, n)
        for n, (consumer_threads, _) in enumerate(fetched[4:])
    } == {
        (True, 0),
        (True, 1),
    }
    assert closing(consumer_threads) == {}
    assert account(consumer_threads, topic) == (0, 0)


def test_a_deferring_group_need_not_wait_for_a_member_that_left_for_good(broker):
    topic, group = Topic(broker.bootstrap, 4), fresh("group")
    policy = {
        "holdfast_policy": "deferred",
        "scheduled_rebalance_max_delay_ms": 600_000,
        "holdfast_clean_leave": "immediate",
    }
    consumer_threads = [
        ConsumerThread(broker.bootstrap, group, [topic.name], **policy).start() for _ in range(2)
    ]
    until(lambda: spread(consumer_threads, topic), "two members share")
    consumer_threads[1].stop(returns=False)
    until(lambda: len(consumer_threads[0].owns) == 4, "the other member owns all")
    assert closing(consumer_threads[:1]) == {}


def test_lags_decide_and_a_broken_source_does_not_stop_the_group(broker):
    topic, group = Topic(broker.bootstrap, 4), fresh("group")
    calls = []

    def lags(partitions):
        calls.append(dict(partitions))
        if len(calls) > 3:
            raise TimeoutError("the source is gone")
        return {topic.name: [900, 10, 10, 880]}

    lag = {
        "holdfast_policy": "eager",
        "partition_assignment_strategy": "lag",
        "holdfast_lag_source": lags,
    }
    consumer_threads = [
        ConsumerThread(broker.bootstrap, group, [topic.name], **lag).start() for _ in range(2)
    ]
    until(lambda: spread(consumer_threads, topic), "two members share")
    assert calls[0] == {topic.name: 4}
    assert sorted(h.owns for h in consumer_threads) != [[0, 3], [1, 2]]
    consumer_threads.append(ConsumerThread(broker.bootstrap, group, [topic.name], **lag).start())
    until(lambda: spread(consumer_threads, topic), "three members share by counts")
    assert closing(consumer_threads) == {}


def test_numbers_for_people_and_prometheus(broker):
    topic, group = Topic(broker.bootstrap, 2, 5), fresh("group")
    consumer_thread = ConsumerThread(broker.bootstrap, group, [topic.name]).start()
    until(
        lambda: consumer_thread.consumer.metrics().records_consumed_total == 10,
        "records are counted",
    )
    until(lambda: consumer_thread.consumer.metrics().commit_total >= 1, "commits are counted")
    now = consumer_thread.consumer.metrics()
    assert (now.assigned_partitions, now.rebalance_total >= 1, now.is_leader) == (2, True, True)
    assert now.rebalance_latency_max >= max(now.join_time_max, now.sync_time_max) > 0
    assert (now.join_total, now.sync_total) >= (1, 1)
    text = prometheus_text(consumer_thread.consumer)
    assert (
        f'kafka_consumer_coordinator_assigned_partitions{{client_id="holdfast",group="{group}"}}'
        in text
    )
    assert closing([consumer_thread]) == {}


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
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    one = ConsumerThread(broker.bootstrap, group, [topic.name]).start()
    until(lambda: len(one.owns) == 2, "one member owns all")
    one.consumer.pause([(topic.name, 0), (topic.name, 1)])
    other = ConsumerThread(broker.bootstrap, group, [topic.name]).start()
    until(lambda: spread([one, other], topic), "two members share")
    (away,) = other.owns
    assert closing([other]) == {}
    until(lambda: len(one.owns) == 2, "it came back")
    topic.produce(5)
    until(lambda: len(one.read) == 5, "records of what came back")
    assert {p for _, p, _ in one.read} == {away}
    assert one.consumer.paused() == {(topic.name, 1 - away)}
    assert closing([one]) == {}

"""What plain kafka-python gets wrong, seen on a broker, and right after ``attach``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer
from kafka.admin import MemberToRemove
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import FencedInstanceIdError
from kafka.structs import MemberState
from tests.live.processes import create_topic
from tests.live.waiting import until

from holdfast.adapters.kafka_python import CooperativeSticky, attach
from holdfast.wire.layouts.consumer_protocol import decode_subscription

pytestmark = pytest.mark.broker


@contextmanager
def consumer(bootstrap: str, topic: str, group: str, **settings) -> Iterator[KafkaConsumer]:
    made = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        **{
            "session_timeout_ms": 30_000,
            "heartbeat_interval_ms": 200,
            "enable_auto_commit": False,
            **settings,
        },
    )
    try:
        # A plain client that leads without knowing the topic hands out nothing, and never mends it.
        until(lambda: made.partitions_for_topic(topic), "the topic's metadata")
        yield made
    finally:
        made.close()


@contextmanager
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    made = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        yield made
    finally:
        made.close()


class Polling:
    """Polls a consumer on a thread, while it may."""

    def __init__(self, polled: KafkaConsumer):
        self._consumer = polled
        self._may = threading.Event()
        self._idle = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._may.set()

    def _run(self) -> None:
        while not self._end.is_set():
            if not self._may.wait(0.05):
                self._idle.set()
                continue
            self._idle.clear()
            self._consumer.poll(timeout_ms=50)

    def pause(self) -> None:
        self._may.clear()
        self._idle.clear()
        assert self._idle.wait(30)

    def resume(self) -> None:
        self._may.set()

    def __enter__(self) -> Polling:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._may.set()
        self._thread.join(30)


def poll_until(polled: KafkaConsumer, condition: Callable[[], object], what: str) -> None:
    def check() -> object:
        polled.poll(timeout_ms=50)
        return condition()

    until(check, what)


@pytest.mark.parametrize("repaired", [False, True], ids=["plain", "attached"])
def test_k1_a_finished_join_is_collected(broker, repaired):
    """A leader joins again because a topic grew; its poll gives up before the round is over."""
    topic = create_topic(broker.bootstrap, 2)
    plain = {"partition_assignment_strategy": [RangePartitionAssignor], "metadata_max_age_ms": 300}
    with (
        consumer(broker.bootstrap, topic, topic, **plain) as leader,
        consumer(broker.bootstrap, topic, topic, **plain) as follower,
        admin(broker.bootstrap) as cluster,
    ):
        if repaired:
            attach(leader)
            attach(follower)
        poll_until(leader, lambda: len(leader.assignment()) == 2, "the first member has all")
        with Polling(follower) as other:
            poll_until(
                leader,
                lambda: len(leader.assignment()) == len(follower.assignment()) == 1,
                "one partition each",
            )
            coordinator = leader._coordinator
            other.pause()
            cluster.create_partitions({topic: 6})
            poll_until(leader, lambda: coordinator._join_task is not None, "it joins again")
            assert not coordinator._join_task.is_done  # the other one has not come yet
            other.resume()
            until(lambda: coordinator._join_task.is_done, "the network thread ends the join")
            finished = leader.group_metadata().generation_id
            for _ in range(10):
                leader.poll(timeout_ms=50)
            if not repaired:
                assert coordinator.state is MemberState.REBALANCING
                assert not coordinator.need_rejoin()
                assert not coordinator._heartbeat_enabled
                return
            poll_until(
                leader,
                lambda: len(leader.assignment()) == len(follower.assignment()) == 3,
                "three partitions each",
            )
            assert coordinator.state is MemberState.STABLE
            assert coordinator._heartbeat_enabled
            assert leader.group_metadata().generation_id == finished  # collected, not repeated
            assert not leader.assignment() & follower.assignment()


@pytest.mark.parametrize("repaired", [False, True], ids=["plain", "attached"])
def test_k2_a_fenced_static_member_stops(broker, repaired):
    """Two processes with one instance id: the older one has lost its place."""
    topic = create_topic(broker.bootstrap, 2)
    static = {
        "group_instance_id": "twin",
        "partition_assignment_strategy": [CooperativeStickyAssignor],
    }
    with (
        consumer(broker.bootstrap, topic, topic, **static) as older,
        consumer(broker.bootstrap, topic, topic, **static) as newer,
    ):
        if repaired:
            attach(older)
        poll_until(older, lambda: len(older.assignment()) == 2, "the older one has all")
        poll_until(newer, lambda: len(newer.assignment()) == 2, "the newer one has all")
        coordinator = older._coordinator
        until(lambda: not coordinator._heartbeat_enabled, "the older one's heartbeat is refused")
        if repaired:
            for _ in range(2):  # for good, not once
                with pytest.raises(FencedInstanceIdError):
                    older.poll(timeout_ms=50)
            with pytest.raises(FencedInstanceIdError):
                older.commit()
        else:
            for _ in range(5):
                older.poll(timeout_ms=50)
            assert len(older.assignment()) == 2
            assert coordinator.state is MemberState.STABLE


@pytest.mark.parametrize("repaired", [False, True], ids=["plain", "attached"])
def test_a_join_that_ends_between_two_polls_is_not_repeated(broker, repaired):
    """A leader that repeats it makes the whole group go through another round."""
    topic = create_topic(broker.bootstrap, 2)
    plain = {"partition_assignment_strategy": [CooperativeStickyAssignor]}
    with consumer(broker.bootstrap, topic, topic, **plain) as leader:
        if repaired:
            attach(leader)
        poll_until(leader, lambda: len(leader.assignment()) == 2, "it has all")
        coordinator = leader._coordinator
        before = leader.group_metadata().generation_id
        coordinator.request_rejoin()
        leader.poll(timeout_ms=0)  # starts the join, and does not wait for its end
        until(lambda: coordinator._join_task.is_done, "the network thread ends the join")
        poll_until(leader, lambda: coordinator.state is MemberState.STABLE, "it is stable")
        rounds = leader.group_metadata().generation_id - before
        assert rounds == (1 if repaired else 2)


class Lost(ConsumerRebalanceListener):
    """Notes what was lost."""

    def __init__(self) -> None:
        self.lost: list[int] = []

    def on_partitions_assigned(self, assigned) -> None:
        pass

    def on_partitions_revoked(self, revoked) -> None:
        pass

    def on_partitions_lost(self, lost) -> None:
        self.lost.extend(tp.partition for tp in lost)


@pytest.mark.parametrize("repaired", [False, True], ids=["plain", "attached"])
def test_k4_what_was_lost_is_not_claimed(broker, repaired):
    """An evicted member says in its next subscription what it owns: nothing."""
    topic = create_topic(broker.bootstrap, 2)
    sent = []
    plugin = CooperativeSticky() if repaired else CooperativeStickyAssignor()
    metadata = plugin.metadata

    def spy(topics):
        value = metadata(topics)
        sent.append(decode_subscription(value if isinstance(value, bytes) else value.encode()))
        return value

    plugin.metadata = spy
    listener = Lost()
    with (
        consumer(broker.bootstrap, topic, topic, partition_assignment_strategy=[plugin]) as evicted,
        admin(broker.bootstrap) as cluster,
    ):
        if repaired:
            attach(evicted)
        evicted.subscribe([topic], listener=listener)
        poll_until(evicted, lambda: len(evicted.assignment()) == 2, "it has all")
        sent.clear()
        member_id = evicted.group_metadata().member_id
        cluster.remove_group_members(topic, [MemberToRemove(member_id=member_id)])
        poll_until(evicted, lambda: sent and len(evicted.assignment()) == 2, "it is back")
        assert sorted(listener.lost) == [0, 1]
        if repaired:
            assert all(one.owned == () and one.generation == -1 for one in sent)
        else:
            assert sent[0].owned == ((topic, (0, 1)),)


def test_close_for_good_hands_over_before_it_leaves(broker):
    """With an immediate clean leave nobody waits for a member that said it is not coming back."""
    from holdfast.adapters.kafka_python import Deferred

    topic, group = create_topic(broker.bootstrap, 4), f"g-{uuid4().hex[:8]}"

    def design():
        return {"partition_assignment_strategy": [Deferred(clean_leave="immediate")]}

    with consumer(broker.bootstrap, topic, group, **design()) as stays:
        attach(stays)
        poll_until(stays, lambda: len(stays.assignment()) == 4, "the first member has all")
        leaving = KafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id=group, **design()
        )
        handle = attach(leaving)
        with Polling(stays):
            poll_until(
                leaving,
                lambda: len(leaving.assignment()) == len(stays.assignment()) == 2,
                "two partitions each",
            )
            handle.close()
            until(lambda: len(stays.assignment()) == 4, "the first member has all again")

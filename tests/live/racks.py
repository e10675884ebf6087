"""Members in racks, on a cluster whose three nodes are in racks of their own (KIP-881)."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from tests.live.crew import QUICK, Hand, closing, fresh
from tests.live.waiting import until

from holdfast.members.kafka_python import CooperativeSticky

RACKS = ("rack-1", "rack-2", "rack-3")
N_PARTITIONS = 6


def topic_across(bootstrap: str) -> str:
    """A topic whose partition ``p`` is in rack ``p mod 3``, nowhere else."""
    name = fresh("racks")
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    placed = [[p % 3 + 1] for p in range(N_PARTITIONS)]
    made = admin.create_topics([NewTopic(name, N_PARTITIONS, replica_assignment=placed)])
    made[name].result(60)
    return name


def stock_client(bootstrap: str, group: str, topic: str, rack: str) -> Any:
    """kafka-python's consumer with our assignor; both are told where it is."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        client_rack=rack,
        heartbeat_interval_ms=QUICK["heartbeat.interval.ms"],
        session_timeout_ms=QUICK["session.timeout.ms"],
        auto_offset_reset="earliest",
        partition_assignment_strategy=[CooperativeSticky(rack=rack)],
    )
    # A stock client that leads before it knows the topic joins again, and may throw that join away.
    until(lambda: consumer.partitions_for_topic(topic), "the topic's metadata")
    return consumer


def check_that_members_read_in_their_racks(bootstrap: str, *, stock_leads: bool) -> None:
    """Two members of ours and a stock client; whoever leads, nobody reads across racks."""
    topic, group = topic_across(bootstrap), fresh("group")
    hands = [Hand(bootstrap, group, [topic], client_rack=rack) for rack in (RACKS[0], RACKS[2])]
    stock = stock_client(bootstrap, group, topic, RACKS[1])
    try:
        if stock_leads:
            until(lambda: [stock.poll(50)] and len(stock.assignment()) == N_PARTITIONS, "it leads")
        for hand in hands:
            hand.start()

        def owned() -> list[list[int]]:
            stock.poll(50)
            of_stock = sorted(tp.partition for tp in stock.assignment())
            return [hands[0].owns, of_stock, hands[1].owns]

        until(lambda: owned() == [[0, 3], [1, 4], [2, 5]], lambda: f"their racks: {owned()}")
        assert closing(hands) == {}
    finally:
        stock.close()

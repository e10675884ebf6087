"""A cluster is upgraded node by node while its groups run: Kafka 3.9.1 becomes 4.3.1.

**Rules.** Records are written and processed all the time. Every node is stopped in order and starts
again on its data with the new jars; then the cluster's features are raised, and the members are
bounced. At the end every record was processed, only records in flight were read again, and no two
members owned a partition at the same time. Until the bounce no group has had a round.

**Strategy.** Each client has a member group of its own, so that the ownership log has the downtime
of each; Java's member shares a group with one of holdfast's. All groups have one coordinator, whose
node is first and takes its partitions back whenever it returns. It is restarted once more while the
other nodes are old. So the groups go from the old coordinator to the new one, back, and forth
again: 4.x has another coordinator than 3.9, and each must read what the other wrote.

References: Kafka documentation, "Upgrading"; KIP-584 (features), KIP-848 (group.version).
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from kafka import KafkaAdminClient
from tests.live.crew import admin_of, group_of
from tests.live.cut import Cut
from tests.live.member_group import CUT, MemberGroup
from tests.live.offsets_log import OFFSETS_TOPIC, Generation, read_group
from tests.live.ownership_log import longest_gap
from tests.live.processes import Crew
from tests.live.waiting import until

from holdfast.confluent import Consumer
from holdfast.local.broker import Broker, BrokerSettings
from holdfast.local.jars import KAFKA_VERSION

pytestmark = [pytest.mark.broker, pytest.mark.slow]

OLD = "3.9.1"
DESIGNS = {"consumer": "deferred", "confluent": "deferred", "aiokafka": "simple", "kafka": "eager"}
"""What each client's group runs."""
N_MEMBERS = 3
SIZES = {"n_members": N_MEMBERS, "n_partitions": 6, "session_ms": 30_000, "every_s": 0.2}


class Groups:
    """Every group of the cluster, and what each step costs them."""

    def __init__(self, broker: Broker, member_groups: Mapping[str, MemberGroup], mixed: Crew):
        self.broker = broker
        self.member_groups = member_groups
        self.mixed = mixed

    @property
    def names(self) -> list[tuple[str, str]]:
        return [(each.group, each.topic) for each in (*self.member_groups.values(), self.mixed)]

    def start(self) -> None:
        self._java("java")
        self.mixed.own("own")
        for slot in range(N_MEMBERS):
            for member_group in self.member_groups.values():
                member_group.start(slot)

    def bounce(self) -> None:
        """One member of each group ends in order, and is back; then the next one."""
        for slot in range(N_MEMBERS):
            for member_group in self.member_groups.values():
                member_group.terminate(slot)
                member_group.start(slot)
            self.settle()
        for name, start in (("java", self._java), ("own", self.mixed.own)):
            self.mixed.stop(name)
            start(f"{name}.2")
            self.settle()

    def _java(self, name: str) -> None:
        self.mixed.java(name, "CooperativeStickyAssignor")

    def settle(self) -> None:
        """Wait until every group has settled, and has read what was written by now."""
        self.mixed.produce(5)
        for member_group in self.member_groups.values():
            member_group.await_settled()
        self.mixed.await_balance()
        until(lambda: self.mixed.unread() == 0, lambda: f"{self.mixed.unread()} are unread")

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Something is done; all groups have settled when it ends, and it says what it cost."""
        begin = time.time()
        yield
        self.settle()
        end = time.time()
        stops = {
            client: (
                round(member_group.ownership_log.longest_stop(begin, end), 1),
                round(longest_gap(member_group.producing.write_times, begin, end), 1),
            )
            for client, member_group in self.member_groups.items()
        }
        costs = ", ".join(f"{client} {read}/{write}" for client, (read, write) in stops.items())
        print(f"{name}: {end - begin:.0f} s; s without a read/write: {costs}", file=sys.stderr)

    def rounds(self) -> dict[str, int]:
        """Generation of each group, by the coordinator's own records."""
        return {
            group: max(
                entry.number
                for entry in read_group(self.broker.bootstrap, group, topic)
                if isinstance(entry, Generation)
            )
            for group, topic in self.names
        }

    def coordinator(self) -> int:
        """Node of the coordinator that all have: who leads the one partition of their records."""
        topics = admin_of(self.broker.bootstrap).list_topics(OFFSETS_TOPIC, timeout=60).topics
        return int(topics[OFFSETS_TOPIC].partitions[0].leader)

    def restart(self, node_id: int) -> None:
        """Stop a node in order; start it again as a new one, which gets its partitions back."""
        before = self.coordinator()
        self.broker.stop_node(node_id)
        self.settle()
        until(lambda: self.coordinator() != node_id, "another node coordinates")
        self.broker.start_node(node_id, kafka=KAFKA_VERSION)
        # A node that has just come back may still answer what it knew before it went.
        until(
            lambda: leads_as_preferred(self.broker) and self.coordinator() == before,
            "every partition is led by its preferred node",
        )


def leads_as_preferred(broker: Broker) -> bool:
    """Ask for every partition to be led by its preferred node, and whether it is."""
    admin = admin_of(broker.bootstrap)
    admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED).result(60)
    return all(
        partition.leader == partition.replicas[0]
        for topic in admin.list_topics(timeout=60).topics.values()
        for partition in topic.partitions.values()
    )


def raise_features(broker: Broker) -> dict[str, int]:
    """Raise every feature to what the nodes can do, as ``kafka-features upgrade`` does."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)

    def levels() -> dict[str, int]:
        found = admin.describe_features()
        return {name: each["finalized"][1] for name, each in found.items() if "finalized" in each}

    try:
        wanted = {name: each["supported"][1] for name, each in admin.describe_features().items()}
        del wanted["kraft.version"]  # for quorums that were formatted to change their voters
        assert set(admin.update_features(wanted).values()) == {"OK"}
        until(lambda: levels() == wanted, lambda: f"{wanted}; now {levels()}")
    finally:
        admin.close()
    return wanted


@contextmanager
def member_of_kip_848(bootstrap: str, topic: str, group: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def refusal(consumer: Consumer) -> int:
    """Code of the error with which a member is told that it may not join."""
    found: list[int] = []

    def is_notified() -> bool:
        found.extend(m.error().code() for m in consumer.consume(1, 0.1) if m.error() is not None)
        return bool(found)

    until(is_notified, "a member of KIP-848 is refused")
    return found[0]


def read_to(consumer: Consumer, marks: list[int]) -> None:
    reached: Counter[int] = Counter()

    def is_read() -> bool:
        for message in consumer.consume(500, 0.1):
            assert message.error() is None, message.error()
            reached[message.partition()] = message.offset() + 1
        return all(reached[p] >= mark for p, mark in enumerate(marks))

    until(is_read, lambda: f"everything to {marks} is read; now {reached}")


@contextmanager
def cluster(folder: Path) -> Iterator[Groups]:
    """Three old nodes with every group on them."""
    for name in (*DESIGNS, "mixed"):
        (folder / name).mkdir()
    settings = BrokerSettings(
        brokers=3,
        kafka=OLD,
        listeners={CUT: "PLAINTEXT"},
        properties={"offsets.topic.num.partitions": "1"},
    )
    with ExitStack() as stack:
        broker = stack.enter_context(Broker.start(settings=settings))
        cut = stack.enter_context(Cut())
        member_groups = {
            client: stack.enter_context(
                MemberGroup(broker, cut, folder / client, design=design, client=client, **SIZES)
            )
            for client, design in DESIGNS.items()
        }
        mixed = stack.enter_context(Crew(broker.bootstrap, 4, folder / "mixed"))
        yield Groups(broker, member_groups, mixed)


def test_a_cluster_is_upgraded_under_its_groups(tmp_path):
    with cluster(tmp_path) as groups:
        broker, member_groups = groups.broker, groups.member_groups
        with groups.step("everybody starts"):
            groups.start()
        before = groups.rounds()
        first = groups.coordinator()
        others = sorted({1, 2, 3} - {first})
        with groups.step("the coordinator's node is upgraded"):
            groups.restart(first)
        with groups.step("it is restarted: to an old node and back"):
            groups.restart(first)
        for node_id in others:
            with groups.step(f"node {node_id} is upgraded"):
                groups.restart(node_id)
        topic = member_groups["consumer"].topic
        with member_of_kip_848(broker.bootstrap, topic, "too-early") as consumer:
            assert refusal(consumer) == confluent_kafka.KafkaError._FATAL
        with groups.step("features are raised"):
            assert raise_features(broker)["group.version"] == 1
        assert groups.rounds() == before
        with groups.step("everybody is bounced"):
            groups.bounce()
        with member_of_kip_848(broker.bootstrap, topic, "of-kip-848") as consumer:
            read_to(consumer, list(member_groups["consumer"].producing.written))
            kind = group_of(broker.bootstrap, "of-kip-848").type
        assert kind is confluent_kafka.ConsumerGroupType.CONSUMER
        for client, member_group in member_groups.items():
            produced, wrong = member_group.finish()
            again, in_flight = (
                member_group.ownership_log.duplicates().total(),
                member_group.ownership_log.in_flight.total(),
            )
            figures = f"{sum(produced)} records, {again} read again, {in_flight} in flight"
            print(f"{client}: {figures}", file=sys.stderr)
            assert wrong == []
            assert min(produced) > 0
        assert groups.mixed.overlaps() == []

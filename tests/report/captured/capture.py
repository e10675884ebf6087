"""How the files beside this one were made: groups on a real broker, with and without problems.

``python -m tests.report.captured.capture`` (seven minutes) starts a broker, lets the groups of
:data:`SCENARIOS` live on it beside each other, and writes down what they left: a dump, and in
``ages.json`` the times of the oldest unread records, which the broker tells for each offset.

**Rules.** What is wrong with a group stands in its row of :data:`SCENARIOS` before it lives, and is
what its members do, never what a table says. A sound group does nearly the same as an ill one.

**Strategy.** Readers are librdkafka's, Consumers are ours, and what no client does by itself
(two owners, bytes that nobody reads) a raw member does, whose leader gives what the scene wants.
Backlogs were written with times that lie half an hour back.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.live.offsets_log import columns_of
from tests.live.raw_member import RawMember
from tests.pipeline import local

from holdfast import Consumer
from holdfast.cluster.cluster import LiveCluster
from holdfast.cluster.first_unread import FirstUnread, Wanted
from holdfast.core.machine import events
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.fleet.pipeline.history.lag import with_record_ages
from holdfast.fleet.pipeline.ingest.dump import write_log
from holdfast.local.broker import broker as brokers

HERE = Path(__file__).parent
LIVES_S = 345
BACKLOG_S = 1_800
COOPERATIVE = "cooperative-sticky"
QUIET = {"log_level": 0}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One group: what happens to it, and what is wrong then.

    ``beside`` are codes that come with the problem by its nature.
    """

    name: str
    play: Callable[[Life], None]
    planted: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()


class Life:
    """One group in its life: its members, its topics, the end of the stage."""

    def __init__(self, bootstrap: str, group: str, end: threading.Event):
        self.bootstrap, self.group, self.end = bootstrap, group, end
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        self.ends: list[Callable[[], None]] = []

    def conf(self, client: str) -> dict[str, Any]:
        """What every member is configured with."""
        where = {"bootstrap.servers": self.bootstrap, "group.id": self.group}
        return {**where, "client.id": client, "auto.offset.reset": "earliest"}

    def topic(self, partitions: int = 3, n: int = 0, *, old: bool = False, name: str = "t") -> str:
        """Make a topic with ``n`` records in each partition, new ones or a backlog."""
        topic = f"{self.group}-{name}"
        for made in self.admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            made.result()
        self.wait(2)  # until every broker's client may know it
        for partition in range(partitions):
            self.produce(topic, partition, n, old=old)
        return topic

    def produce(self, topic: str, partition: int, n: int, *, old: bool = False) -> None:
        """Write records, or a backlog."""
        producer = Producer({"bootstrap.servers": self.bootstrap, **QUIET})
        at = round((time.time() - BACKLOG_S) * 1000) if old else 0
        for i in range(n):
            producer.produce(topic, b"x", partition=partition, timestamp=at + i if old else 0)
            if not i % 1000:
                producer.poll(0)
        assert producer.flush(60) == 0

    def keep_writing(self, topic: str, partitions: Iterable[int], every_s: float = 2) -> None:
        """Write a record now and then until the end."""
        producer = Producer({"bootstrap.servers": self.bootstrap, **QUIET})

        def write() -> None:
            while not self.end.wait(every_s):
                for partition in partitions:
                    producer.produce(topic, b"x", partition=partition)
                producer.flush(30)

        threading.Thread(target=write, daemon=True).start()

    def reader(self, client: str, topics: Sequence[str], how: str = "well", **conf: Any) -> Reader:
        """A member by librdkafka."""
        reader = Reader(self, client, topics, how, conf)
        self.ends.append(reader.close)
        return reader

    def readers(self, clients: str, topics: Sequence[str], how: str = "well", **conf: Any) -> None:
        """A member by librdkafka for each letter."""
        for client in clients:
            self.reader(client, topics, how, **conf)

    def own(self, client: str, topics: Sequence[str], **conf: Any) -> Own:
        """A member of the project's own."""
        member = Own(self, client, topics, conf)
        self.ends.append(member.close)
        return member

    def raw(self, metadata: bytes, lead: Any = None) -> RawMember:
        """A member that sends these bytes."""
        more = {} if lead is None else {"lead": lead}
        member = RawMember(self.bootstrap, self.group, "range", metadata, **more)
        member.__enter__()
        self.ends.append(member.leave)
        return member

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.end.wait(seconds)


class Reader:
    """librdkafka's consumer on a thread: how it reads and commits is its ``how``."""

    def __init__(self, life: Life, client: str, topics: Sequence[str], how: str, conf: Any):
        if conf.get("group.protocol") != "consumer":
            conf = {"partition.assignment.strategy": COOPERATIVE, **conf}
            conf = {"session.timeout.ms": 30_000, **conf}
        own = {"enable.auto.commit": False, **QUIET, **conf}
        self.consumer = Librdkafka(life.conf(client) | own)
        self.how, self.leaves = how, True
        self.ended, self.has_committed = threading.Event(), threading.Event()
        self.consumer.subscribe(list(topics))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Leave in order; safe to call twice."""
        self.ended.set()
        self.thread.join(60)

    def go(self) -> None:
        """End without a word, as a static member does."""
        self.leaves = False
        self.close()

    def _run(self) -> None:
        while not self.ended.is_set():
            with suppress(KafkaException):
                getattr(self, f"_{self.how}")()
        if self.leaves:
            self.consumer.close()
        else:
            del self.consumer  # its threads and connections end, and nothing is said

    def _well(self) -> None:
        if self.consumer.consume(500, 0.5):
            self.consumer.commit(asynchronous=False)
            self.has_committed.set()

    def _never(self) -> None:
        self.consumer.consume(500, 0.5)

    def _slowly(self) -> None:
        """One record in half a second."""
        if self.consumer.consume(1, 0.5):
            self.consumer.commit(asynchronous=False)
            self.ended.wait(0.5)

    def _half(self) -> None:
        """Read some hundred records of each partition, and no more."""
        if self.consumer.consume(100, 1.0):
            self.consumer.commit(asynchronous=False)
            self.consumer.pause(self.consumer.assignment())

    def _poisoned(self) -> None:
        """The record at 20 of partition 0 cannot be processed: go back to it, and commit that."""
        messages = self.consumer.consume(10, 0.5)
        bad = [m for m in messages if m.partition() == 0 and m.offset() >= 20]
        places = {(m.topic(), m.partition()): m.offset() + 1 for m in messages if m not in bad}
        for message in bad:
            places[message.topic(), 0] = 20
        offsets = [TopicPartition(*place, offset) for place, offset in places.items()]
        if offsets:
            self.consumer.commit(offsets=offsets, asynchronous=False)
        if bad:
            self.consumer.seek(TopicPartition(bad[0].topic(), 0, 20))
            self.ended.wait(1)

    def _hangs(self) -> None:
        """Read for half a minute, then never come back."""
        until = time.monotonic() + 30
        while time.monotonic() < until and not self.ended.is_set():
            self._well()
        self.ended.wait()

    def _beyond(self) -> None:
        """Commit what another cluster's log had."""
        self._well()
        places = [TopicPartition(p.topic, p.partition, 500) for p in self.consumer.assignment()]
        if places:
            self.consumer.commit(offsets=places, asynchronous=False)
            self.ended.wait(5)


class Own:
    """holdfast.Consumer on a thread."""

    def __init__(self, life: Life, client: str, topics: Sequence[str], conf: Any):
        self.consumer = Consumer(life.conf(client) | conf)
        self.ended = threading.Event()
        self.consumer.subscribe(list(topics))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.ended.is_set():
            self.consumer.poll(0.5)
        self.consumer.close()

    def close(self) -> None:
        """Hand over and leave; safe to call twice."""
        self.ended.set()
        self.thread.join(60)


# Bytes that no client writes.


def asks(topic: str, user_data: bytes | None = None) -> bytes:
    """A subscription."""
    return encode_subscription(
        Subscription(version=1, topics=(topic,), user_data=user_data, owned=(), generation=-1)
    )


def gives(topic: str, shares: Callable[[int, int], list[int]]) -> Any:
    """A leader: ``shares(i, round)`` are the partitions of the i-th member by id."""
    rounds = iter(range(10**6))

    def lead(joined: events.JoinAnswered) -> tuple[tuple[str, bytes], ...]:
        number = next(rounds)
        found = []
        for i, member in enumerate(sorted(joined.members, key=lambda m: m.member_id)):
            own = ((topic, tuple(shares(i, number))),)
            message = AssignmentMessage(version=1, partitions=own, user_data=None)
            found.append((member.member_id, encode_assignment(message)))
        return tuple(found)

    return lead


# Groups with a problem.


def avoidable(life: Life) -> None:
    topic = life.topic(24)
    eager = {"partition.assignment.strategy": "range"}
    life.readers("abc", [topic], **eager)
    life.wait(40)
    life.reader("d", [topic], **eager)


def idle(life: Life) -> None:
    topics = [life.topic(1, name=f"t{i}") for i in range(4)]
    life.readers("abc", topics, **{"partition.assignment.strategy": "range"})


def two_owners(life: Life) -> None:
    topic = life.topic(4)
    lead = gives(topic, lambda i, _: [0, 1, 2] if i == 0 else [2, 3])
    for _ in range(2):
        life.raw(asks(topic), lead)
    life.wait(20)


def mixed(life: Life) -> None:
    topic = life.topic(4)
    life.reader("a", [topic], **{"partition.assignment.strategy": "range,roundrobin"})
    life.wait(20)
    for _ in range(2):
        other = life.reader("b", [topic], **{"partition.assignment.strategy": "roundrobin"})
        life.wait(25)
        other.close()
        life.wait(15)


def waits_long(life: Life) -> None:
    topic = life.topic(6)
    conf = {"holdfast.policy": "deferred", "scheduled.rebalance.max.delay.ms": 150_000}
    members = {name: life.own(name, [topic], **conf) for name in ("a", "b", "c")}
    life.wait(30)
    members["b"].close()
    life.wait(4)
    life.own("b", [topic], **conf)
    life.wait(30)
    members["c"].close()


def for_nothing(life: Life) -> None:
    topic = life.topic(4)
    lead = gives(topic, lambda i, _: [0, 1] if i == 0 else [2, 3])
    members = [life.raw(asks(topic), lead) for _ in range(2)]
    life.wait(30)
    for _ in range(5):
        leader = next(m for m in members if m.has_led)
        leader.rejoin()
        life.wait(15)


def left_out(life: Life) -> None:
    topic = life.topic(4)

    def shares(i: int, number: int) -> list[int]:
        return [[0, 1], [2, 3] if number < 2 else [2]][i]

    members = [life.raw(asks(topic), gives(topic, shares)) for _ in range(2)]
    life.wait(30)
    leader = next(m for m in members if m.has_led)
    for _ in range(2):
        leader.rejoin()
        life.wait(15)


def deleted(life: Life) -> None:
    topic = life.topic(2, 500)
    readers = [life.reader(client, [topic], "half") for client in ("a", "b")]
    life.wait(40)
    for reader in readers:
        reader.close()
    places = [TopicPartition(topic, p, 300) for p in (0, 1)]
    for done in life.admin.delete_records(places).values():
        done.result()


def uneven(life: Life) -> None:
    topics = [life.topic(3, name=f"t{i}") for i in range(4)]
    life.readers("ab", topics, **{"partition.assignment.strategy": "range"})


def interrupted(life: Life) -> None:
    """A leader that thinks for seconds, while one member after the other comes."""
    topic = life.topic(10)
    give = gives(topic, lambda i, _: [i])

    def lead(joined: events.JoinAnswered) -> tuple[tuple[str, bytes], ...]:
        life.wait(6 if len(joined.members) < 10 else 0)
        return give(joined)

    for _ in range(10):
        life.raw(asks(topic), lead)
        life.wait(4)


def beyond(life: Life) -> None:
    topic = life.topic(2, 100)
    life.reader("a", [topic], "beyond")


def unreadable(life: Life) -> None:
    topic = life.topic(4)
    whole = gives(topic, lambda i, _: [[0, 1], [2, 3]][i])

    def lead(joined: events.JoinAnswered) -> tuple[tuple[str, bytes], ...]:
        (first, given), (second, _) = whole(joined)
        return ((first, given), (second, b"\x7f\x00no layout"))

    for _ in range(2):
        life.raw(asks(topic), lead)
    life.wait(20)


def large(life: Life) -> None:
    topic = life.topic(4)
    lead = gives(topic, lambda i, _: [0, 1] if i == 0 else [2, 3])
    for _ in range(2):
        life.raw(asks(topic, bytes(300_000)), lead)


def stuck(life: Life) -> None:
    topic = life.topic(6)
    life.keep_writing(topic, range(6))
    life.wait(LIVES_S - 260)
    life.reader("a", [topic], "hangs")
    life.readers("bc", [topic])


def evicted(life: Life) -> None:
    topic = life.topic(6)
    life.keep_writing(topic, range(6))
    life.reader("a", [topic], "hangs", **{"max.poll.interval.ms": 260_000})
    life.readers("bc", [topic])


def poison(life: Life) -> None:
    topic = life.topic(3, 200)
    life.keep_writing(topic, range(3))
    life.readers("ab", [topic], "poisoned")


def too_slow(life: Life) -> None:
    topic = life.topic(4, 3_000, old=True)
    life.readers("ab", [topic], "slowly")


def hot(life: Life) -> None:
    topic = life.topic(6, 50)
    life.produce(topic, 0, 8_000)
    life.readers("abcd", [topic], "slowly")


def skewed(life: Life) -> None:
    topic = life.topic(8, 3_000)
    life.reader("a", [topic], "slowly")
    life.readers("bcd", [topic])


def crash_loop(life: Life) -> None:
    topic = life.topic(6)
    life.readers("ab", [topic])
    life.wait(15)
    for _ in range(8):
        broken = life.reader("c", [topic])
        life.wait(9)
        broken.close()
        life.wait(3)


def silent(life: Life) -> None:
    topic = life.topic(4, 100)
    life.reader("a", [topic], "never")
    life.reader("b", [topic])


def nobody(life: Life) -> None:
    topic = life.topic(2, 1_500)
    reader = life.reader("a", [topic], "half")
    life.wait(30)
    reader.close()


def deployed(life: Life) -> None:
    topic = life.topic(12)
    eager = {"partition.assignment.strategy": COOPERATIVE}
    members = {name: life.reader(name, [topic], **eager) for name in ("a", "b", "c", "d")}
    life.wait(30)
    for name in tuple(members):
        members[name].close()
        life.wait(8)
        members[name] = life.reader(name, [topic], **eager)
        life.wait(15)


# Sound groups, each the twin of an ill one.


def reads(strategy: str, members: int, partitions: int) -> Callable[[Life], None]:
    """Members that read what comes."""

    def play(life: Life) -> None:
        topic = life.topic(partitions, 100)
        life.keep_writing(topic, range(partitions))
        for i in range(members):
            life.reader(f"m{i}", [topic], **{"partition.assignment.strategy": strategy})

    return play


def grows(life: Life) -> None:
    topic = life.topic(24)
    life.readers("abc", [topic])
    life.wait(40)
    life.reader("d", [topic])


def standby(life: Life) -> None:
    topic = life.topic(2, 100)
    life.readers("abc", [topic])


def raw_well(life: Life) -> None:
    topic = life.topic(4)
    lead = gives(topic, lambda i, _: [0, 1] if i == 0 else [2, 3])
    for _ in range(2):
        life.raw(asks(topic, bytes(100_000)), lead)


def upgraded(life: Life) -> None:
    """KIP-726: two rolling restarts, and the assignor changes once."""
    topic = life.topic(4, 100)
    found: dict[str, Reader] = {}
    for strategy in ("range", f"{COOPERATIVE},range", COOPERATIVE):
        for name in ("a", "b"):
            if name in found:
                found[name].go()
            conf = {"partition.assignment.strategy": strategy, "group.instance.id": name}
            found[name] = life.reader(name, [topic], **conf)
            life.wait(15)


def bounced(life: Life) -> None:
    topic = life.topic(6, 100)
    conf = {"holdfast.policy": "deferred", "scheduled.rebalance.max.delay.ms": 60_000}
    members = {name: life.own(name, [topic], **conf) for name in ("a", "b", "c")}
    life.wait(30)
    for name in tuple(members):
        members[name].close()
        life.wait(4)
        members[name] = life.own(name, [topic], **conf)
        life.wait(20)


def own_well(policy: str) -> Callable[[Life], None]:
    """Members of our own."""

    def play(life: Life) -> None:
        topic = life.topic(6, 100)
        life.keep_writing(topic, range(6))
        for client in ("a", "b", "c"):
            life.own(client, [topic], **{"holdfast.policy": policy})

    return play


def rejoins_once(life: Life) -> None:
    topic = life.topic(4)
    lead = gives(topic, lambda i, _: [0, 1] if i == 0 else [2, 3])
    members = [life.raw(asks(topic), lead) for _ in range(2)]
    life.wait(30)
    next(m for m in members if m.has_led).rejoin()


def trimmed(life: Life) -> None:
    topic = life.topic(2, 500)
    life.readers("ab", [topic])
    life.wait(40)
    for done in life.admin.delete_records([TopicPartition(topic, p, 300) for p in (0, 1)]).values():
        done.result()


def rests(life: Life) -> None:
    """Nothing comes any more, and the same offset is committed again and again."""
    topic = life.topic(2, 100)
    reader = life.reader("a", [topic])

    def again() -> None:
        while not life.end.wait(2):
            with suppress(KafkaException, RuntimeError):  # it is closed at the end
                places = [TopicPartition(topic, p, 100) for p in (0, 1)]
                reader.consumer.commit(offsets=places, asynchronous=False)

    life.wait(20)
    threading.Thread(target=again, daemon=True).start()


def read_to_the_end(life: Life) -> None:
    topic = life.topic(2, 1_500)
    reader = life.reader("a", [topic])
    life.wait(40)
    reader.close()


def next_protocol(life: Life) -> None:
    topic = life.topic(6, 100)
    life.readers("abc", [topic], **{"group.protocol": "consumer"})


def restarts_once(life: Life) -> None:
    topic = life.topic(4, 100)
    conf = {"group.instance.id": "i-a"}
    first = life.reader("a", [topic], **conf)
    life.reader("b", [topic], **{"group.instance.id": "i-b"})
    life.wait(30)
    first.go()
    life.wait(4)
    life.reader("a", [topic], **conf)


def backlog_read(life: Life) -> None:
    topic = life.topic(4, 3_000, old=True)
    life.readers("ab", [topic])


def nothing_to_read(life: Life) -> None:
    """One member's partitions are empty: it commits nothing, and need not."""
    topic = life.topic(2)
    life.produce(topic, 0, 50)
    life.readers("ab", [topic])


def _ill(name: str, play: Callable[[Life], None], codes: str, beside: str = "") -> Scenario:
    named = {"planted": frozenset(codes.split()), "beside": frozenset(beside.split())}
    return Scenario(name=f"ill-{name}", play=play, **named)


SCENARIOS = (
    _ill("avoidable", avoidable, "HF103", "HF119"),
    _ill("idle", idle, "HF106", "HF117"),
    _ill("two-owners", two_owners, "HF108"),
    _ill("mixed", mixed, "HF110", "HF111 HF119"),
    _ill("waits-long", waits_long, "HF112"),
    _ill("for-nothing", for_nothing, "HF113", "HF119"),
    _ill("left-out", left_out, "HF114"),
    _ill("deleted", deleted, "HF116"),
    _ill("uneven", uneven, "HF117"),
    _ill("interrupted", interrupted, "HF118"),
    _ill("beyond", beyond, "HF120"),
    _ill("unreadable", unreadable, "HF121", "HF114"),
    _ill("large", large, "HF122"),
    _ill("stuck", stuck, "HF105"),
    _ill("evicted", evicted, "HF105 HF127"),
    _ill("poison", poison, "HF125"),
    _ill("too-slow", too_slow, "HF126"),
    _ill("hot", hot, "HF104"),
    _ill("skewed", skewed, "HF104"),
    _ill("crash-loop", crash_loop, "HF124", "HF101 HF103 HF111"),
    _ill("silent", silent, "HF107"),
    _ill("nobody", nobody, "HF115"),
    _ill("deployed", deployed, "HF102 HF111", "HF101 HF103"),
    *(
        Scenario(name=f"sound-{name}", play=play)
        for name, play in {
            "cooperative": reads(COOPERATIVE, 3, 6),
            "cooperative-many": reads(COOPERATIVE, 5, 20),
            "range": reads("range", 2, 6),
            "roundrobin": reads("roundrobin", 3, 9),
            "alone": reads("range", 1, 3),
            "grows": grows,
            "standby": standby,
            "raw": raw_well,
            "upgraded": upgraded,
            "bounced": bounced,
            "deferred": own_well("deferred"),
            "incremental": own_well("incremental"),
            "simple": own_well("simple"),
            "rejoins-once": rejoins_once,
            "trimmed": trimmed,
            "rests": rests,
            "read-to-the-end": read_to_the_end,
            "next-protocol": next_protocol,
            "restarts-once": restarts_once,
            "backlog-read": backlog_read,
            "nothing-to-read": nothing_to_read,
        }.items()
    ),
)
"""Every group that lives, in the order of its beginning."""


def _live(life: Life, scenario: Scenario) -> None:
    try:
        scenario.play(life)
    except Exception:
        print(scenario.name, "failed:", traceback.format_exc(), file=sys.stderr)


def _warm_up(bootstrap: str) -> None:
    """Let a group live and die: then there is an offsets topic."""
    life = Life(bootstrap, "first", threading.Event())
    reader = life.reader("a", [life.topic(1, 1)])
    assert reader.has_committed.wait(120)
    reader.close()


def main() -> None:
    """Live, and write down."""
    end = threading.Event()
    settings = brokers.BrokerSettings(properties={"group.initial.rebalance.delay.ms": "3000"})
    with brokers.Broker.start(settings=settings) as broker:
        _warm_up(broker.bootstrap)
        begin = time.monotonic()
        lives = []
        for scenario in SCENARIOS:
            life = Life(broker.bootstrap, scenario.name, end)
            lives.append(life)
            threading.Thread(target=_live, args=(life, scenario), daemon=True).start()
            time.sleep(0.5)
        while (left := begin + LIVES_S - time.monotonic()) > 0:
            time.sleep(min(left, 30))
            print(f"{left:.0f} s are left", file=sys.stderr)
        _write_down(broker.bootstrap)
        end.set()
        for life in lives:
            for close in life.ends:
                try:
                    close()
                except Exception as error:
                    print(life.group, "ended badly:", error, file=sys.stderr)


def _write_down(bootstrap: str) -> None:
    """The dump, and the times of the records that the doctor asks for."""
    cluster = LiveCluster(bootstrap=bootstrap)
    shutil.rmtree(HERE / "dump", ignore_errors=True)
    write_log(HERE / "dump", columns_of(bootstrap), cluster.snapshot())
    ages: dict[str, int | None] = {}

    def unread(wanted: Sequence[Wanted]) -> list[FirstUnread]:
        found = cluster.first_unread(wanted)
        for one, record in zip(wanted, found, strict=True):
            time_ms = None if record.time is None else record.time.ms
            ages[f"{one.topic}-{one.partition}@{one.offset}"] = time_ms
        return found

    scratch = HERE / "scratch"
    lag = local.run(HERE / "dump", scratch, batch_rows=5_000).table("lag", flat=False)
    with_record_ages(lag, unread, round(time.time() * 1e6))
    shutil.rmtree(scratch)
    (HERE / "ages.json").write_text(json.dumps(ages, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

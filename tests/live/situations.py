"""Groups that somebody is paged for, of stock clients, and the true cause of each.

A :class:`Situation` runs on a broker, in parallel with others: their waits overlap. When it has
ended, its events are on record, and its living members still run.

**Rules.** What a play says is what its processes do. Every member is a process or a thread of one,
with a stock client. A wait is for what the group does then: for a session to end, for a batch to
take too long.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition
from tests.live.crew import admin_of
from tests.live.disturbed import (
    AIOKAFKA,
    CONFLUENT,
    JAVA,
    KAFKA_PYTHON,
    QUIET,
    Stage,
)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """One group: what its members do, and the code that ``doctor`` has to say first, if any.

    ``is_early``: it is told already after one eviction, or one deploy.
    """

    name: str
    play: Callable[[Stage], None]
    first: str
    is_early: bool = False


# A member that polls too rarely.


def slow(
    client: str, seconds: int, *, healthy: int = 0, named: bool = True, times: int = 6, **how: Any
) -> Callable[[Stage], None]:
    """One member whose batches take half as long again as its interval allows."""

    def play(stage: Stage) -> None:
        stage.read(6, 20)
        interval_ms = seconds * 1000
        if healthy and client != JAVA:
            names = [f"well-{i}" if named else "" for i in range(healthy)]
            others = [stage.member(name, client, interval_ms=interval_ms) for name in names]
            stage.start("well", *others)
        for i in range(healthy if client == JAVA else 0):
            stage.pod(f"well-{i}", client, interval_ms=interval_ms)
        if healthy:
            stage.settles(healthy)
        own = {"interval_ms": interval_ms, "work_s": 1.5 * seconds, **how}
        if named:
            stage.pod("slow", client, **own)
        else:
            stage.start("slow", stage.member("", client, **own))
        stage.reads("slow")
        stage.wait(5 + 1.5 * seconds * how.get("every", 1))
        stage.looks("first")
        stage.wait((times - 1) * (1.5 * seconds + 4))

    return play


# A process that dies.


def crash_loop(
    *, closes: bool = False, kills: bool = False, named: bool = True, times: int = 7
) -> Callable[[Stage], None]:
    """One of three processes ends again and again, and is restarted with the same client id."""

    def play(stage: Stage) -> None:
        stage.read(6, 20)
        names = ["well-0", "well-1", "c"] if named else ["", "", ""]
        *others, name = names
        stage.start("well", *(stage.member(other, session_ms=10_000) for other in others))
        stage.settles(2)
        stage.wait(6)
        for i in range(times):
            dies = {} if kills else {"dies_after_s": 6, "closes": closes}
            stage.start(f"c-{i}", stage.member(name, session_ms=10_000, **dies))
            if kills:
                stage.settles(3)
                stage.wait(6)
                stage.kill(f"c-{i}")
            else:
                stage.gone(f"c-{i}")
            stage.wait(5)
            if i == 1:
                stage.looks("first")

    return play


# Members that are restarted on purpose.


def statefulset(
    strategy: str, deploys: int = 2, client: str = CONFLUENT
) -> Callable[[Stage], None]:
    """Each of four pods ends in order and starts again under its name, one after the other."""

    def play(stage: Stage) -> None:
        stage.read(12, 20)
        conf = {"partition.assignment.strategy": strategy} if strategy else {}
        pods = [f"orders-{i}" for i in range(4)]
        for pod in pods:
            stage.pod(pod, client, conf=conf)
        stage.settles(4)
        stage.wait(20)
        for deploy in range(deploys):
            for pod in reversed(pods):
                stage.stop(pod)
                stage.wait(3)
                stage.pod(pod, client, conf=conf)
                stage.settles(4)
                stage.wait(6)
            if deploy == 0:
                stage.looks("first")
            stage.wait(15)

    return play


def pod_name(revision: int, i: int) -> str:
    """As a Deployment names its pods: a hash of the revision, and one of the pod."""
    rng = f"{revision * 7919 + i * 104729 + 12345:x}"
    return f"orders-{revision * 48271 % 99991:x}7b9-{rng[-5:]:x>5}"


def deployment(
    strategy: str, deploys: int = 2, *, named: bool = True, client: str = CONFLUENT
) -> Callable[[Stage], None]:
    """Each of four pods gives way to a new one with a new name; the new one starts first."""

    def play(stage: Stage) -> None:
        stage.read(12, 20)
        conf = {"partition.assignment.strategy": strategy} if strategy else {}

        def start(pod: str) -> None:
            stage.start(pod, stage.member(pod if named else "", client, conf=conf))

        pods = [pod_name(0, i) for i in range(4)]
        for pod in pods:
            start(pod)
        stage.settles(4)
        stage.wait(20)
        for deploy in range(1, deploys + 1):
            for i, old in enumerate(pods):
                pods[i] = pod_name(deploy, i)
                start(pods[i])
                stage.settles(5)
                stage.wait(3)
                stage.stop(old)
                stage.settles(4)
                stage.wait(4)
            if deploy == 1:
                stage.looks("first")
            stage.wait(15)

    return play


def flapping(stage: Stage) -> None:
    """An autoscaler has five pods for a while, then two again."""
    stage.read(12, 20)
    for i in range(2):
        stage.pod(pod_name(0, i))
    stage.settles(2)
    stage.wait(15)
    for turn in range(1, 4):
        more = [pod_name(0, 10 * turn + i) for i in range(3)]
        for pod in more:
            stage.pod(pod)
            stage.wait(1)
        stage.settles(5)
        stage.wait(20)
        for pod in more:
            stage.stop(pod)
        stage.settles(2)
        stage.wait(20)
        if turn == 1:
            stage.looks("first")


# Members that stay.


def hung(healthy: int = 2, client: str = CONFLUENT) -> Callable[[Stage], None]:
    """One member sends heartbeats and never polls again; its interval is the default."""

    def play(stage: Stage) -> None:
        stage.read(6, 20)
        stage.start("well", *(stage.member(f"well-{i}", client) for i in range(healthy)))
        stage.pod("hung", client, hangs_after_s=15)
        stage.reads("hung")
        stage.wait(40)
        stage.looks("first")
        stage.wait(140)

    return play


def hot_partition(stage: Stage) -> None:
    """Nearly all records have one key; its owner works on a few a second."""
    stage.read(6, 20)
    producer = Producer({"bootstrap.servers": stage.bootstrap, **QUIET})
    for _ in range(9_000):
        producer.produce(stage.topic, b"x", partition=2)
    producer.flush(60)
    for i in range(3):
        stage.pod(f"orders-{i}", batch=10, work_s=0.5)
    stage.wait(90)


def retention_loss(stage: Stage) -> None:
    """The broker deletes what the group has not read yet."""
    stage.read(3, 2_000, written=[])
    stage.start("orders", *(stage.member(f"orders-{i}", batch=20, work_s=1.0) for i in range(2)))
    stage.wait(40)
    stage.close()
    places = [TopicPartition(stage.topic, p, 1_900) for p in range(3)]
    for done in admin_of(stage.bootstrap).delete_records(places).values():
        with suppress(KafkaException):
            done.result(60)
    stage.wait(3)


def abandoned(stage: Stage) -> None:
    """All pods were scaled away, and records go on coming."""
    stage.read(3, 3_000)
    stage.start("orders", *(stage.member(f"orders-{i}", batch=20, work_s=0.5) for i in range(2)))
    stage.wait(30)
    stage.close()
    stage.wait(30)


def well(stage: Stage) -> None:
    """Three pods that start one after the other and read."""
    stage.read(6, 20)
    for i in range(3):
        stage.pod(f"orders-{i}")
        stage.wait(2)
    stage.wait(60)


SLOW, CRASH, DEPLOY = "HF127", "HF124", "HF102"


def _slow_ones() -> list[Situation]:
    plays = {}
    for client in (CONFLUENT, AIOKAFKA, KAFKA_PYTHON, JAVA):
        for seconds in (8, 20, 60):
            for healthy in (0, 2):
                beside = f"-beside-{healthy}" if healthy else ""
                plays[f"slow-{client}-{seconds}{beside}"] = slow(
                    client, seconds, healthy=healthy, commits="batch"
                )
    auto = {"commits": "auto"}
    plays |= {
        "slow-confluent-8-auto": slow(CONFLUENT, 8, **auto),
        "slow-confluent-20-auto-beside-2": slow(CONFLUENT, 20, healthy=2, **auto),
        "slow-confluent-8-default-ids-beside-2": slow(
            CONFLUENT, 8, healthy=2, named=False, commits="batch"
        ),
        "slow-confluent-20-at-times-beside-2": slow(CONFLUENT, 20, healthy=2, every=4, **auto),
        "slow-aiokafka-8-blocks-beside-2": slow(AIOKAFKA, 8, healthy=2, blocks=True, **auto),
        "slow-aiokafka-20-blocks-beside-2": slow(AIOKAFKA, 20, healthy=2, blocks=True, **auto),
    }
    return _told_early(SLOW, plays)


def _told_early(first: str, plays: dict[str, Callable[[Stage], None]]) -> list[Situation]:
    return [Situation(name=n, play=play, first=first, is_early=True) for n, play in plays.items()]


SITUATIONS = (
    *_slow_ones(),
    Situation(name="crash-exception", play=crash_loop(), first=CRASH),
    Situation(name="crash-exception-closes", play=crash_loop(closes=True), first=CRASH),
    Situation(name="crash-kill-9", play=crash_loop(kills=True), first=CRASH),
    *_told_early(
        DEPLOY,
        {
            "statefulset-range": statefulset(""),
            "statefulset-cooperative": statefulset("cooperative-sticky"),
            "deployment-range": deployment(""),
            "deployment-cooperative": deployment("cooperative-sticky"),
            "deployment-default-ids": deployment("", named=False),
        },
    ),
    Situation(name="autoscaler-flapping", play=flapping, first="HF132"),
    Situation(name="hung", play=hung(), first="HF105"),
    Situation(name="hot-partition", play=hot_partition, first="HF104"),
    Situation(name="retention-loss", play=retention_loss, first="HF116"),
    Situation(name="abandoned", play=abandoned, first="HF115"),
    Situation(name="well", play=well, first=""),
)
"""Every group that somebody is paged for, and one for which nobody should be."""

LONG = _told_early(
    SLOW,
    {
        "slow-confluent-300": slow(CONFLUENT, 300, times=2, commits="auto"),
        **{
            f"slow-{client}-300-beside-2": slow(client, 300, healthy=2, times=2, commits="batch")
            for client in (CONFLUENT, AIOKAFKA, KAFKA_PYTHON, JAVA)
        },
    },
)
"""The same at the default interval: a quarter of an hour."""

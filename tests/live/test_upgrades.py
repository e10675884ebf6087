"""A group goes from range to cooperative-sticky to Design II and back, as the plans say.

**Rules.** Three members: Java's, kafka-python's with holdfast's assignors, holdfast's own; or three
of one Python client that has a drop-in. Each is configured as the plan prints it, and changes to
another client only where the plan says so. Records are written all the time; at the end every
record was read, and by the event logs of the first three no two members owned a partition at the
same time.

References: KIP-726; Incremental Cooperative Rebalancing, "Compatibility".
"""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.kips.ways import plan_upgrade, settings_of_java
from tests.live.crew import Topic, group_of
from tests.live.polled import Polled
from tests.live.processes import Crew
from tests.live.run_broker import RunBroker
from tests.live.waiting import until

from holdfast.core.machine.upgrade import (
    Client,
    Config,
    check_step,
    default_assignors,
    plan_group,
)
from holdfast.local.jars import broker_jars
from holdfast.local.java import find_java

pytestmark = pytest.mark.broker

CONFIGURED = Path(__file__).parents[1] / "java" / "Configured.java"
STRATEGY = "partition.assignment.strategy"
N_PARTITIONS = 6
JAVAS = "org.apache.kafka.clients.consumer."


STOCK = (Client.JAVA, Client.KAFKA_PYTHON_PLUGIN, Client.HOLDFAST)


def everywhere(*assignors: str, clients: tuple[Client, ...] = STOCK) -> list[Config]:
    return [Config(client=client, assignors=assignors) for client in clients]


GOALS = [
    everywhere("range"),
    everywhere("cooperative-sticky"),
    everywhere("holdfast-deferred", clients=(Client.HOLDFAST,) * 3),  # no stock client has it
    everywhere("cooperative-sticky"),
    everywhere("range"),
]


def stages() -> list[list[Config]]:
    """The configurations of the three members after each bounce."""
    found = [GOALS[0]]
    for goal in GOALS[1:]:
        start, *bounces = plan_group(found[-1], goal)
        assert start == found[-1]
        found += bounces
    return found


def start(group: Crew, name: str, config: Config) -> None:
    value = config.setting.partition("=")[2]
    if config.client is Client.JAVA:
        group.java(name, value.replace(JAVAS, ""))
    elif config.client is Client.HOLDFAST:
        group.own(name, value)
    else:
        group.python(name, value.strip("[]"))


@pytest.mark.every
def test_from_range_to_cooperative_sticky_to_design_ii_and_back(broker, tmp_path):
    configs = stages()
    assert len(configs) == 9  # two bounces each way
    for before, after in pairwise(configs):
        assert not [f for f in check_step(before, after) if f.unsafe]
    with Crew(broker.bootstrap, 6, tmp_path) as group:
        for member, config in enumerate(configs[0]):
            start(group, f"{member}.0", config)
            group.await_balance()
        group.produce(50)
        for stage, (before, after) in enumerate(pairwise(configs), 1):
            for member, config in enumerate(after):
                assert config != before[member]
                group.stop(f"{member}.{stage - 1}")
                group.produce(5)
                start(group, f"{member}.{stage}", config)
                group.await_balance()
                group.produce(5)
        until(lambda: group.unread() == 0, lambda: f"{group.unread()} records are unread")
        assert group.overlaps() == []


def rolled(broker: RunBroker, group: str, topic: str, config: Config) -> Polled:
    """A member of a Python client, configured as a plan prints it."""
    library = config.client.rpartition(".")[2]
    kind = {"kafka-python": "kafka"}.get(library, library)
    if not config.client.startswith("holdfast."):
        assert config.assignors == default_assignors(config.client)
        return Polled(kind, broker.bootstrap, group, topic, is_original=True).start()
    text = config.setting.partition("=")[2]
    strategy = {STRATEGY: text if kind == "confluent" else eval(text)}
    return Polled(kind, broker.bootstrap, group, topic, is_original=False, **strategy).start()


def roll(broker: RunBroker, client: Client) -> None:
    """Three members of a client go to Design II and back, one after the other in each bounce."""
    topic = Topic(broker.bootstrap, N_PARTITIONS)
    group = f"g-{topic.name}"
    theirs = Config(client=client, assignors=default_assignors(client))
    design = replace(theirs, assignors=("holdfast-deferred",))
    stages = [theirs, *plan_upgrade(theirs, design), *plan_upgrade(design, theirs)]
    members: list[Polled] = []
    ended: list[Polled] = []

    def start(config: Config) -> None:
        members.append(rolled(broker, group, topic.name, config))

    def await_balance(stage: Config) -> None:
        def is_even() -> bool:
            loads = [len(m.owns) for m in members]
            everything = set().union(*(m.owned for m in members))
            return sum(loads) == len(everything) == N_PARTITIONS and max(loads) - min(loads) <= 1

        until(is_even, lambda: f"balance at {stage}; now {[m.owned for m in members]}")

    try:
        for _ in range(3):
            start(theirs)
        await_balance(theirs)
        for stage in stages[1:]:
            for _ in range(3):
                ended.append(members.pop(0).stop())
                assert ended[-1].error is None, ended[-1].error
                topic.produce(5)
                start(stage)
                await_balance(stage)
            assert group_of(broker.bootstrap, group).partition_assignor in stage.assignors
        sent = {(p, offset) for p, n in topic.sent.items() for offset in range(n)}

        def unread() -> set[tuple[int, int]]:
            return sent.difference(*(m.client.records for m in (*members, *ended)))

        until(lambda: not unread(), lambda: f"unread by {client}: {sorted(unread())[:9]}")
    finally:
        for member in members:
            member.stop()


@pytest.mark.every
def test_every_client_with_a_drop_in_goes_to_design_ii_and_back(broker):
    """Side by side, from the default of the original."""
    libraries = (Client.CONFLUENT, Client.AIOKAFKA, Client.KAFKA_PYTHON)
    with ThreadPoolExecutor(len(libraries)) as pool:
        for rolled in [pool.submit(roll, broker, library) for library in libraries]:
            rolled.result()


def test_javas_constructor_takes_what_plans_for_java_print_and_nothing_else():
    taken = settings_of_java()
    refused = {
        Config(client=Client.JAVA, assignors=names).setting
        for names in (("holdfast-deferred", "range"), ("lag-sticky",))
    }
    lines = [setting.partition("=")[2] for setting in (*sorted(taken), *sorted(refused))]
    classpath = os.pathsep.join(map(str, broker_jars()))
    options = ("-Xmx128m", "-Dlog4j2.level=OFF", "-cp", classpath)
    done = subprocess.run(
        [str(find_java().executable), *options, str(CONFIGURED)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    answers = done.stdout.splitlines()
    assert answers[: len(taken)] == ["ok"] * len(taken)
    assert len(answers) == len(lines)
    assert "ok" not in answers[len(taken) :]

"""A group goes from range to cooperative-sticky to Design II and back, as the plans say.

**Rules.** Three members: Java's, kafka-python's with our assignors, our own. Each is configured as
the plan prints it, and leaves for another client only where the plan says so. Records are written
all the time; in the end every record was read, and by their own journals no two members owned a
partition at the same time.

References: KIP-726; Incremental Cooperative Rebalancing, "Compatibility".
"""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise, permutations
from pathlib import Path

import pytest
from tests.live.processes import Crew, crew
from tests.live.waiting import until

from holdfast.core.machine.upgrade import Client, Config, check_step, plan_group, plan_upgrade
from holdfast.jvm.jars import broker_jars
from holdfast.jvm.java import find_java

pytestmark = pytest.mark.broker

CONFIGURED = Path(__file__).parents[1] / "java" / "Configured.java"
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
    with crew(broker.bootstrap, 6, tmp_path) as group:
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


def test_javas_constructor_takes_what_plans_for_java_print_and_nothing_else():
    names = ("range", "roundrobin", "sticky", "cooperative-sticky")
    taken = set()
    for pair in permutations(names, 2):
        first, goal = (Config(client=Client.JAVA, assignors=(name,)) for name in pair)
        taken |= {c.setting for c in (first, *plan_upgrade(first, goal))}
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

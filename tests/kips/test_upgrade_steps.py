"""Every step that a plan prints: the real client takes it, and the group goes through it safely.

**Rules.** A pair is a way from one assignor or design to another. For each pair and client the
plan's configurations go, as they are printed, to the client's own constructor. Then a group of
three takes all bounces in the simulated world, with the assignors that the constructed clients
offer; clients without holdfast are stood for by members that speak the same protocol. A pair for
which there is no plan needs a configuration that the client's constructor refuses.

**Strategy.** A client is constructed as far as that goes without a broker. Java's constructor is
asked in ``tests/live/test_upgrades.py``.

References: KIP-726, "Upgrade path"; Incremental Cooperative Rebalancing, "Compatibility".
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.coordinator.assignors.roundrobin import (
    RoundRobinPartitionAssignor as AiokafkaRoundRobin,
)
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AiokafkaSticky,
)
from kafka.coordinator.assignors.abstract import (
    RebalanceProtocol as KafkaRebalanceProtocol,
)
from kafka.coordinator.assignors.cooperative_sticky import (
    CooperativeStickyAssignor as KafkaPythonCooperativeSticky,
)
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange
from kafka.coordinator.assignors.roundrobin import (
    RoundRobinPartitionAssignor as KafkaPythonRoundRobin,
)
from kafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as KafkaPythonSticky,
)
from tests.cli.running import run
from tests.cli.suggested import parse
from tests.kips.ways import bounce, plan_upgrade, settings_of_java
from tests.members.configured import CLIENTS, NEEDED, STRATEGY
from tests.report.fleet import Script
from tests.report.test_findings import STATELESS, assignors, examine, of_protocol
from tests.suites import further

from holdfast import Consumer, Worker
from holdfast.core.machine.leader.assignor_protocol import Assignor, RebalanceProtocol
from holdfast.core.machine.policy import DESIGNS
from holdfast.core.machine.supported_protocols import supported_assignors
from holdfast.core.machine.upgrade import (
    Client,
    Config,
    check_group,
    default_assignors,
    plan_group,
    rebalance_protocol_of,
)
from holdfast.errors import ConfigError
from holdfast.fleet.analysis.group.client_library import PLANNED
from holdfast.members.clients.aiokafka import assignors as aiokafka_assignors
from holdfast.members.clients.kafka import assignors as kafka_assignors
from holdfast.members.config.policy import assignors_of

PROTOCOLS = ("range", "sticky", "cooperative-sticky", *DESIGNS)
PAIRS = list(permutations(PROTOCOLS, 2))


def of_holdfast(config: Config) -> tuple[Assignor, ...]:
    key, _, value = config.setting.partition("=")
    return Consumer({**NEEDED, key: value}).assignors


def of_worker(config: Config) -> tuple[Assignor, ...]:
    key, _, value = config.setting.partition("=")
    return Worker({**NEEDED, key: value}, {"t": 6}).assignors


@pytest.fixture(autouse=True)
def no_record_keeps_a_client(caplog):
    """What pytest keeps of a log names the client's sockets, and would keep them open."""
    caplog.set_level(logging.CRITICAL, "kafka")


def of_kafka_python(config: Config) -> tuple[Assignor, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the client leaves a socket open
        gc.freeze()  # so that only what the client leaves is looked at
        try:
            return constructed_by_kafka_python(config)
        finally:
            gc.collect()


def constructed_by_kafka_python(config: Config) -> tuple[Assignor, ...]:
    names = {
        "RangePartitionAssignor": KafkaPythonRange,
        "RoundRobinPartitionAssignor": KafkaPythonRoundRobin,
        "StickyPartitionAssignor": KafkaPythonSticky,
        "CooperativeStickyAssignor": KafkaPythonCooperativeSticky,
        "assignor": kafka_assignors.assignor,
    }
    made = eval(config.setting.partition("=")[2], names)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=NEEDED["bootstrap.servers"],
        group_id="g",
        api_version=(2, 6),  # or the constructor asks a broker
        partition_assignment_strategy=made,
    )
    try:
        ours = [a for a in made if isinstance(a, kafka_assignors.KafkaPythonAssignor)]
        if not ours:
            return supported_assignors(config.assignors)
        for one in ours:
            one.metadata(["t"])
        assert (
            consumer._coordinator._rebalance_protocol
            == KafkaRebalanceProtocol[rebalance_protocol_of(config).name]
        )
        return tuple(as_it_runs(a) for a in ours)
    finally:
        consumer.close(autocommit=False)


def as_it_runs(one: kafka_assignors.KafkaPythonAssignor) -> Assignor:
    """The assignor in the modes that its client is told, for the simulated world."""
    rebalance_protocols = frozenset(
        RebalanceProtocol[rebalance_protocol.name]
        for rebalance_protocol in one.supported_protocols()
    )
    return replace(one.protocol, rebalance_protocols=rebalance_protocols)


def of_aiokafka(config: Config) -> tuple[Assignor, ...]:
    async def made() -> list[object]:
        names = {
            "RangePartitionAssignor": AiokafkaRange,
            "RoundRobinPartitionAssignor": AiokafkaRoundRobin,
            "StickyPartitionAssignor": AiokafkaSticky,
            "assignor": aiokafka_assignors.assignor,
        }
        listed = eval(config.setting.partition("=")[2], names)
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=NEEDED["bootstrap.servers"],
            group_id="g",
            partition_assignment_strategy=listed,
        )
        await consumer.stop()
        return listed

    listed = asyncio.run(made())
    if all(isinstance(a, aiokafka_assignors.AiokafkaAssignor) for a in listed):
        return tuple(a.protocol for a in listed)
    return supported_assignors(config.assignors)


def of_confluent(config: Config) -> tuple[Assignor, ...]:
    key, _, value = config.setting.partition("=")
    made = confluent_kafka.Consumer({**NEEDED, key: value}, logger=None)
    made.close()
    return supported_assignors(config.assignors)


def of_drop_in(config: Config) -> tuple[Assignor, ...]:
    """A drop-in for Kafka's keys takes a text, one for keywords a list."""
    text = config.setting.partition("=")[2]
    listed = text if config.client is Client.HOLDFAST_CONFLUENT else eval(text)
    read = CLIENTS[config.client.rpartition(".")[2]]
    return assignors_of(read({**NEEDED, STRATEGY: listed}))


def of_java(config: Config) -> tuple[Assignor, ...]:
    return supported_assignors(config.assignors)


SUPPORTED_BY = {
    Client.HOLDFAST: of_holdfast,
    Client.WORKER: of_worker,
    Client.JAVA: of_java,
    Client.KAFKA_PYTHON: of_kafka_python,
    Client.KAFKA_PYTHON_PLUGIN: of_kafka_python,
    Client.AIOKAFKA: of_aiokafka,
    Client.AIOKAFKA_PLUGIN: of_aiokafka,
    Client.CONFLUENT: of_confluent,
    Client.HOLDFAST_KAFKA: of_drop_in,
    Client.HOLDFAST_AIOKAFKA: of_drop_in,
    Client.HOLDFAST_CONFLUENT: of_drop_in,
}
"""What a client that is constructed with the printed configuration offers to its group."""

HAVE_A_WAY = {
    **{client: set(PROTOCOLS) for client in Client},  # by way of our assignors or a drop-in
    Client.WORKER: set(DESIGNS),
    Client.JAVA: {"range", "sticky", "cooperative-sticky"},
}
"""Between any two of these there is a plan for the client; written down, not computed."""


@pytest.fixture(scope="session")
def bounced() -> list[list[Sequence[Assignor]]]:
    """Ways that were taken: clients that offer equal assignors take the same one."""
    return []


def name_of(value: object) -> str:
    return "-to-".join(value) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize("pair", PAIRS, ids=name_of)
@pytest.mark.parametrize("client", Client, ids=str)
def test_a_client_takes_every_step_that_its_plan_prints(client, pair, bounced):
    start, goal = (Config(client=client, assignors=(name,)) for name in pair)
    if not HAVE_A_WAY[client].issuperset(pair):
        with pytest.raises(ConfigError, match="stop all first"):
            plan_upgrade(start, goal)
        return
    first, *steps = (configs[0] for configs in plan_group([start], [goal]))
    assert plan_upgrade(start, goal) == steps
    assert len(steps) == (1 if client is Client.WORKER else 2)
    stages = [SUPPORTED_BY[config.client](config) for config in (first, *steps)]
    for config, supported_protocols in zip((first, *steps), stages, strict=True):
        assert tuple(a.name for a in supported_protocols) == config.supported_protocols
    assert (stages[0][0].name, stages[-1][0].name) == pair
    for before, after in pairwise(stages):
        assert {a.name for a in before} & {a.name for a in after}
    if stages not in bounced:
        bounce(stages)
        bounced.append(stages)


def test_two_cooperative_assignors_of_ours_run_eager_between_two_bounces_of_kafka_python():
    """Neither of them hears of the assignments that the other one was chosen for."""
    pair = ("cooperative-sticky", "constrained-cooperative-sticky")
    client = Client.KAFKA_PYTHON_PLUGIN
    start, goal = (Config(client=client, assignors=(name,)) for name in pair)
    steps = plan_upgrade(start, goal)
    assert [rebalance_protocol_of(config).name for config in (start, *steps)] == [
        "COOPERATIVE",
        "EAGER",
        "COOPERATIVE",
    ]
    bounce([SUPPORTED_BY[client](config) for config in (start, *steps)])


def test_a_plan_says_that_lag_needs_the_group():
    clients = (Client.KAFKA_PYTHON_PLUGIN, Client.AIOKAFKA_PLUGIN)
    (setting,) = {Config(client=c, assignors=("lag",)).setting for c in clients}
    assert setting == "partition_assignment_strategy=[assignor('lag', group_id='...')]"


@pytest.mark.parametrize(
    ("client", "drop_in"),
    [
        (Client.KAFKA_PYTHON, Client.HOLDFAST_KAFKA),
        (Client.KAFKA_PYTHON_PLUGIN, Client.HOLDFAST_KAFKA),
        (Client.AIOKAFKA, Client.HOLDFAST_AIOKAFKA),
        (Client.AIOKAFKA_PLUGIN, Client.HOLDFAST_AIOKAFKA),
        (Client.CONFLUENT, Client.HOLDFAST_CONFLUENT),
    ],
)
def test_the_way_to_a_design_leads_to_the_drop_in_and_back(client, drop_in):
    """The import changes in the first bounce there, and in the last one back."""
    theirs = Config(client=client, assignors=default_assignors(client))
    design = replace(theirs, assignors=("holdfast-deferred",))
    there, back = plan_upgrade(theirs, design), plan_upgrade(design, theirs)
    assert [config.client for config in there] == [drop_in, drop_in]
    assert [config.client for config in back] == [drop_in, client]
    assert there[0].assignors == ("holdfast-deferred", *theirs.assignors)


def test_an_old_java_client_is_exchanged_in_the_first_bounce():
    old = Config(client=Client.JAVA, version=(2, 2), assignors=("range",))
    steps = plan_upgrade(old, replace(old, assignors=("cooperative-sticky",)))
    assert [config.version for config in steps] == [(2, 4), (2, 4)]


def test_a_client_without_a_list_supports_what_its_library_supports():
    """As their constructors say; Java's and librdkafka's are those of their documentation."""
    assert default_assignors(Client.JAVA, (2, 8)) == ("range",)
    assert default_assignors(Client.JAVA) == ("range", "cooperative-sticky")
    assert default_assignors(Client.CONFLUENT) == ("range", "roundrobin")
    kafkas = kafka.KafkaConsumer.DEFAULT_CONFIG["partition_assignment_strategy"]
    assert default_assignors(Client.KAFKA_PYTHON) == tuple(a.name for a in kafkas)
    (aiokafkas,) = aiokafka.AIOKafkaConsumer.__init__.__kwdefaults__[
        "partition_assignment_strategy"
    ]
    assert default_assignors(Client.AIOKAFKA) == (aiokafkas.name,)
    assert default_assignors(Client.HOLDFAST) == of_names(Consumer(NEEDED).assignors)
    assert default_assignors(Client.WORKER) == of_names(Worker(NEEDED, {"t": 1}).assignors[:1])
    for name, read in CLIENTS.items():
        if name != "holdfast":
            of_original = default_assignors(Client(f"holdfast.{name}"))
            assert of_names(assignors_of(read(NEEDED))) == of_original


def of_names(assignors: Sequence[Assignor]) -> tuple[str, ...]:
    return tuple(a.name for a in assignors)


@pytest.mark.parametrize(
    ("client", "assignors", "refusal"),
    [
        (Client.HOLDFAST, ("range", "range"), ConfigError),
        (Client.WORKER, ("range",), ConfigError),
        (Client.WORKER, ("holdfast-deferred", "range"), ConfigError),
        (Client.KAFKA_PYTHON, ("cooperative-sticky", "range"), kafka.errors.KafkaError),
        (Client.KAFKA_PYTHON_PLUGIN, ("holdfast-deferred",), ConfigError),
        (Client.AIOKAFKA_PLUGIN, ("cooperative-sticky",), ConfigError),
        (Client.AIOKAFKA_PLUGIN, ("holdfast-deferred", "range"), ConfigError),
        (
            Client.CONFLUENT,
            ("cooperative-sticky", "range"),
            (confluent_kafka.KafkaException, ValueError),
        ),
        (Client.CONFLUENT, ("sticky",), (confluent_kafka.KafkaException, ValueError)),
    ],
)
def test_what_a_plan_may_not_print_the_client_refuses(client, assignors, refusal):
    config = Config(client=client, assignors=assignors)
    with pytest.raises(refusal):
        SUPPORTED_BY[client](config)
    assert any(finding.unsafe for finding in check_group([config]))


EAGER_NOW = ("range", "roundrobin", "sticky", "lag-sticky")
"""Assignors under which a group may be found."""


def suggested(now: str) -> set[str]:
    """Every plan that a finding suggests for a group under an assignor, whatever it runs."""
    scripts: list[Script] = [of_protocol(make(), now) for make in STATELESS.values()]
    scripts.append(assignors(now, "cooperative-sticky"))
    commands = {f.command for script in scripts for f in examine(script).values()}
    return {command for command in commands if command.startswith("holdfast upgrade-check")}


@pytest.mark.parametrize("now", further(EAGER_NOW))
@pytest.mark.parametrize("client", PLANNED, ids=str)
def test_a_client_takes_every_bounce_of_every_plan_that_a_finding_suggests(client, now):
    """As the command prints them: its own constructor says so, or Java's, by the other test."""
    commands = suggested(now)
    assert commands
    for command in commands:
        words = parse(command)
        at = words.index("--client") + 1
        if client not in words[at].split("|"):
            assert (client, now) == (Client.JAVA, "lag-sticky"), "no client of Java's has it"
            continue
        done = run(*words[:at], str(client), *words[at + 1 :], "--format", "json")
        assert done.code == 0, done.out
        (way,) = json.loads(done.out)["bounces"]
        assert way["steps"][-1]["assignors"] == ["cooperative-sticky"]
        for step in way["steps"]:
            for side in (step["before"], step):
                config = Config(client=Client(side["client"]), assignors=tuple(side["assignors"]))
                assert side["setting"] == config.setting
                assert {a.name for a in SUPPORTED_BY[config.client](config)} == {
                    *config.supported_protocols
                }
                if config.client is Client.JAVA:
                    assert config.setting in settings_of_java()


def test_the_plan_without_a_client_is_one_that_stock_clients_refuse():
    """Why each command names one: every pod of confluent-kafka would fail in the first bounce."""
    done = run("upgrade-check", "--from", "range", "--to", "cooperative-sticky", "--plan")
    assert "partition.assignment.strategy=cooperative-sticky,range" in done.out
    stock = Config(client=Client.CONFLUENT, assignors=("cooperative-sticky", "range"))
    with pytest.raises((confluent_kafka.KafkaException, ValueError)):
        of_confluent(stock)

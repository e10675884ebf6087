"""A private cluster: TLS, a login by SCRAM, and nobody may do what no ACL allows.

Every command and every client runs on it with the permissions of the page, and no others.
"""

from __future__ import annotations

import asyncio
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.cli.running import run
from tests.live.crew import fresh
from tests.live.run_broker import RunBroker, holding
from tests.live.security import PASSWORD, USER
from tests.live.small_group import small_group
from tests.live.waiting import PATIENCE_SECONDS, until
from tests.suites import further

from holdfast import Consumer, Worker
from holdfast.cluster.cluster import LiveCluster
from holdfast.errors import HoldfastError, RemoteProtocolError, SourceError
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC, kafka_options

pytestmark = pytest.mark.broker

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
Rule = tuple[str, str, str]  # resource, its name or prefix*, operation


def table() -> dict[str, set[Rule]]:
    """Rules of each row of the page's table: what is run -> resource, name, operation."""
    text = PAGE.read_text(encoding="utf-8").split("## What a principal needs", 1)[1]
    found: dict[str, set[Rule]] = {}
    for line in text.split("\n## ", 1)[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 2 or not line.startswith("| `"):
            continue
        rules = set()
        for operations, resource, name in re.findall(
            r"([A-Z][A-Z, ]*) on (topic|group|cluster) `([^`]+)`", cells[1]
        ):
            rules |= {(resource, name, operation) for operation in operations.split(", ")}
        for what in re.findall(r"`([^`]+)`", cells[0]):
            found[what] = rules
    return found


@pytest.fixture
def strict(broker, run_folder):
    """The run's broker; while somebody is named for everything, nobody else may do anything."""
    everything = {
        ("topic", "*", "READ"),
        ("group", "*", "READ"),
        ("cluster", "cluster", "DESCRIBE"),
    }
    with holding(run_folder, "rights"), Allowed(broker, everything, {}, user="nobody"):
        yield broker


@pytest.fixture(scope="module")
def login(certificates) -> dict[str, str]:
    """What our user's clients are given."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": certificates.ca,
    }


@pytest.fixture
def credentials(login, tmp_path) -> Path:
    """The same as a file for ``--command-config``."""
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in login.items()))
    return file


class Allowed:
    """Our user may do this, and nothing else, while the block lasts."""

    def __init__(
        self, broker: RunBroker, rules: set[Rule], names: dict[str, str], *, user: str = USER
    ):
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        self._principal = f"User:{user}"
        self._rules = [self._binding(*rule, names) for rule in sorted(rules)]

    def _binding(
        self, resource: str, name: str, operation: str, names: dict[str, str]
    ) -> AclBinding:
        name = names.get(name, name)
        kind = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}
        is_prefix = name.endswith("*") and name != "*"
        return AclBinding(
            kind.get(resource, ResourceType.BROKER),
            "kafka-cluster" if resource == "cluster" else name.rstrip("*") if is_prefix else name,
            ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL,
            self._principal,
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )

    def __enter__(self) -> Allowed:
        for future in self._admin.create_acls(self._rules).values():
            future.result(60)
        return self

    def __exit__(self, *_: object) -> None:
        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            self._principal,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for future in self._admin.delete_acls([every]).values():
            future.result(60)


COMMANDS = {
    "dump": ("-o", "{out}/dump"),
    "history": ("-o", "{out}/tables"),
    "lag": (),
    "doctor": (),
    "report": ("-o", "{out}/report.html"),
    "plan": ("--assignor", "sticky"),
    "replay": (),
}


@pytest.fixture(scope="module")
def lived(broker):
    group = fresh("group")
    with small_group(broker.bootstrap, group) as (topic, _):
        yield topic, group


@pytest.mark.spark
@pytest.mark.parametrize("command", further(COMMANDS))
def test_a_command_needs_no_more_than_the_page_says(
    spark, strict, lived, credentials, tmp_path, command
):
    more = [word.format(out=tmp_path) for word in COMMANDS[command]]
    with Allowed(strict, table()[command], {}):
        at = strict.bootstrap_of("SCRAM")
        done = run(command, "-b", at, "--command-config", credentials, *more)
    assert done.code == 0, done.err


@pytest.mark.spark
def test_what_watch_keeps_of_it_is_compacted_exported_and_served(
    spark, strict, lived, credentials, tmp_path
):
    topic, group = lived
    folder = tmp_path / "tables"
    own = ("-b", strict.bootstrap_of("SCRAM"), "--command-config", credentials)
    with Allowed(strict, table()["watch"], {}):
        done = run("watch", *own, "-o", folder)
        assert done.code == 0, done.err
    # From here on nothing is asked of the cluster.
    for words in (
        ("tables", "compact", folder),
        ("doctor", "--input", folder),
        ("lag", "--input", folder),
        ("report", "--input", folder, "-o", tmp_path / "report.html"),
    ):
        done = run(*words)
        assert done.code == 0, done.err
    lag = f'kafka_consumergroup_lag{{consumergroup="{group}",topic="{topic}",partition="0"}} 0'
    pages = served(folder, "/", "/metrics")
    assert group in pages[0] and lag in pages[1]
    assert PASSWORD not in "".join(pages)


def served(folder: Path, *paths: str) -> list[str]:
    """What ``holdfast serve`` answers, once all of it is examined."""
    command = [sys.executable, "-m", "holdfast", "serve", "--input", str(folder)]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        address = re.search(r"http://\S+?(?=/ )", process.stderr.readline())
        assert address is not None
        until(lambda: get(address.group() + "/metrics") is not None, "every group is examined")
        return [get(address.group() + path) or "" for path in paths]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        process.stderr.close()


def get(url: str) -> str | None:
    """The body of an answer; None of one that says: not yet."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        assert error.code == 503, error
        error.close()
        return None


@pytest.mark.every
@pytest.mark.spark
def test_every_rule_of_the_commands_is_needed(spark, strict, lived, login):
    """Without one of them a half fails, and says so, or a topic or a group is missing."""
    rules = table()["doctor"]
    topic, group = lived
    whole = {topic, group}

    def look() -> set[str]:
        cluster = LiveCluster(bootstrap=strict.bootstrap_of("SCRAM"), config=dict(login))
        cluster.check()
        ends = cluster.partition_ends(OFFSETS_TOPIC)
        seen = {name for _, name, _ in cluster.snapshot().topics} | cluster.group_names()
        options = kafka_options(cluster, sorted(ends))
        assert spark.read.format("kafka").options(**options).load().count() > 0
        return seen & whole

    with Allowed(strict, rules, {}):
        assert look() == whole
    for rule in sorted(rules):
        with Allowed(strict, rules - {rule}, {}):
            try:
                assert look() < whole, rule
            except SourceError as error:
                assert "may not read" in str(error), rule
            except Exception as error:
                assert "AuthorizationException" in str(error), rule


def test_members_need_no_more_than_the_page_says(strict, lived, login):
    topic, _ = lived
    group = fresh("group")
    rules = table()
    config = {
        "bootstrap.servers": strict.bootstrap_of("SCRAM"),
        "group.id": group,
        "auto.offset.reset": "earliest",
        **login,
    }
    names = {"TOPIC": topic, "GROUP": group}
    wanted = rules["Consumer"]
    with Allowed(strict, wanted, names), Consumer(config) as consumer:
        consumer.subscribe([topic])
        got: list[object] = []
        until(lambda: got.extend(consumer.poll(0.2)) or len(got) == 3, "records")
        consumer.commit()
    with Allowed(strict, rules["Worker"], names), Worker(config, {"shard": 2}) as worker:
        until(lambda: len(worker.owned) == 2, "the worker works")
    for rule in wanted:
        refused = pytest.raises(HoldfastError)
        with Allowed(strict, wanted - {rule}, names), refused as caught, Consumer(config) as one:
            one.subscribe([topic])
            until(lambda one=one: one.poll(0.2), f"records without {rule}", 60)
        assert isinstance(caught.value, RemoteProtocolError), rule
        assert "AUTHORIZATION_FAILED" in str(caught.value)


def confluent(config: dict[str, Any], topic: str) -> None:
    """A program of confluent-kafka with one import changed."""
    from holdfast.confluent import Consumer as FromConfluent

    with closing(FromConfluent(config)) as consumer:
        consumer.subscribe([topic])
        until(lambda: (got := consumer.poll(0.2)) and got.value() == b"x", "a record")
        consumer.commit(asynchronous=False)


def by_keywords(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration in the words of kafka-python and aiokafka."""
    return {
        "bootstrap_servers": config["bootstrap.servers"],
        "group_id": config["group.id"],
        "auto_offset_reset": "earliest",
        "security_protocol": config["security.protocol"],
        "sasl_mechanism": config["sasl.mechanism"],
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "ssl_context": ssl.create_default_context(cafile=config["ssl.ca.location"]),
    }


def kafka_python(config: dict[str, Any], topic: str) -> None:
    """A program of kafka-python with one import changed."""
    from holdfast.kafka import KafkaConsumer

    with closing(KafkaConsumer(topic, **by_keywords(config))) as consumer:
        until(lambda: consumer.poll(200), "a record")
        consumer.commit()


def stock(config: dict[str, Any], topic: str) -> None:
    """A program of kafka-python with an assignor of ours."""
    from kafka import KafkaConsumer

    from holdfast.members.kafka_python import CooperativeSticky

    own = {"partition_assignment_strategy": [CooperativeSticky()]}
    with closing(KafkaConsumer(topic, **by_keywords(config), **own)) as consumer:
        until(lambda: consumer.partitions_for_topic(topic), "the topic's metadata")
        until(lambda: consumer.poll(200), "a record")
        consumer.commit()


def aiokafka(config: dict[str, Any], topic: str) -> None:
    """A program of aiokafka with one import changed."""
    from holdfast.aiokafka import AIOKafkaConsumer

    async def read() -> None:
        async with AIOKafkaConsumer(topic, **by_keywords(config)) as consumer:
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert (await consumer.getone()).value == b"x"
                await consumer.commit()

    asyncio.run(read())


@pytest.mark.parametrize("program", [confluent, kafka_python, stock, aiokafka])
def test_every_client_needs_no_more_than_a_member(
    strict, lived, login, program: Callable[[dict[str, Any], str], None]
):
    topic, _ = lived
    config = {
        "bootstrap.servers": strict.bootstrap_of("SCRAM"),
        "group.id": fresh("group"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **login,
    }
    names = {"TOPIC": topic, "GROUP": config["group.id"]}
    with Allowed(strict, table()["Consumer"], names):
        program(config, topic)

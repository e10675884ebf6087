"""What a principal needs, on a cluster that lets nobody do anything that no ACL allows."""

from __future__ import annotations

import re
from pathlib import Path

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
from tests.live.small_group import small_group
from tests.live.waiting import until

from holdfast import Consumer, Worker
from holdfast.adapters.broker.broker import Broker
from holdfast.adapters.cluster.cluster import LiveCluster
from holdfast.errors import HoldfastError, RemoteProtocolError, SourceError
from holdfast.pipeline.ingest.source import OFFSETS_TOPIC, kafka_options

pytestmark = pytest.mark.broker

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "bob",
    "sasl.password": "bob-secret",
}
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


@pytest.fixture(scope="module")
def strict():
    """A broker that asks for an ACL for everything; its plain listener is the administrator's."""
    from holdfast.adapters.broker.broker import BrokerSettings

    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = BrokerSettings(
        properties={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.private.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.private.plain.sasl.jaas.config": (
                f'{plain} required user_bob="bob-secret";'
            ),
        },
        listeners={"PRIVATE": "SASL_PLAINTEXT"},
        heap_mb=256,
    )
    with Broker.start(settings=settings) as running:
        yield running


class Allowed:
    """Bob may do this, and nothing else, while the block lasts."""

    def __init__(self, broker: Broker, rules: set[Rule], names: dict[str, str]):
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        self._rules = [self._binding(*rule, names) for rule in sorted(rules)]

    @staticmethod
    def _binding(resource: str, name: str, operation: str, names: dict[str, str]) -> AclBinding:
        name = names.get(name, name)
        kind = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}
        is_prefix = name.endswith("*") and name != "*"
        return AclBinding(
            kind.get(resource, ResourceType.BROKER),
            "kafka-cluster" if resource == "cluster" else name.rstrip("*") if is_prefix else name,
            ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL,
            "User:bob",
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
            "User:bob",
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
def lived(strict):
    group = fresh("group")
    with small_group(strict.bootstrap, group) as (topic, _):
        yield topic, group


@pytest.mark.spark
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_needs_no_more_than_the_page_says(spark, strict, lived, tmp_path, command):
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in LOGIN.items()))
    more = [word.format(out=tmp_path) for word in COMMANDS[command]]
    with Allowed(strict, table()[command], {}):
        done = run(command, "-b", strict.bootstrap_of("PRIVATE"), "--command-config", file, *more)
    assert done.code == 0, done.err


@pytest.mark.spark
def test_every_rule_of_the_commands_is_needed(spark, strict, lived):
    """Without one of them a half fails, and says so, or a topic or a group is missing."""
    rules = table()["doctor"]
    topic, group = lived
    whole = {topic, group}

    def look() -> set[str]:
        cluster = LiveCluster(bootstrap=strict.bootstrap_of("PRIVATE"), config=LOGIN)
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


def test_members_need_no_more_than_the_page_says(strict, lived):
    topic, _ = lived
    group = fresh("group")
    rules = table()
    config = {
        "bootstrap.servers": strict.bootstrap_of("PRIVATE"),
        "group.id": group,
        "auto.offset.reset": "earliest",
        **LOGIN,
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

"""The configuration of a cluster's nodes: ``server.properties``, the ZooKeeper's file, the logging.

**Rules.** All versions of Kafka get the same properties, except for the store of metadata: the
brokers themselves since Kafka 3.3, the first release whose KRaft is for production, and a ZooKeeper
before. A version ignores a property that it does not know. Logging is by log4j 2 since Kafka 4.0,
by log4j 1 before; coordinators log why a group rebalances, as they do by default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.errors import ConfigError
from holdfast.local.broker_server import Server
from holdfast.local.jars import KAFKA_VERSION, kafka_release

_LOG4J_2 = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
logger.groups.name = org.apache.kafka.coordinator.group
logger.groups.level = info
"""
_LOG4J_1 = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.kafka.server.KafkaRaftServer=INFO
log4j.logger.kafka.server.KafkaServer=INFO
log4j.logger.org.apache.zookeeper.server.NIOServerCnxnFactory=INFO
log4j.logger.kafka.coordinator.group=INFO
log4j.logger.org.apache.kafka.coordinator.group=INFO
"""

_LEAST_HEAP_MB = 64
"""No Kafka starts with less; Java's error names no option of holdfast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Settings of a cluster."""

    # 1 or 3 nodes, each broker and controller; three are in racks ``rack-1`` to ``rack-3``.
    brokers: int = 1
    kafka: str = KAFKA_VERSION  # version of the server, 2.5.0 or newer
    port: int | None = None  # port of the first node, the next ones follow; free ports by default
    # Kafka's own names; they override holdfast's.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    # More listeners: name -> security protocol (``{"TLS": "SSL"}``), each on a free port.
    listeners: Mapping[str, str] = field(default_factory=dict)
    # Advertised ports of a listener, one a node, for a proxy in between.
    advertised: Mapping[str, Sequence[int]] = field(default_factory=dict)
    # For ``kafka-storage format``, such as ``--add-scram``.
    format_arguments: Sequence[str] = field(default=(), repr=False)
    heap_mb: int = 512  # Java heap of each node, MiB
    keep: bool = False  # keep the folder at the end


def has_kraft(kafka: str) -> bool:
    """Return whether a version of Kafka runs without a ZooKeeper here."""
    return kafka_release(kafka) >= (3, 3)


def check(settings: BrokerSettings) -> None:
    """Refuse settings that make no cluster."""
    if settings.brokers not in (1, 3):
        raise ConfigError(f"brokers: 1 or 3, not {settings.brokers}")
    port = settings.port
    if port is not None and not 1 <= port <= 65_536 - settings.brokers:
        raise ConfigError(f"port: 1 to {65_536 - settings.brokers}, not {port}")
    if settings.heap_mb < _LEAST_HEAP_MB:
        raise ConfigError(f"heap_mb: {_LEAST_HEAP_MB} or more, not {settings.heap_mb}")
    if settings.format_arguments and not has_kraft(settings.kafka):
        raise ConfigError(f"format_arguments: Kafka {settings.kafka} has nothing to format")


def logging_properties(kafka: str) -> str:
    """Return the text of the logging configuration of one version."""
    return _LOG4J_2 if kafka_release(kafka) >= (4, 0) else _LOG4J_1


def zookeeper_properties(zookeeper: Server) -> Mapping[str, str]:
    """Return ``zoo.cfg`` of a ZooKeeper on the loopback interface."""
    return {
        "dataDir": str(zookeeper.folder / "data"),
        "clientPort": str(zookeeper.ports["ZOOKEEPER"]),
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
    }


def server_properties(
    node: Server, nodes: Sequence[Server], settings: BrokerSettings, zookeeper: Server | None
) -> Mapping[str, str]:
    """Return ``server.properties`` of one node; the user's properties override the others."""
    n = len(nodes)
    names = [name for name in node.ports if zookeeper is None or name != "CONTROLLER"]
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **settings.listeners}
    seen = {name: ports[node.node_id - 1] for name, ports in settings.advertised.items()}
    advertised = [
        f"{name}://127.0.0.1:{seen.get(name, node.ports[name])}"
        for name in names
        if name != "CONTROLLER"
    ]
    return {
        **(_in_kraft(node, nodes) if zookeeper is None else _in_zookeeper(node, zookeeper)),
        "listeners": ",".join(f"{name}://127.0.0.1:{node.ports[name]}" for name in names),
        "advertised.listeners": ",".join(advertised),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join(f"{name}:{protocols[name]}" for name in names),
        "log.dirs": str(node.folder / "data"),
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(n),
        "offsets.topic.replication.factor": str(n),
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": str(n),
        "transaction.state.log.min.isr": str(min(n, 2)),
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": str(n),
        "share.coordinator.state.topic.min.isr": str(min(n, 2)),
        "share.coordinator.state.topic.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": "8388608",
        **({"broker.rack": f"rack-{node.node_id}"} if n > 1 else {}),
        **settings.properties,
    }


def _in_kraft(node: Server, nodes: Sequence[Server]) -> Mapping[str, str]:
    voters = (f"{one.node_id}@127.0.0.1:{one.ports['CONTROLLER']}" for one in nodes)
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
    }


def _in_zookeeper(node: Server, zookeeper: Server) -> Mapping[str, str]:
    return {
        "broker.id": str(node.node_id),
        "zookeeper.connect": f"127.0.0.1:{zookeeper.ports['ZOOKEEPER']}",
        "zookeeper.connection.timeout.ms": "120000",
    }

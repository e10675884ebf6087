"""One Java process of a cluster: its configuration, and the guard that ends it.

The guard is a process between the caller and the server, so that the server never outlives the
caller: ``python -m holdfast.local.broker_server FOLDER COMMAND...``. It prints the server's process
id.

**Rules.** All versions of Kafka get the same properties, except for the store of metadata: the
brokers themselves since Kafka 3.3, the first release whose KRaft is for production, and a ZooKeeper
before. A version ignores a property that it does not know. Logging is by log4j 2 since Kafka 4.0,
by log4j 1 before; coordinators log why a group rebalances, as they do by default.

The guard's standard input is a pipe that only its parent holds. A line ``stop`` ends the
server and leaves the folder. If the pipe ends without that line, the parent has ended: the guard
kills the server and removes the folder of the whole cluster. Until then the guard stays, even if
its server has ended. If the guard itself is killed, Linux kills the server.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.errors import BrokerError, ConfigError
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


def check_settings(settings: BrokerSettings) -> None:
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


_STOP_SECONDS, _GRACE_SECONDS = 40.0, 30.0  # of the caller for the guard, of the guard for Java
_PR_SET_PDEATHSIG = 1
_ENDED_BY_SIGTERM = 128 + signal.SIGTERM
_READY = re.compile(
    r"Kafka Server started|\[KafkaServer id=\d+\] started|binding to port .*NIOServerCnxnFactory"
)


class Server:
    """One server process with its guard: a node of Kafka, or the ZooKeeper of the nodes."""

    def __init__(self, node_id: int, folder: Path, ports: Mapping[str, int], kafka: str):
        self.node_id = node_id  # from 1; 0 for the ZooKeeper
        self.kafka = kafka  # version whose jars it runs with
        self.folder = folder  # of its configuration, its log and its data
        self.ports = ports  # by listener
        self.guard: subprocess.Popen[bytes] | None = None
        self.pid = -1

    @property
    def name(self) -> str:
        """Name of the process, for people."""
        return f"Kafka node {self.node_id}" if self.node_id else "ZooKeeper"

    @property
    def config(self) -> Path:
        """The file of the server's configuration."""
        return self.folder / "server.properties"

    @property
    def log(self) -> Path:
        """The file of its log."""
        return self.folder / "server.log"

    @property
    def logging(self) -> Path:
        """The file of its logging configuration."""
        return self.folder / "log4j.properties"

    def launch(self, command: Sequence[str]) -> None:
        """Start the server under a new guard."""
        self.log.write_bytes(b"")
        self.guard = subprocess.Popen(  # noqa: S603 - our own command, no shell
            [
                sys.executable,
                "-m",
                "holdfast.local.broker_server",
                str(self.folder),
                *command,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # a buffer would be flushed at close, into a pipe that may be broken
            start_new_session=True,  # Ctrl-C is for the caller, which notifies the guard
        )
        assert self.guard.stdout is not None
        answer = self.guard.stdout.readline().strip()
        if not answer:
            raise BrokerError(f"{self.name} did not start: {self.last_words()}")
        self.pid = int(answer)

    def is_running(self) -> bool:
        """Return whether the server runs."""
        if self.guard is None or self.guard.poll() is not None:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.pid, 0)
            return True
        return False

    def is_ready(self) -> bool:
        """Return whether it has logged that it accepts connections."""
        return _READY.search(self.log.read_text(encoding="utf-8", errors="replace")) is not None

    def stop(self, *, orderly: bool) -> bool:
        """End the server and its guard, keep the folder; return whether it ended in order."""
        is_running = self.is_running()
        guard, self.guard = self.guard, None
        if guard is None:
            return False
        assert guard.stdin is not None
        assert guard.stdout is not None
        with suppress(OSError):
            guard.stdin.write(b"stop\n")
        if not orderly and is_running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        try:
            guard.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            guard.kill()  # Linux kills the server with it
            guard.wait()
        guard.stdin.close()
        guard.stdout.close()
        return guard.returncode == _ENDED_BY_SIGTERM  # Java's, and not killed

    def last_words(self) -> str:
        """Return the line of the log that explains a failed start best."""
        with suppress(OSError):
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            telling = [line for line in lines if "Exception" in line or "rror" in line]
            if telling or lines:
                return (telling or lines)[-1].strip()
        return "no log"


def guard(arguments: list[str]) -> int:
    """Run the command until it ends or the pipe says so; return its exit code."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # the pipe alone decides
    folder = Path(arguments[0])
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def die_with_guard() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(  # noqa: S603 - the parent's own command, no shell
            arguments[1:],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_guard,  # noqa: PLW1509 - there is one thread here so far
        )
    print(server.pid, flush=True)
    obeying = threading.Thread(target=_obey, args=(server, folder), daemon=True)
    obeying.start()
    code = server.wait()
    obeying.join()
    return code


def _obey(server: subprocess.Popen[bytes], folder: Path) -> None:
    if sys.stdin.readline().strip() == "stop":
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(_GRACE_SECONDS)
            return
        server.kill()
        return
    server.kill()
    server.wait()
    # The parent's other nodes end too; the last guard finds nothing in use.
    shutil.rmtree(folder.parent, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]))

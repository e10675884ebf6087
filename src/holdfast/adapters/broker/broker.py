"""A real Apache Kafka on this machine: KRaft, free loopback ports, data in a temporary folder.

**Rules.** Nothing outlives the caller: not after exit, exception, Ctrl-C or SIGTERM, and not if the
caller is killed. A cluster is ready when :meth:`Broker.start` returns: every node has logged that
it started, after the controller let it in.

**Strategy.** One :mod:`~holdfast.adapters.broker.broker_guard` per node holds the Java process and
watches a pipe from this process. Ports are drawn below the range from which the system takes client
ports, so a node finds its port free again after a restart.

Versions from 2.8 on run; each gets the logging that its jars have (log4j 2 since 4.0). Properties
that a version does not know are ignored by it, so all get the same.

Not obvious: :meth:`Broker.stop` kills the nodes unless the folder is kept, because their data are
removed anyway; :meth:`Broker.stop_node` stops a node in order.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from holdfast.errors import AdapterError, ConfigError
from holdfast.jvm.jars import KAFKA_VERSION, Note, broker_jars, kafka_release
from holdfast.jvm.java import find_java

_CLUSTER_ID = "holdfastLocalClusterId"  # 22 characters of base64: a UUID, as Kafka writes one
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
_READY = "Kafka Server started"
_START_SECONDS = 300.0
_STOP_SECONDS = 40.0
_ATTEMPTS = 4
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
"""
_LOG4J_1 = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.kafka.server.KafkaRaftServer=INFO
"""


_LEAST_HEAP_MB = 64
"""With less no Kafka starts; Java says so in words that name no option of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What to start.

    Parameters
    ----------
    brokers : int
        1 or 3 nodes, each broker and controller; three are in racks ``rack-1`` to ``rack-3``.
    kafka : str
        Version of the server, 2.8.0 or newer.
    port : int, optional
        Port of the first node, the next ones follow; free ports by default.
    properties : mapping of str to str
        Kafka's own names; they win over ours.
    listeners : mapping of str to str
        More listeners: name -> security protocol (``{"TLS": "SSL"}``), each on a free port.
    advertised : mapping of str to sequence of int
        Ports that clients of a listener are sent to, one a node, where something stands between.
    format_arguments : sequence of str
        For ``kafka-storage format``, such as ``--add-scram``.
    heap_mb : int
        Java heap of each node, MiB.
    keep : bool
        Leave the folder in place at the end.
    """

    brokers: int = 1
    kafka: str = KAFKA_VERSION
    port: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    listeners: Mapping[str, str] = field(default_factory=dict)
    advertised: Mapping[str, Sequence[int]] = field(default_factory=dict)
    format_arguments: Sequence[str] = ()
    heap_mb: int = 512
    keep: bool = False


class _Server:
    """One server process with its guard."""

    def __init__(self, node_id: int, folder: Path, ports: Mapping[str, int], kafka: str):
        self.node_id = node_id
        self.kafka = kafka
        self.folder = folder
        self.ports = ports
        self.guard: subprocess.Popen[bytes] | None = None
        self.pid = -1

    @property
    def config(self) -> Path:
        return self.folder / "server.properties"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def logging(self) -> Path:
        return self.folder / "log4j.properties"

    def launch(self, command: Sequence[str]) -> None:
        """Start the server under a new guard."""
        self.log.write_bytes(b"")
        self.guard = subprocess.Popen(  # noqa: S603 - our own command, no shell
            [
                sys.executable,
                "-m",
                "holdfast.adapters.broker.broker_guard",
                str(self.folder),
                *command,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # a buffer would be flushed at close, into a pipe that may be broken
            start_new_session=True,  # Ctrl-C is for us, the guard hears from us
        )
        assert self.guard.stdout is not None
        answer = self.guard.stdout.readline().strip()
        if not answer:
            raise AdapterError(f"Kafka node {self.node_id} did not start: {self.last_words()}")
        self.pid = int(answer)

    def is_running(self) -> bool:
        """Whether the server runs."""
        if self.guard is None or self.guard.poll() is not None:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.pid, 0)
            return True
        return False

    def is_ready(self) -> bool:
        return _READY in self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self, *, orderly: bool) -> None:
        """End the server, and let the guard end with it; the folder stays."""
        is_running = self.is_running()
        guard, self.guard = self.guard, None
        if guard is None:
            return
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

    def last_words(self) -> str:
        """The line of the log that says most about a failed start."""
        with suppress(OSError):
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            telling = [line for line in lines if "Exception" in line or "rror" in line]
            if telling or lines:
                return (telling or lines)[-1].strip()
        return "no log"


class Broker:
    """A running cluster; a context manager that stops it.

    Use :meth:`start`. ``bootstrap`` is ``127.0.0.1:PORT`` of every node, joined by commas.
    """

    def __init__(self, settings: BrokerSettings, *, note: Note | None = None):
        _check(settings)
        self.settings = settings
        self._java = str(find_java().executable)
        self._note = note
        self._class_paths: dict[str, str] = {}
        self._class_path(settings.kafka)  # what cannot be had is told before a folder is made
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-broker-"))
        self._nodes: list[_Server] = []
        self.start_seconds = 0.0

    @classmethod
    def start(
        cls, brokers: int = 1, *, settings: BrokerSettings | None = None, note: Note | None = None
    ) -> Self:
        """Start a cluster and wait until it is ready.

        Parameters
        ----------
        brokers : int
            1 or 3.
        settings : BrokerSettings, optional
            Everything else; its own ``brokers`` counts then.
        note : callable, optional
            Takes one line of text before jars are downloaded.

        Raises
        ------
        ConfigError
            A setting that makes no cluster.
        AdapterError
            No usable Java, no jars, a port in use, or a node that did not come up.
        """
        broker = cls(settings or BrokerSettings(brokers=brokers), note=note)
        began = time.monotonic()
        try:
            broker._start_all()
        except BaseException:
            broker.stop()
            raise
        broker.start_seconds = time.monotonic() - began
        return broker

    @property
    def bootstrap(self) -> str:
        """``host:port`` of every node, without security."""
        return self.bootstrap_of("PLAINTEXT")

    def bootstrap_of(self, listener: str) -> str:
        """``host:port`` of every node on one listener."""
        return ",".join(f"127.0.0.1:{node.ports[listener]}" for node in self._nodes)

    def process_ids(self) -> tuple[int, ...]:
        """Process id of every node's server that runs."""
        return tuple(node.pid for node in self._nodes if node.is_running())

    def stop_node(self, node_id: int, *, orderly: bool = True) -> None:
        """Stop one node (1, 2, ...); not in order means SIGKILL."""
        self._node(node_id).stop(orderly=orderly)

    def start_node(self, node_id: int, *, kafka: str | None = None) -> None:
        """Start one node again on its data and ports, and wait until it is ready.

        Parameters
        ----------
        kafka : str, optional
            Another version from now on: how a cluster is upgraded, node by node.
        """
        node = self._node(node_id)
        node.kafka = kafka or node.kafka
        self._write_logging(node)
        node.launch(self._server_command(node))
        self._await_ready([node])

    def wait(self, until: Callable[[], bool] = bool) -> None:
        """Wait until ``until`` is true; a node that ends by itself is an AdapterError."""
        while all(node.is_running() for node in self._nodes):
            if until():
                return
            time.sleep(0.2)
        for node in self._nodes:
            if not node.is_running():
                raise AdapterError(f"Kafka node {node.node_id} ended: {node.last_words()}")

    def stop(self) -> None:
        """Stop everything and remove the folder; more calls do nothing."""
        keep = self.settings.keep
        for node in self._nodes:
            node.stop(orderly=keep)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _node(self, node_id: int) -> _Server:
        return self._nodes[node_id - 1]

    def _start_all(self) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            self._nodes = self._new_nodes()
            try:
                self._format_all()
                for node in self._nodes:
                    node.launch(self._server_command(node))
                self._await_ready(self._nodes)
            except AdapterError as error:
                for node in self._nodes:
                    node.stop(orderly=False)
                # Another process may take a free port between our look and Java's bind.
                taken = "in use" in str(error) or "BindException" in str(error)
                if self.settings.port is not None or attempt == _ATTEMPTS or not taken:
                    raise
                for node in self._nodes:
                    shutil.rmtree(node.folder, ignore_errors=True)
            else:
                return

    def _new_nodes(self) -> list[_Server]:
        """Folders, ports and server.properties of every node."""
        names = ["PLAINTEXT", "CONTROLLER", *self.settings.listeners]
        n = self.settings.brokers
        drawn = _free_ports(n * len(names), avoid=self.settings.port, n_fixed=n)
        nodes = []
        for i in range(n):
            ports = dict(zip(names, drawn[i * len(names) :], strict=False))
            if self.settings.port is not None:
                ports["PLAINTEXT"] = self.settings.port + i
                _check_free(ports["PLAINTEXT"])
            folder = self.folder / f"node-{i + 1}"
            nodes.append(_Server(i + 1, folder, ports, self.settings.kafka))
        voters = ",".join(f"{node.node_id}@127.0.0.1:{node.ports['CONTROLLER']}" for node in nodes)
        for node in nodes:
            node.folder.mkdir(parents=True)
            self._write_logging(node)
            lines = [f"{key}={value}" for key, value in self._properties(node, voters).items()]
            node.config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return nodes

    def _properties(self, node: _Server, voters: str) -> dict[str, str]:
        n = self.settings.brokers
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self.settings.listeners}
        addresses = {name: f"{name}://127.0.0.1:{port}" for name, port in node.ports.items()}
        seen = {name: ports[node.node_id - 1] for name, ports in self.settings.advertised.items()}
        advertised = [
            f"{name}://127.0.0.1:{seen.get(name, port)}"
            for name, port in node.ports.items()
            if name != "CONTROLLER"
        ]
        return {
            "process.roles": "broker,controller",
            "node.id": str(node.node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(addresses.values()),
            "advertised.listeners": ",".join(advertised),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in protocols.items()),
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
            **self.settings.properties,
        }

    def _format_all(self) -> None:
        """Prepare the data folders, all nodes at once: each costs a start of Java."""
        runs = []
        for node in self._nodes:
            command = [
                *self._java_command(node, heap_mb=128),
                *("-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool", "format"),
                *("-t", _CLUSTER_ID, "-c", str(node.config), *self.settings.format_arguments),
            ]
            runs.append(
                subprocess.Popen(  # noqa: S603 - our own command, no shell
                    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
            )
        outputs = [run.communicate()[0] for run in runs]
        for node, run, output in zip(self._nodes, runs, outputs, strict=True):
            if run.returncode != 0:
                said = [line for line in output.splitlines() if line.strip()]
                raise AdapterError(
                    f"Kafka node {node.node_id}: kafka-storage format failed: "
                    f"{said[0] if said else f'exit code {run.returncode}'}"
                )

    def _write_logging(self, node: _Server) -> None:
        is_log4j_2 = kafka_release(node.kafka) >= (4, 0)
        text = _LOG4J_2 if is_log4j_2 else _LOG4J_1
        node.logging.write_text(text, encoding="utf-8")

    def _java_command(self, node: _Server, *, heap_mb: int) -> list[str]:
        return [
            self._java,
            f"-Xmx{heap_mb}m",
            "-XX:+UseSerialGC",
            "-Xshare:auto",
            f"-Dlog4j2.configurationFile={node.logging}",
            f"-Dlog4j.configuration={node.logging.as_uri()}",  # log4j 1 wants a URL
            *("-cp", self._class_path(node.kafka)),
        ]

    def _class_path(self, kafka: str) -> str:
        """Jars of one version, hashed once."""
        if kafka not in self._class_paths:
            jars = broker_jars(kafka, note=self._note)
            self._class_paths[kafka] = os.pathsep.join(map(str, jars))
        return self._class_paths[kafka]

    def _server_command(self, node: _Server) -> list[str]:
        java = self._java_command(node, heap_mb=self.settings.heap_mb)
        return [*java, "kafka.Kafka", str(node.config)]

    def _await_ready(self, nodes: Sequence[_Server]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        waiting = list(nodes)
        while waiting:
            waiting = [node for node in waiting if not node.is_ready()]
            for node in waiting:
                if not node.is_running():
                    raise AdapterError(f"Kafka node {node.node_id} ended: {node.last_words()}")
            if time.monotonic() > deadline:
                raise AdapterError(
                    f"Kafka node {waiting[0].node_id} was not ready within {_START_SECONDS:.0f} s: "
                    f"{waiting[0].last_words()}"
                )
            time.sleep(0.05)


def _check(settings: BrokerSettings) -> None:
    if settings.brokers not in (1, 3):
        raise ConfigError(f"brokers: 1 or 3, not {settings.brokers}")
    port = settings.port
    if port is not None and not 1 <= port <= 65_536 - settings.brokers:
        raise ConfigError(f"port: 1 to {65_536 - settings.brokers}, not {port}")
    if settings.heap_mb < _LEAST_HEAP_MB:
        raise ConfigError(f"heap_mb: {_LEAST_HEAP_MB} or more, not {settings.heap_mb}")


def _check_free(port: int) -> None:
    if not _is_free(port):
        raise AdapterError(f"port {port} is already in use: choose another, or leave it out")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java binds
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_ports(n_ports: int, *, avoid: int | None, n_fixed: int) -> list[int]:
    taken = set() if avoid is None else set(range(avoid, avoid + n_fixed))
    found: list[int] = []
    for port in np.random.default_rng().permutation(np.arange(_FIRST_PORT, _LAST_PORT)).tolist():
        if len(found) == n_ports:
            return found
        if port not in taken and _is_free(port):
            found.append(port)
    raise AdapterError(f"no {n_ports} free ports from {_FIRST_PORT} to {_LAST_PORT} on 127.0.0.1")

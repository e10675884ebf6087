"""A real Apache Kafka on this machine: free loopback ports, data in a temporary folder.

**Rules.** Nothing outlives the caller, whether it exits, raises, gets Ctrl-C or SIGTERM, or is
killed. A cluster is ready when :meth:`Broker.start` returns: every node has logged that it started,
after the controller registered it.

**Strategy.** One :mod:`~holdfast.local.broker_server` per node holds the Java process and
watches a pipe from this process. Ports are chosen below the system's range of client ports, so a
node finds its port free again after a restart.

A version before Kafka 3.3 gets a ZooKeeper, one for all nodes, as nearly every cluster of such a
version has one (:mod:`~holdfast.local.broker_server`).

Not obvious: :meth:`Broker.stop` kills the nodes unless the folder is kept, because their data are
removed anyway; :meth:`Broker.stop_node` stops a node in order. The ZooKeeper ends last: a node that
stops in order unregisters there.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from holdfast.errors import BrokerError
from holdfast.local.broker_server import (
    BrokerSettings,
    Server,
    check_settings,
    has_kraft,
    logging_properties,
    server_properties,
    zookeeper_properties,
)
from holdfast.local.jars import Note, broker_jars
from holdfast.local.java import find_java

__all__ = ["Broker", "BrokerSettings"]

_CLUSTER_ID = "holdfastLocalClusterId"  # 22 characters of base64: a UUID, as Kafka writes one
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
_START_SECONDS = 300.0
_ATTEMPTS = 4


class Broker:
    """A running cluster; a context manager that stops it.

    Use :meth:`start`. ``bootstrap`` is ``127.0.0.1:PORT`` of every node, joined by commas.
    """

    def __init__(self, settings: BrokerSettings, *, note: Note | None = None):
        check_settings(settings)
        self.settings = settings
        self._java = find_java()
        self._note = note
        self._jars: dict[str, list[Path]] = {}
        self._jars_of(settings.kafka)  # missing jars are an error before a folder is made
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-broker-"))
        self._nodes: list[Server] = []
        self._zookeeper: Server | None = None
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
            All settings; their ``brokers`` overrides the argument.
        note : callable, optional
            Takes one line of text before jars are downloaded.

        Raises
        ------
        ConfigError
            For a setting that makes no cluster.
        BrokerError
            For a port in use, or a node that did not start.
        JavaError
            Without a usable Java or jars.
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
        """Return ``host:port`` of every node on one listener."""
        return ",".join(f"127.0.0.1:{node.ports[listener]}" for node in self._nodes)

    @property
    def logs(self) -> tuple[Path, ...]:
        """The log of every node, which says why groups rebalance."""
        return tuple(node.log for node in self._nodes)

    def process_ids(self) -> tuple[int, ...]:
        """Process id of every running node."""
        return tuple(node.pid for node in self._nodes if node.is_running())

    def stop_node(self, node_id: int, *, orderly: bool = True) -> None:
        """Stop one node (1, 2, ...); without ``orderly`` by SIGKILL."""
        self._node(node_id).stop(orderly=orderly)

    def start_node(self, node_id: int, *, kafka: str | None = None) -> None:
        """Start one node again on its data and ports, and wait until it is ready.

        ``kafka`` is another version for the node, to upgrade a cluster node by node.
        """
        node = self._node(node_id)
        node.kafka = kafka or node.kafka
        self._write_logging(node)
        node.launch(self._server_command(node))
        self._await_ready([node])

    def wait(self, until: Callable[[], bool] = bool) -> None:
        """Wait until ``until`` is true; raise BrokerError if a node ends by itself."""
        while all(node.is_running() for node in self._nodes):
            if until():
                return
            time.sleep(0.2)
        for node in self._nodes:
            if not node.is_running():
                raise BrokerError(f"Kafka node {node.node_id} ended: {node.last_words()}")

    def stop(self) -> None:
        """Stop everything and remove the folder; further calls do nothing."""
        keep = self.settings.keep
        for server in self._servers:
            server.stop(orderly=keep)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _servers(self) -> list[Server]:
        """Return every process, in the order in which they end."""
        return [*self._nodes, *([self._zookeeper] if self._zookeeper is not None else ())]

    def _node(self, node_id: int) -> Server:
        return self._nodes[node_id - 1]

    def _start_all(self) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            self._make_servers()
            try:
                if self._zookeeper is None:
                    self._format_all()
                else:
                    self._zookeeper.launch(self._zookeeper_command(self._zookeeper))
                    self._await_ready([self._zookeeper])
                for node in self._nodes:
                    node.launch(self._server_command(node))
                self._await_ready(self._nodes)
            except BrokerError as error:
                for server in self._servers:
                    server.stop(orderly=False)
                # Another process may take a free port between the check and Java's bind.
                taken = "in use" in str(error) or "BindException" in str(error)
                if self.settings.port is not None or attempt == _ATTEMPTS or not taken:
                    raise
                for server in self._servers:
                    shutil.rmtree(server.folder, ignore_errors=True)
            else:
                return

    def _make_servers(self) -> None:
        """Make folders, ports and files of every process."""
        names = ["PLAINTEXT", "CONTROLLER", *self.settings.listeners]
        n, kafka = self.settings.brokers, self.settings.kafka
        *drawn, spare = _free_ports(n * len(names) + 1, avoid=self.settings.port, n_fixed=n)
        self._nodes = []
        for i in range(n):
            ports = dict(zip(names, drawn[i * len(names) :], strict=False))
            if self.settings.port is not None:
                ports["PLAINTEXT"] = self.settings.port + i
                _check_free(ports["PLAINTEXT"])
            self._nodes.append(Server(i + 1, self.folder / f"node-{i + 1}", ports, kafka))
        if not has_kraft(kafka):
            folder = self.folder / "zookeeper"
            self._zookeeper = Server(0, folder, {"ZOOKEEPER": spare}, kafka)
            self._write(self._zookeeper, zookeeper_properties(self._zookeeper))
        for node in self._nodes:
            description = (node, self._nodes, self.settings, self._zookeeper)
            self._write(node, server_properties(*description))

    def _write(self, server: Server, found: Mapping[str, str]) -> None:
        server.folder.mkdir(parents=True)
        self._write_logging(server)
        lines = [f"{key}={value}" for key, value in found.items()]
        server.config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _format_all(self) -> None:
        """Format the data folders, all nodes at once: each costs a start of Java."""
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
                raise BrokerError(
                    f"Kafka node {node.node_id}: kafka-storage format failed: "
                    f"{said[0] if said else f'exit code {run.returncode}'}"
                )

    def _write_logging(self, server: Server) -> None:
        text = logging_properties(server.kafka)
        server.logging.write_text(text, encoding="utf-8")

    def _java_command(self, node: Server, *, heap_mb: int) -> list[str]:
        return [
            str(self._java.executable),
            f"-Xmx{heap_mb}m",
            "-XX:+UseSerialGC",
            "-Xshare:auto",
            f"-Dlog4j2.configurationFile={node.logging}",
            f"-Dlog4j.configuration={node.logging.as_uri()}",  # log4j 1 wants a URL
            *("-cp", os.pathsep.join(map(str, self._jars_of(node.kafka)))),
        ]

    def _jars_of(self, kafka: str) -> list[Path]:
        """Return the jars of one version, hashed once."""
        if kafka not in self._jars:
            self._jars[kafka] = broker_jars(kafka, note=self._note)
        return self._jars[kafka]

    def _server_command(self, node: Server) -> list[str]:
        java = self._java_command(node, heap_mb=self.settings.heap_mb)
        return [*java, "kafka.Kafka", str(node.config)]

    def _zookeeper_command(self, zookeeper: Server) -> list[str]:
        java = self._java_command(zookeeper, heap_mb=128)
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return [*java, "-Dzookeeper.admin.enableServer=false", main, str(zookeeper.config)]

    def _await_ready(self, nodes: Sequence[Server]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        waiting = list(nodes)
        while waiting:
            waiting = [node for node in waiting if not node.is_ready()]
            for node in waiting:
                if not node.is_running():
                    raise BrokerError(f"{node.name} ended: {node.last_words()}")
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"{waiting[0].name} was not ready within {_START_SECONDS:.0f} s: "
                    f"{waiting[0].last_words()}"
                )
            time.sleep(0.05)


def _check_free(port: int) -> None:
    if not _is_free(port):
        raise BrokerError(f"port {port} is already in use: choose another, or leave it out")


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
    raise BrokerError(f"no {n_ports} free ports from {_FIRST_PORT} to {_LAST_PORT} on 127.0.0.1")

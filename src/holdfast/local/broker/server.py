"""One Java process of a cluster, with the guard that ends it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.errors import BrokerError

_STOP_SECONDS = 40.0
_ENDED_BY_SIGTERM = 128 + signal.SIGTERM
_READY = re.compile(
    r"Kafka Server started|\[KafkaServer id=\d+\] started|binding to port .*NIOServerCnxnFactory"
)


class Server:
    """One server process with its guard: a node of Kafka, or the ZooKeeper of the nodes.

    Parameters
    ----------
    node_id : int
        The node's number from 1; 0 for the ZooKeeper.
    folder : Path
        Folder of its configuration, its log and its data.
    ports : mapping of str to int
        Listener -> port.
    kafka : str
        Version of Kafka whose jars it runs with.
    """

    def __init__(self, node_id: int, folder: Path, ports: Mapping[str, int], kafka: str):
        self.node_id = node_id
        self.kafka = kafka
        self.folder = folder
        self.ports = ports
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
                "holdfast.local.broker.broker_guard",
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
        """End the server and its guard; keep the folder.

        Returns
        -------
        bool
            Whether it ended in order: with Java's exit code for SIGTERM, and not killed.
        """
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
        return guard.returncode == _ENDED_BY_SIGTERM

    def last_words(self) -> str:
        """Return the line of the log that explains a failed start best."""
        with suppress(OSError):
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            telling = [line for line in lines if "Exception" in line or "rror" in line]
            if telling or lines:
                return (telling or lines)[-1].strip()
        return "no log"

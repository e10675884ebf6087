"""One Java process of a cluster, with the guard that ends it.

The guard is a process between the caller and the server, so that the server never outlives the
caller: ``python -m holdfast.local.broker_server FOLDER COMMAND...``. It prints the server's process
id.

**Rules.** The guard's standard input is a pipe that only its parent holds. A line ``stop`` ends the
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
from pathlib import Path

from holdfast.errors import BrokerError

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

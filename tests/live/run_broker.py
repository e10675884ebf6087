"""The one broker of a run, which all its workers use, and its exclusive resources.

The process that starts the workers starts the broker, so the broker ends with the run. The workers
read its address from a file in the folder of the run. A test has the listener behind the proxy, or
all access lists, to itself (:func:`holding`).
"""

from __future__ import annotations

import fcntl
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.live.security import JWKS, Security
from tests.live.waiting import until

from holdfast.local.broker import Broker
from holdfast.local.broker_server import BrokerSettings

_FILE = "broker.json"
_START_SECONDS = 360.0


@dataclass(frozen=True)
class RunBroker:
    """Each listener's port, the one that ``CUT`` tells its clients, and the broker's log."""

    ports: Mapping[str, int]
    cut_port: int
    folder: str  # with the data of its one node in ``node-1/data``
    log: str
    settings = BrokerSettings()

    @property
    def bootstrap(self) -> str:
        """``host:port`` without security."""
        return self.bootstrap_of("PLAINTEXT")

    def bootstrap_of(self, listener: str) -> str:
        """``host:port`` of a listener."""
        return f"127.0.0.1:{self.ports[listener]}"


class ShortLived(Broker):
    """Java compiles it once and not again, better: that would take half of the CPU time."""

    def _java_command(self, *server: Any, **sizes: Any) -> list[str]:
        allowed = self.settings.properties.get(JWKS, "")  # Kafka reads no other keys of tokens
        return [
            *super()._java_command(*server, **sizes),
            "-XX:TieredStopAtLevel=1",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}",
        ]


@contextmanager
def started(security: Security) -> Iterator[RunBroker]:
    """A broker of this process.

    Beside its plain listener it has ``TLS``, ``SCRAM`` and ``PLAIN`` (both over TLS), ``OAUTH``,
    ``OIDC``, ``MTLS``, and ``CUT``, which is plain and behind a proxy.
    """
    with socket.socket() as place:
        # Bound and not listening: nobody else is given the port, and the proxy listens on it.
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        place.bind(("127.0.0.1", 0))
        cut_port = place.getsockname()[1]
        names = ("PLAINTEXT", *security.broker_settings(cut_port).listeners)
        with ShortLived.start(settings=security.broker_settings(cut_port)) as broker:
            ports = {name: int(broker.bootstrap_of(name).split(":")[1]) for name in names}
            yield RunBroker(ports, cut_port, str(broker.folder), str(broker.logs[0]))


class StartedForAll:
    """The broker of a run with workers, started beside what the process does meanwhile."""

    def __init__(self, folder: Path):
        self._stack = ExitStack()
        self._security = Security.of(folder)
        self._file = folder / _FILE
        self._starting = threading.Thread(target=self._start)
        self._starting.start()

    def _start(self) -> None:
        from tests.live.kinds import fetch_tools

        fetching = threading.Thread(target=fetch_tools)
        fetching.start()  # on a new machine a minute, for which the first tests would wait
        self._start_broker()
        fetching.join()

    def _start_broker(self) -> None:
        try:
            running = self._stack.enter_context(started(self._security))
            found: dict[str, Any] = asdict(running)
        except BaseException as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(found))
        draft.rename(self._file)

    def stop(self) -> None:
        """End the broker; its workers have ended."""
        self._starting.join()
        self._stack.close()


def started_for_all(folder: Path) -> RunBroker:
    """The broker of the run, once it runs."""
    file = folder / _FILE
    until(file.exists, "the broker of the run", _START_SECONDS)
    found = json.loads(file.read_text())
    if "error" in found:
        raise RuntimeError(f"the broker of the run did not start: {found['error']}")
    return RunBroker(**found)


@contextmanager
def holding(folder: Path, name: str, *, alone: bool = True) -> Iterator[None]:
    """Have something of the broker to oneself, or share it with all others who share it."""
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield

"""A relay before an HTTP server that refuses, stalls or drops the requests that a test names."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from holdfast.errors import SourceError

_EMPTY = b"Content-Length: 0\r\nConnection: close\r\n\r\n"
REFUSALS = {
    "refuse": b"HTTP/1.1 403 Forbidden\r\n" + _EMPTY,
    "busy": b"HTTP/1.1 503 Slow Down\r\n" + _EMPTY,
}
LATE_S = 0.3


@dataclass
class Relay:
    """What happens to requests.

    Parameters
    ----------
    fault : str
        ``refuse`` (403), ``busy`` (503), ``drop`` (the connection ends in the middle of the
        request), ``stall`` (no answer), ``late`` (after a while), ``mute`` (it is done, and the
        answer is lost), or nothing.
    request : str
        Pattern of the request lines that it happens to.
    times : int
        How often it happens.
    weather : callable, optional
        Says what happens to the next request, in place of all these.
    hits : list of str
        Request lines that it happened to.
    """

    port: int
    target: int
    fault: str = ""
    request: str = ""
    times: int = 1_000_000
    weather: Callable[[], str] | None = None
    hits: list[str] = field(default_factory=list)

    @contextmanager
    def ends(self, fault: str, request: str, said: str, where: object = "") -> Iterator[None]:
        """What is done meanwhile fails for this fault, and one line says so and where."""
        self.fault, self.request = fault, request
        with pytest.raises(SourceError, match=said or None) as raised:
            yield
        assert self.hits and "\n" not in str(raised.value) and str(where) in str(raised.value)
        self.fault = ""

    def of(self, data: bytes) -> str:
        """What happens to a request that begins with these bytes."""
        line = data.split(b"\r\n", 1)[0].decode("latin-1")
        if not line.endswith("HTTP/1.1"):
            return ""
        fault = self.fault if self.weather is None else self.weather()
        is_hit = fault and len(self.hits) < self.times and re.search(self.request, line)
        if not is_hit:
            return ""
        self.hits.append(line)
        return fault

    def serve(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self.target))
        deaf = threading.Event()
        back = threading.Thread(target=carry, args=(server, client, deaf), daemon=True)
        back.start()
        with contextlib.suppress(OSError), client, server:
            while data := client.recv(65_536):
                fault = self.of(data)
                if fault in REFUSALS:
                    client.sendall(REFUSALS[fault])
                if fault == "late":
                    time.sleep(LATE_S)
                if fault == "drop":
                    # Of half the headers Moto would make a file without a body, as no store does.
                    server.sendall(data[: data.index(b" HTTP/1.1")])
                if fault == "stall":
                    while client.recv(65_536):
                        pass
                if fault == "mute":
                    deaf.set()
                elif fault and fault != "late":
                    break
                server.sendall(data)
            for end in (client, server):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        back.join()


def carry(source: socket.socket, target: socket.socket, deaf: threading.Event) -> None:
    """Answers, until either side ends, or one is to be lost."""
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            if deaf.is_set():
                target.shutdown(socket.SHUT_RDWR)
                return
            target.sendall(data)


@contextmanager
def relay(target: int) -> Iterator[Relay]:
    """A relay to a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        made = Relay(port=listening.getsockname()[1], target=target)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    threading.Thread(target=made.serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield made
        listening.shutdown(socket.SHUT_RDWR)

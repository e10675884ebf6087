"""A relay before an HTTP server that refuses, stalls or drops the requests that a test names."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator

from tests.live.cut import Cut

_EMPTY = b"Content-Length: 0\r\nConnection: close\r\n\r\n"
REFUSALS = {
    "refuse": b"HTTP/1.1 403 Forbidden\r\n" + _EMPTY,
    "busy": b"HTTP/1.1 503 Slow Down\r\n" + _EMPTY,
}
LATE_S = 0.3


class Relay(Cut):
    """What happens to requests to a port of this machine.

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

    fault = request = ""
    times = 1_000_000
    weather: Callable[[], str] | None = None

    def __init__(self, target: int):
        super().__init__()
        self.target = ("127.0.0.1", target)
        self.hits: list[str] = []
        self._deaf: set[socket.socket] = set()

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

    def _carried(
        self, source: socket.socket, sink: socket.socket, answers: bool
    ) -> Iterator[bytes]:
        while data := source.recv(65_536):
            fault = "" if answers else self.of(data)
            if fault in REFUSALS:
                source.sendall(REFUSALS[fault])
            if fault == "late":
                time.sleep(LATE_S)
            if fault == "drop":
                # Of half the headers Moto would make a file without a body, as no store does.
                sink.sendall(data[: data.index(b" HTTP/1.1")])
            if fault == "stall":
                while source.recv(65_536):
                    pass
            if fault == "mute":
                self._deaf.add(source)
            elif (fault and fault != "late") or (answers and sink in self._deaf):
                return
            yield data

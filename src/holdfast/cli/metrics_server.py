"""The server of ``/metrics``: few clients at a time, none for long, none that stops the others.

**Rules.** A client that has not sent its request within :data:`REQUEST_S`, or does not take its
answer within :data:`ANSWER_S`, is dropped. At most :data:`MAX_CLIENTS` are connected; the next one
takes the place of the oldest that still sends its request, and gets a 503 if there is none. On a
loopback address the ``Host`` header must name this computer, so no page of a browser can read the
metrics through a name of its own (DNS rebinding). Where the system has no file descriptor left, the
server rests, drops a client that still sends, and goes on as soon as there is one.

**Strategy.** The standard library's threading server parses requests and runs a thread a client.
Deadlines are looked at between two accepts and every half second; a client is dropped by shutting
its socket down, which ends the thread that waits for it.

References: RFC 9110, 7.2 "Host"; Prometheus text exposition format 0.0.4.
"""

from __future__ import annotations

import errno
import resource
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from holdfast.cli.output import print_error
from holdfast.errors import HoldfastError
from holdfast.report.serving.hosts import (
    cannot_listen,
    is_loopback,
    names_this_computer,
    shown_address,
    socket_address,
    take_both_kinds,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_CLIENTS = 32
"""At most so many, and at most a quarter of the file descriptors that the process may have."""
REQUEST_S = 10.0
"""For a whole request, from the connection to the empty line."""
ANSWER_S = 30.0
"""For a client to take its answer."""
CLOSE_S = 5.0
"""For a dropped client's thread to end, and for the last answers when the server stops."""
MAX_REQUEST_BYTES = 65_536
REST_S = 0.2
BACKLOG = 128

_NONE_FREE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_FULL = (
    b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: text/plain\r\n"
    b"Connection: close\r\n\r\ntoo many clients\n"
)


@dataclass(slots=True)
class _Connection:
    """A connected client; ``ends_at`` is None while its answer is made."""

    ends_at: float | None
    asking: bool = True


class MetricsServer(ThreadingHTTPServer):
    """Serves one text at ``/metrics``; not yet running.

    Parameters
    ----------
    text : callable
        Makes the text; called for each request, in that request's thread.
    host, port : str, int
        Where to listen; port 0 takes any free one. ``::`` serves IPv4 too.

    Raises
    ------
    AdapterError
        If the address cannot be had.
    """

    request_queue_size = BACKLOG
    daemon_threads = True

    def __init__(self, text: Callable[[], str], host: str, port: int):
        self.text = text
        self.is_local = False
        self._clients: dict[Any, _Connection] = {}
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._is_short = False
        self._most = most_clients()
        try:
            self.address_family, address = socket_address(host, port)
            super().__init__(address, _Handler)
        except OSError as error:
            raise cannot_listen(host, port, error) from error
        self.is_local = is_loopback(str(self.server_address[0]))

    def server_bind(self) -> None:
        """Bind, without the base's question to the name server; ``::`` takes IPv4 as well."""
        take_both_kinds(self.socket)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    @property
    def address(self) -> str:
        """HOST:PORT as a URL has it."""
        return shown_address(str(self.server_address[0]), int(self.server_address[1]))

    def get_request(self) -> Any:
        """Accept a client; rest where the system has no file descriptor for it."""
        try:
            accepted = super().get_request()
        except OSError as error:
            if error.errno in _NONE_FREE:
                self._wait_for_a_descriptor(error)
            raise
        self._is_short = False
        return accepted

    def _wait_for_a_descriptor(self, error: OSError) -> None:
        """Take one from a client that still sends its request, or rest where there is none."""
        with self._changed:
            n_before = len(self._clients)
            if self._drop_oldest():
                self._changed.wait_for(lambda: len(self._clients) < n_before, timeout=CLOSE_S)
                return
        if not self._is_short:
            print_error(f"a client waits: {error.strerror}")
        self._is_short = True
        self._stopping.wait(REST_S)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a client in a thread of its own, or with a 503 where there are too many."""
        if self._enter(request):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.setblocking(False)
            request.send(_FULL)
        self.shutdown_request(request)

    def _enter(self, request: Any) -> bool:
        """Take a place; the oldest client that still sends its request loses its own."""
        with self._changed:
            if len(self._clients) >= self._most and self._drop_oldest():
                self._changed.wait_for(lambda: len(self._clients) < self._most, timeout=CLOSE_S)
            if len(self._clients) >= self._most:
                return False
            self._clients[request] = _Connection(ends_at=time.monotonic() + REQUEST_S)
            return True

    def _drop_oldest(self) -> bool:
        asking = (request for request, client in self._clients.items() if client.asking)
        oldest = next(asking, None)
        if oldest is not None:
            self._drop(oldest)
        return oldest is not None

    def _drop(self, request: Any) -> None:
        """End a client; its thread reads the end, closes the socket and gives the place free."""
        client = self._clients[request]
        client.ends_at, client.asking = None, False
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def begin_answer(self, request: Any) -> bool:
        """Note that a request is complete; False if its client was dropped before."""
        with self._changed:
            client = self._clients[request]
            held = client.asking
            client.ends_at, client.asking = None, False
            return held

    def begin_sending(self, request: Any) -> None:
        """Note that the answer is ready."""
        with self._changed:
            self._clients[request].ends_at = time.monotonic() + ANSWER_S

    def service_actions(self) -> None:
        """Drop clients whose time is over."""
        now = time.monotonic()
        with self._changed:
            for request, client in list(self._clients.items()):
                if client.ends_at is not None and client.ends_at <= now:
                    self._drop(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection and give its place free."""
        with self._changed:  # nobody else touches the socket between its end and our note of it
            super().shutdown_request(request)
            self._clients.pop(request, None)
            self._changed.notify_all()

    def server_close(self) -> None:
        """Stop listening, drop who still asks, and let the others have their answers."""
        self._stopping.set()
        super().server_close()
        with self._changed:
            for request, client in list(self._clients.items()):
                if client.asking:
                    self._drop(request)
            self._changed.wait_for(lambda: not self._clients, timeout=CLOSE_S)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print one line about a failed request; none if the client closed the connection."""
        error = sys.exception()
        if not isinstance(error, (ConnectionError, TimeoutError)):
            print_error(f"request of {client_address[0]}: {type(error).__name__}: {error}")


class _ShortRequest:
    """A reader of lines that takes no more than a request may have."""

    def __init__(self, stream: Any):
        self._stream = stream
        self._left = MAX_REQUEST_BYTES

    def readline(self, limit: int = -1) -> bytes:
        """Read one line.

        Raises
        ------
        ConnectionAbortedError
            If the request is too long; its client is dropped without an answer.
        """
        most = self._left + 1 if limit < 0 else min(limit, self._left + 1)
        line: bytes = self._stream.readline(most)
        self._left -= len(line)
        if self._left < 0:
            raise ConnectionAbortedError("the request is too long")
        return line

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version = "holdfast"
    sys_version = ""

    def setup(self) -> None:
        """Read through the bound."""
        super().setup()
        self.rfile = _ShortRequest(self.rfile)  # type: ignore[assignment]  # lines are all it reads

    def do_GET(self) -> None:
        """Answer with the text, or say why not."""
        if not self.server.begin_answer(self.request):
            return
        if self.server.is_local and not names_this_computer(self.headers.get("Host")):
            self._send(403, "the Host header does not name this computer\n")
        elif self.path.split("?")[0] != "/metrics":
            self._send(404, "see /metrics\n")
        else:
            try:
                text = self.server.text()
            except (HoldfastError, OSError) as error:
                print_error(str(error))
                self._send(503, "the tables cannot be read at the moment\n")
            else:
                self._send(200, text)

    def _send(self, status: int, body: str) -> None:
        data = body.encode("utf-8")
        self.server.begin_sending(self.request)
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        del format, args


def most_clients() -> int:
    """How many clients at a time; the tables need descriptors too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CLIENTS if soft == resource.RLIM_INFINITY else max(1, min(MAX_CLIENTS, soft // 4))

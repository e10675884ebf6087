"""The HTTP server of pages and metrics: few clients at a time, of which none stops the others.

**Rules.** A client that has not sent its request within :data:`REQUEST_S`, or does not take its
answer within :data:`ANSWER_S`, is dropped. At most :data:`MAX_CLIENTS` are connected. The next one
replaces the oldest that still sends its request, else the oldest that has not taken its answer for
:data:`SLOW_S`, and gets a 503 if there is none. A request has no body. If the system has no file
descriptor left, the server backs off, drops a client that still sends, and continues when a
descriptor is free.

**Strategy.** The standard library's threading server parses requests and runs a thread a client,
which calls a WSGI application. Deadlines are checked between two accepts and every half second; a
client is dropped by shutting its socket down, which ends the thread that waits for it.

References: RFC 9112; PEP 3333.
"""

from __future__ import annotations

import errno
import io
import resource
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import IO, TYPE_CHECKING, Any, cast
from wsgiref.handlers import SimpleHandler
from wsgiref.simple_server import WSGIRequestHandler

from holdfast.errors import ProcessError
from holdfast.fleet.report.serving.hosts import is_loopback, shown_address

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

MAX_CLIENTS = 32
"""At most so many, and at most a quarter of the file descriptors that the process may have."""
REQUEST_S = 10.0
"""For a whole request, from the connection to the empty line."""
ANSWER_S = 30.0
"""For a client to take its answer."""
SLOW_S = 2.0
"""Time for taking an answer after which another client may replace this one."""
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
class _PageClient:
    """A connected client: it sends its request, waits for its answer, or takes it.

    Parameters
    ----------
    ends_at : float or None
        Time at which it is dropped; None while it waits.
    slow_at : float or None
        Time from which another client may replace it; None before it takes its answer.
    """

    ends_at: float | None
    asking: bool = True
    slow_at: float | None = None


class PageServer(ThreadingHTTPServer):
    """Serves an application; not yet running.

    Parameters
    ----------
    host, port : str, int
        Where to listen; port 0 takes any free one. ``::`` serves IPv4 too.

    Raises
    ------
    ProcessError
        If the address cannot be had.
    """

    request_queue_size = BACKLOG
    daemon_threads = True

    def __init__(self, host: str, port: int, notify: Callable[[str], None]):
        self.application: WSGIApplication = _nothing_yet
        self.notify = notify
        self.base_environ: dict[str, str] = {}
        self._clients: dict[Any, _PageClient] = {}
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._is_short = False
        self._most = most_clients()
        try:
            kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
            found = socket.getaddrinfo(host, port, type=kind, flags=flags)
            # Of a name with both kinds of addresses, the IPv4 one.
            self.address_family, *_, address = min(found, key=lambda row: row[0] != socket.AF_INET)
            super().__init__(address, _PageHandler)  # type: ignore[arg-type] # of either kind
        except OSError as error:
            reason = error.strerror or error
            raise ProcessError(f"cannot listen on {shown_address(host, port)}: {reason}") from error
        self.is_local = is_loopback(str(self.server_address[0]))

    def server_bind(self) -> None:
        """Bind, without the base's query to the name server; ``::`` takes IPv4 as well."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.base_environ = {
            "SERVER_NAME": self.server_name,
            "SERVER_PORT": str(self.server_port),
            "GATEWAY_INTERFACE": "CGI/1.1",
            "SCRIPT_NAME": "",
        }

    @property
    def address(self) -> str:
        """HOST:PORT as in a URL."""
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
        """Free a descriptor by dropping the slowest client, else back off."""
        with self._changed:
            n_before = len(self._clients)
            if self._drop_slowest():
                self._changed.wait_for(lambda: len(self._clients) < n_before, timeout=CLOSE_S)
                return
        if not self._is_short:
            self.notify(f"a client waits: {error.strerror}")
        self._is_short = True
        self._stopping.wait(REST_S)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a client in a thread of its own, or with a 503 if there are too many."""
        if self._enter(request):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.setblocking(False)
            request.send(_FULL)
        self.shutdown_request(request)

    def _enter(self, request: Any) -> bool:
        """Register a client; if the limit is reached, drop a slow one."""
        with self._changed:
            if len(self._clients) >= self._most and self._drop_slowest():
                self._changed.wait_for(lambda: len(self._clients) < self._most, timeout=CLOSE_S)
            if len(self._clients) >= self._most:
                return False
            self._clients[request] = _PageClient(ends_at=time.monotonic() + REQUEST_S)
            return True

    def _drop_slowest(self) -> bool:
        """Drop the oldest client that still sends, else the oldest that is slow to take."""
        now = time.monotonic()
        asking = [request for request, client in self._clients.items() if client.asking]
        slow = [
            request
            for request, client in self._clients.items()
            if client.slow_at is not None and client.slow_at <= now
        ]
        found = next(iter(asking + slow), None)
        if found is not None:
            self._drop(found)
        return found is not None

    def _drop(self, request: Any) -> None:
        """End a client; its thread reads the end, closes the socket and frees the slot."""
        client = self._clients[request]
        client.ends_at, client.asking, client.slow_at = None, False, None
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
            now, client = time.monotonic(), self._clients[request]
            client.ends_at, client.slow_at = now + ANSWER_S, now + SLOW_S

    def service_actions(self) -> None:
        """Drop clients whose time has passed."""
        now = time.monotonic()
        with self._changed:
            for request, client in list(self._clients.items()):
                if client.ends_at is not None and client.ends_at <= now:
                    self._drop(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection and free its slot."""
        with self._changed:  # no other thread touches the socket between its end and its removal
            super().shutdown_request(request)
            self._clients.pop(request, None)
            self._changed.notify_all()

    def server_close(self) -> None:
        """Stop listening, drop clients that still send, and let the others take their answers."""
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
            self.notify(f"request of {client_address[0]}: {type(error).__name__}: {error}")


def _nothing_yet(environ: Any, start_response: Any) -> list[bytes]:
    start_response("503 Service Unavailable", [("Retry-After", "1")])
    return []


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


class _PageHandler(WSGIRequestHandler):
    server: PageServer
    server_version = "holdfast"
    sys_version = ""
    default_request_version = "HTTP/1.0"  # that of a request that names none
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(message)s\n"

    def setup(self) -> None:
        """Read through the bound."""
        super().setup()
        self.rfile = _ShortRequest(self.rfile)  # type: ignore[assignment]  # lines are all it reads

    def handle(self) -> None:
        """Read a request and let the application answer it."""
        self.raw_requestline = self.rfile.readline(MAX_REQUEST_BYTES)
        if not self.raw_requestline or not self.parse_request():
            return
        if self.server.begin_answer(self.request):
            _PageAnswer(self).run(self.server.application)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        del format, args


class _PageAnswer(SimpleHandler):
    """One call of the application, which sees a request without a body, and no environment."""

    os_environ: dict[str, str] = {}  # noqa: RUF012 (the base's name; never written)

    def __init__(self, handler: _PageHandler):
        environ = handler.get_environ()
        wfile = cast("IO[bytes]", handler.wfile)
        super().__init__(io.BytesIO(), wfile, sys.stderr, environ, multithread=True)
        self._handler = handler

    def finish_response(self) -> None:
        """Send what the application has made."""
        self._handler.server.begin_sending(self._handler.request)
        super().finish_response()

    def log_exception(self, exc_info: Any) -> None:
        """Print one line; the client gets a 500."""
        server = self._handler.server
        server.handle_error(self._handler.request, self._handler.client_address)


def most_clients() -> int:
    """Return the limit of clients at a time; the tables need descriptors too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CLIENTS if soft == resource.RLIM_INFINITY else max(1, min(MAX_CLIENTS, soft // 4))

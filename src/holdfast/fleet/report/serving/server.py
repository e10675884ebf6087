"""The HTTP server of pages and metrics: waitress, with few clients at a time.

**Rules.** A client that neither sends nor takes a byte for :data:`SILENT_S` is dropped, unless its
answer is being computed. At most :data:`MAX_CLIENTS` are connected. If there are as many, the
oldest connection without a complete request is dropped, else the oldest one that has not taken
its answer for :data:`SLOW_S`; so clients that send or take a byte now and then do not lock others
out. A request has no body. A server on a loopback address answers only if the ``Host`` header names
this computer: so no page of a browser can read the answer through a name of its own (DNS
rebinding).

**Strategy.** waitress reads requests and sends answers on one thread, and calls the application on
others. It bounds the silence of a client, but not a request that comes byte by byte
(:meth:`PageServer.readable`), and it does not close a client that takes nothing
(:meth:`PageServer.maintenance`); so both are here.

References: RFC 9110, 7.2 "Host"; RFC 3986, 3.2.2 "Host"; PEP 3333; waitress, "Arguments to
waitress.serve".
"""

from __future__ import annotations

import ipaddress
import logging
import re
import resource
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer

from holdfast.errors import ProcessError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

MAX_CLIENTS: Final = 32
"""At most so many, and at most a quarter of the file descriptors that the process may have."""
SILENT_S = 10
"""Time without a byte after which a client is dropped."""
SLOW_S = 2.0
"""Age of a connection after which another client may replace it while it takes its answer."""
YOUNG_S = 0.05
"""Age of a connection from which another client may replace it while it sends its request."""
CLOSE_S: Final = 5.0
"""For the last answers when the server stops."""
REST_S: Final = 0.2
"""Pause where the system has no file descriptor for a client."""
MAX_REQUEST_BYTES: Final = 65_536

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{0,5})?")
_LOCAL_NAMES: Final = frozenset({"localhost", "localhost."})


def listen_on(host: str, port: int) -> socket.socket:
    """Listen on an address; port 0 takes any free one, and ``::`` serves IPv4 too.

    Raises
    ------
    ProcessError
        If the address cannot be had.
    """
    try:
        kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
        found = socket.getaddrinfo(host, port, type=kind, flags=flags)
        # Of a name with both kinds of addresses, the IPv4 one.
        family, *_, address = min(found, key=lambda row: row[0] != socket.AF_INET)
        dual = family == socket.AF_INET6 and address[0] == "::"
        return socket.create_server(address, family=family, dualstack_ipv6=dual)
    except OSError as error:
        raise ProcessError(
            f"cannot listen on {shown_address(host, port)}: {error.strerror or error}"
        ) from error


class PageServer(TcpWSGIServer):  # type: ignore[misc]  # waitress has no types
    """Serves an application on a socket that listens.

    Parameters
    ----------
    notify : callable
        Prints one line about a request that failed.
    """

    def __init__(
        self, listener: socket.socket, application: WSGIApplication, notify: Callable[[str], None]
    ):
        logging.getLogger("waitress").setLevel(logging.CRITICAL)  # a failure is notified here
        self._most, self._stopping = most_clients(), False
        self.address = shown_address(*listener.getsockname()[:2])
        settings = Adjustments(
            sockets=[listener],
            threads=8,
            ident=None,
            asyncore_use_poll=True,  # select() knows no descriptor above 1023
            clear_untrusted_proxy_headers=False,  # the application reads none of them
            connection_limit=2 * self._most + 2,  # with those that are dropped, and two of its own
            channel_timeout=SILENT_S,
            cleanup_interval=1,
            max_request_header_size=MAX_REQUEST_BYTES,
            max_request_body_size=1,
            outbuf_high_watermark=2**40,  # no thread waits for a client; files hold long answers
        )
        super().__init__(
            _notifying(application, notify),
            _sock=listener,
            adj=settings,
            bind_socket=False,
            sockinfo=(listener.family, listener.type, listener.proto, listener.getsockname()),
        )

    def run(self) -> None:
        """Answer requests until :meth:`stop`, or until an exception such as KeyboardInterrupt."""
        while not self._stopping:
            self._step()

    def stop(self) -> None:
        """Let :meth:`run` return; may be called from any thread."""
        self._stopping = True
        self.pull_trigger()

    def close(self) -> None:
        """Stop listening, and let clients take the answers that are being computed."""
        wasyncore.dispatcher.close(self)
        deadline = time.monotonic() + CLOSE_S
        self.task_dispatcher.shutdown(timeout=CLOSE_S)
        while time.monotonic() < deadline and any(map(_takes, self.active_channels.values())):
            self._step()
        wasyncore.close_all(self._map)

    def _step(self) -> None:
        wait_s = YOUNG_S if self._is_full() else self.adj.asyncore_loop_timeout
        wasyncore.loop(wait_s, use_poll=True, map=self._map, count=1)

    def readable(self) -> bool:
        """Return whether a client may connect; one too many may if a slow one can make room."""
        return bool(super().readable()) and (not self._is_full() or self._slowest() is not None)

    def accept(self) -> Any:
        """Accept a client, instead of a slow one if there are too many.

        If the system has no file descriptor, drop a slow one, and rest.
        """
        slowest = self._slowest()
        if slowest is not None and self._is_full():
            _drop(slowest)
        try:
            return super().accept()
        except OSError:
            if slowest is not None:
                _drop(slowest)
            time.sleep(REST_S)
            raise

    def maintenance(self, now: float) -> None:
        """Drop clients that were silent for too long, given UTC seconds."""
        for channel in self.active_channels.values():
            if not channel.requests and channel.last_activity < now - self.adj.channel_timeout:
                _drop(channel)

    def _is_full(self) -> bool:
        """Return whether there are as many clients as may be, without those that are dropped."""
        return sum(not one.will_close for one in self.active_channels.values()) >= self._most

    def _slowest(self) -> Any:
        """Return the oldest client that still sends, else the oldest that is slow to take; or None.

        One that has just connected may have sent a request that is not read yet.
        """
        now = time.time()
        waiting = [c for c in self.active_channels.values() if not (c.requests or c.will_close)]
        found = [c for c in waiting if c.creation_time <= now - (SLOW_S if _takes(c) else YOUNG_S)]
        return min(found, key=lambda one: (_takes(one), one.creation_time), default=None)


def _takes(channel: Any) -> bool:
    """Return whether a client has not taken all of its answer."""
    return bool(channel.total_outbufs_len)


def _drop(channel: Any) -> None:
    """Let the next poll close a client, also one whose buffers are full."""
    channel.will_close = True
    with suppress(OSError):
        channel.socket.shutdown(socket.SHUT_RDWR)


def _notifying(application: WSGIApplication, notify: Callable[[str], None]) -> WSGIApplication:
    """Return an application of which a failure is one line; the client gets a 500."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            return application(environ, start_response)
        except Exception as error:
            notify(f"request of {environ['REMOTE_ADDR']}: {type(error).__name__}: {error}")
            raise

    return answer


def most_clients() -> int:
    """Return the limit of clients at a time; the tables need descriptors too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CLIENTS if soft == resource.RLIM_INFINITY else max(1, min(MAX_CLIENTS, soft // 4))


def shown_address(host: str, port: int) -> str:
    """Format HOST:PORT as in a URL."""
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether an address is one of this computer alone; False for a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_host(header: str | None) -> bool:
    """Return whether a Host header is one host and perhaps a port; HTTP/1.0 may send none."""
    return header is None or _HOST.fullmatch(header.strip()) is not None


def names_this_computer(header: str | None) -> bool:
    """Return whether a Host header is one that a local client sends; HTTP/1.0 may send none."""
    if header is None or not is_host(header):
        return header is None
    host = header.strip().lower()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    return host in _LOCAL_NAMES or is_loopback(host)

"""Repairs of kafka-python's connections: their set-up, their sockets, and a lost last answer.

**Rules.** Only five things change.

- A socket whose connect or TLS handshake failed, or was abandoned, is closed at once, not at a
  later garbage collection.
- A TLS handshake ends at the deadline of the connection's set-up.
- A set-up that is answered too late has failed: the next one waits for the reconnect back-off and
  has more time, up to 30 s. Otherwise a client or a broker on a busy machine would fail for ever,
  each time after the same 10 s.
- A closed client has closed its sockets, also those with a request still to be written.
- Bytes that a broker sends before it ends a connection are read. A refused login is such an answer:
  the broker sends it and closes, so a busy client finds both at once, and kafka-python drops the
  bytes.

**Strategy.** ``kafka.net`` 3.0 makes a socket and awaits its connect, and forgets the socket if
that raises. The same holds for a handshake, whose waits have no limit. Both are wrapped, once. If a
client is closed during a connect, Python closes the suspended coroutine, and the wrapper sees
GeneratorExit. A transport closes itself after its last write, which never comes if the loop ends
first; so the end of the loop closes the sockets that its transports still hold. A read that finds
bytes and the end returns the bytes: a socket at its end stays readable, so the next read, after the
tasks that the bytes woke, finds the end again. ``initialize`` closes a connection that is not
answered in time and returns without an error, so its caller forgets all failures; it is wrapped,
and raises. A refused login is not changed: it does not depend on time.

References: KIP-601 (time-outs of a connection's set-up that grow).
"""

from __future__ import annotations

import functools
import socket
import ssl
import weakref
from typing import Any

import kafka.errors
from kafka.net.connection import KafkaConnection
from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

_connect = KafkaNetSocket.sock_connect
_initialize = KafkaConnection.initialize
_make_transport = KafkaTCPTransport.__init__
_close_loop = NetworkSelector.close
_receive_plain = KafkaTCPTransport._sock_recv
_receive_tls = KafkaSSLTransport._sock_recv
_transports: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()
_set_up_until: dict[int, float | None] = {}
"""Deadline of a connected socket's set-up, by the socket's number, until it has a transport."""


async def _connect_or_close(
    self: Any, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None
) -> Any:
    try:
        connected = await _connect(self, net, sock, sockaddr, timeout_at=timeout_at)
    except BaseException:
        sock.close()
        raise
    _set_up_until[sock.fileno()] = timeout_at
    return connected


async def _handshake_or_close(self: Any) -> None:
    try:
        await _handshake(self, self.set_up_until)
    except BaseException:
        self._close()
        raise


async def _initialize_or_raise(self: Any, timeout_at: float | None = None) -> None:
    await _initialize(self, timeout_at)
    error = self.init_future.exception
    if isinstance(error, (kafka.errors.RequestTimedOutError, kafka.errors.KafkaTimeoutError)):
        raise error


async def _handshake(self: Any, timeout_at: float | None) -> None:
    while True:
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            await self._net.wait_read(self._sock, timeout_at=timeout_at)
        except ssl.SSLWantWriteError:
            await self._net.wait_write(self._sock, timeout_at=timeout_at)
        else:
            return


def _bytes_before_end(receive: Any) -> Any:
    @functools.wraps(receive)
    def received(self: Any) -> tuple[bytes, Exception | None]:
        data, error = receive(self)
        return (data, None) if data else (data, error)

    return received


def _note_transport(self: Any, net: Any, sock: socket.socket, host: str | None = None) -> None:
    _make_transport(self, net, sock, host=host)
    self.set_up_until = _set_up_until.pop(sock.fileno(), None)
    _transports.setdefault(net, weakref.WeakSet()).add(self)


def _close_loop_and_sockets(self: Any) -> None:
    _close_loop(self)
    for transport in _transports.pop(self, ()):
        if transport._sock is not None:
            transport._sock.close()


def mend_connects() -> None:
    """Wrap kafka-python's connect, handshake, set-up, read and close; safe to call again."""
    KafkaConnection.initialize = _initialize_or_raise
    KafkaTCPTransport.__init__ = _note_transport
    NetworkSelector.close = _close_loop_and_sockets
    KafkaNetSocket.sock_connect = _connect_or_close
    KafkaSSLTransport.handshake = _handshake_or_close
    KafkaTCPTransport._sock_recv = _bytes_before_end(_receive_plain)
    KafkaSSLTransport._sock_recv = _bytes_before_end(_receive_tls)

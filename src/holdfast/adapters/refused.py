"""Ends the connects of kafka-python that it leaves behind: refused, given up, or never answered.

**Rules.** Two things change, and no more: a socket whose connect or TLS handshake failed, or was
given up, is closed at once and not at some later garbage collection; and a TLS handshake that the
other side does not answer fails after :data:`HANDSHAKE_SECONDS`, and not never.

**Strategy.** ``kafka.net`` 3.0 makes a socket and awaits its connect, and forgets it when that
raises; likewise for a handshake, whose waits have no limit. Both are wrapped, once. A ``close`` of
a suspended coroutine (a client closed in the middle of its connect) comes through here as
GeneratorExit.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any

from kafka.net.inet import KafkaNetSocket
from kafka.net.transport import KafkaSSLTransport

HANDSHAKE_SECONDS = 10.0  # as Kafka's socket.connection.setup.timeout.ms
_connect = KafkaNetSocket.sock_connect


async def _connect_or_close(
    self: Any, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None
) -> Any:
    try:
        return await _connect(self, net, sock, sockaddr, timeout_at=timeout_at)
    except BaseException:
        sock.close()
        raise


async def _handshake_or_close(self: Any) -> None:
    try:
        await _handshake(self, time.monotonic() + HANDSHAKE_SECONDS)
    except BaseException:
        self._close()
        raise


async def _handshake(self: Any, timeout_at: float) -> None:
    while True:
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            await self._net.wait_read(self._sock, timeout_at=timeout_at)
        except ssl.SSLWantWriteError:
            await self._net.wait_write(self._sock, timeout_at=timeout_at)
        else:
            return


def mend_connects() -> None:
    """Wrap kafka-python's connect and handshake; safe to call again."""
    KafkaNetSocket.sock_connect = _connect_or_close
    KafkaSSLTransport.handshake = _handshake_or_close

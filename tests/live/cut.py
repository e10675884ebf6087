"""A TCP proxy that can be cut, silently or by resets; that delays or changes answers."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator


class Cut:
    """Carries bytes between clients and one address, until it is told not to.

    ``port`` is known from the start; set ``target`` before the first client comes. While
    :meth:`hold` lasts nothing passes, and what was on its way arrives late, after :meth:`mend`.
    Every answer of the server takes :attr:`late_s` longer, and arrives as :attr:`spoils` makes it.
    """

    def __init__(self, port: int = 0) -> None:
        self.target = ("127.0.0.1", 0)
        self._server = socket.create_server(("127.0.0.1", port), reuse_port=True)
        self.port: int = self._server.getsockname()[1]
        self._flows = threading.Event()
        self._flows.set()
        self._refuses = False
        self.n_refused = 0
        self.late_s = 0.0
        self.spoils: Callable[[bytes], bytes] = bytes
        self._ended = False
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def hold(self) -> None:
        """Let nothing through; nobody is told."""
        self._flows.clear()

    def reset(self) -> None:
        """Break every connection, and take no new one."""
        self._refuses = True
        self._break_all()

    def mend(self) -> None:
        """Let everything through again."""
        self._refuses = False
        self._flows.set()

    def close(self) -> None:
        self._ended = True
        self._flows.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._break_all()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self) -> Cut:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _break_all(self) -> None:
        with self._lock:
            sockets = list(self._sockets)
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._ended:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._flows.wait()
            try:
                if self._refuses or self._ended:
                    self.n_refused += 1
                    raise ConnectionRefusedError
                server = socket.create_connection(self.target, timeout=5)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            self._carry(client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with self._lock:
            self._sockets |= {client, server}
        ways = [
            threading.Thread(target=self._pump, args=way, daemon=True)
            for way in ((client, server, False), (server, client, True))
        ]
        both = threading.Thread(target=self._end_of, args=(ways, client, server), daemon=True)
        self._threads += [*ways, both]
        for thread in (*ways, both):
            thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            for data in self._carried(source, sink, answers):
                self._flows.wait()
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _carried(
        self, source: socket.socket, sink: socket.socket, answers: bool
    ) -> Iterator[bytes]:
        """What comes from one side, as it is to reach the other one."""
        while data := source.recv(65_536):
            if answers:
                time.sleep(self.late_s)
                data = self.spoils(data)
            yield data

    def _end_of(
        self, ways: list[threading.Thread], client: socket.socket, server: socket.socket
    ) -> None:
        for way in ways:
            way.join()
        with self._lock:
            self._sockets -= {client, server}
        client.close()
        server.close()

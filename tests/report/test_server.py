"""The server of pages on real sockets: half-open clients, slow ones, too many of them."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import write_tables
from tests.live.waiting import until
from tests.report.fleet import rolling_bounce, tables
from tests.report.served import running

from holdfast.fleet.report.serving import server as page_server
from holdfast.fleet.report.serving.server import (
    MAX_CLIENTS,
    PageServer,
    names_this_computer,
)

THREADS = 8
"""Requests that are computed at a time."""
PATIENCE_S = 60
"""After so long a test fails that waits for a server that will never answer."""
HALF = b"GET /metrics HTTP/1.1\r\nHost: localh"


def plain(text: Callable[[], str]) -> Any:
    """An application whose every answer is a text."""

    def application(environ: Any, start_response: Any) -> list[bytes]:
        data = text().encode()
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [data]

    return application


def serving(
    text: Callable[[], str] = lambda: "x 1\n",
    host: str = "127.0.0.1",
    said: list[str] | None = None,
) -> AbstractContextManager[PageServer]:
    return running(plain(text), host, [].append if said is None else said.append)


def port_of(server: PageServer) -> int:
    return int(server.effective_port)


def connect(port: int, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection((host, port), timeout=PATIENCE_S)


def scrape(port: int, host: str = "127.0.0.1", **headers: str) -> tuple[int, str]:
    client = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    try:
        client.request("GET", "/metrics", headers=headers)
        answer = client.getresponse()
        return answer.status, answer.read().decode()
    finally:
        client.close()


def everything(client: socket.socket) -> bytes:
    """What a client gets until its end, however it ends."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65_536):
            got += part
    return got


def is_held(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def test_four_hundred_half_open_clients_stop_no_scrape() -> None:
    with serving() as server, ExitStack() as stack:
        clients = [stack.enter_context(connect(port_of(server))) for _ in range(400)]
        for client in clients:
            with contextlib.suppress(ConnectionError):
                client.sendall(HALF)
        assert scrape(port_of(server)) == (200, "x 1\n")
        assert sum(map(is_held, clients)) <= MAX_CLIENTS


def test_clients_that_drip_and_come_back_stop_no_scrape() -> None:
    with serving() as server:
        port, over = port_of(server), threading.Event()

        def drip(n: int) -> None:
            with ExitStack() as stack:
                clients = [stack.enter_context(connect(port)) for _ in range(n)]
                while not over.is_set():
                    for i, client in enumerate(clients):
                        try:
                            client.sendall(b"G")
                            held = is_held(client)
                        except OSError:
                            held = False
                        if not held:
                            clients[i] = stack.enter_context(connect(port))

        attackers = [threading.Thread(target=drip, args=(200,)) for _ in range(2)]
        for attacker in attackers:
            attacker.start()
        try:
            assert [scrape(port) for _ in range(8)] == [(200, "x 1\n")] * 8
        finally:
            over.set()
            for attacker in attackers:
                attacker.join()


def test_clients_that_do_not_take_their_answers_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_server, "SLOW_S", 0)
    long = "x" * 20_000_000
    with serving(lambda: long) as server, ExitStack() as stack:
        for _ in range(MAX_CLIENTS):
            client = stack.enter_context(connect(port_of(server)))
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
        server.application = plain(lambda: "x 1\n")
        assert scrape(port_of(server)) == (200, "x 1\n")


@pytest.mark.parametrize("sent", [b"", b"GET /met", HALF, b"GET /metrics HTTP/1.1\r\n"])
def test_a_request_that_does_not_come_is_dropped(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "SILENT_S", 0)
    with serving() as server, connect(port_of(server)) as client:
        client.sendall(sent)
        assert everything(client) == b""


def test_an_answer_that_is_not_taken_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "SILENT_S", 0)
    text = "x" * 50_000_000
    with serving(lambda: text) as server, connect(port_of(server)) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        until(lambda: not server.active_channels, "no client")
        assert len(everything(client)) < len(text)  # what was on its way may be lost too


@pytest.mark.parametrize(
    "endless", [b"Z: " + b"z" * 60_000 + b"\r\n", b"GET / HTTP/1.1\r\n\r\n" * 3000]
)
def test_a_request_without_end_is_cut(endless: bytes) -> None:
    with serving() as server, connect(port_of(server)) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(b"GET /metrics HTTP/1.1\r\n" + b"X: yyyyyyyyyyyyyyyyyyyy\r\n" * 90)
            for _ in range(20):
                client.sendall(endless)
        assert scrape(port_of(server))[0] == 200


class Slow:
    """A text that takes as long as the test wants."""

    def __init__(self) -> None:
        self.requested = threading.Semaphore(0)
        self.may_go = threading.Event()

    def __call__(self) -> str:
        self.requested.release()
        assert self.may_go.wait(PATIENCE_S)
        return "x 1\n"

    def fill(self, server: PageServer, stack: ExitStack, n: int) -> list[socket.socket]:
        """Clients that wait for their answer."""
        clients = [stack.enter_context(connect(port_of(server))) for _ in range(n)]
        for client in clients:
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert self.requested.acquire(timeout=PATIENCE_S)
        return clients


def test_one_client_too_many_replaces_one_that_still_sends_else_it_waits() -> None:
    text = Slow()
    with serving(text) as server, ExitStack() as stack:
        clients = text.fill(server, stack, THREADS)
        halves = [stack.enter_context(connect(port_of(server))) for _ in range(2 * MAX_CLIENTS)]
        for half in halves:
            half.sendall(HALF)
        assert everything(halves[0]) == b""
        for _ in range(MAX_CLIENTS):
            clients.append(stack.enter_context(connect(port_of(server))))
            clients[-1].sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        for half in halves:
            assert everything(half) == b""
        text.may_go.set()
        for client in clients:
            assert everything(client).endswith(b"\r\n\r\nx 1\n")


def test_who_waits_for_an_answer_has_it_before_the_server_stops() -> None:
    text = Slow()
    with ExitStack() as stack:
        with serving(text) as server:
            (client,) = text.fill(server, stack, 1)
            half = stack.enter_context(connect(port_of(server)))
            half.sendall(HALF)
            closing = threading.Timer(0.0, text.may_go.set)
            closing.start()
        assert everything(client).startswith(b"HTTP/1.0 200 ")
        assert everything(half) == b""
        with pytest.raises(ConnectionError):
            connect(port_of(server))


@pytest.mark.parametrize(
    ("host", "clients"), [("::1", ["::1"]), ("::", ["::1", "127.0.0.1"]), ("localhost", None)]
)
def test_both_kinds_of_addresses_are_served(host: str, clients: list[str] | None) -> None:
    with serving(host=host) as server:
        assert server.address.startswith("[" if clients else "127.")
        for client in clients or ["127.0.0.1"]:
            assert scrape(port_of(server), client)[0] == 200


@pytest.mark.parametrize(
    ("header", "good"),
    [
        (None, True),
        ("localhost:9308", True),
        ("LOCALHOST", True),
        ("127.0.0.1", True),
        ("127.8.9.1:80", True),
        ("[::1]:9308", True),
        ("[::ffff:127.0.0.1]", True),
        ("evil.example", False),
        ("evil.example:9308", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("127.0.0.1%00.evil.example", False),
        ("127.0.0.1,evil.example", False),
        ("192.0.2.1", False),
        ("[::]", False),
        ("0.0.0.0", False),
        ("", False),
    ],
)
def test_a_host_header_names_this_computer_or_it_does_not(header: str | None, good: bool) -> None:
    assert names_this_computer(header) == good


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET  / x HTTP/1.1", b"400"),
        (b"BREW", b"400"),
        (b"GET / HTTP/1.1\r\nA: b\nContent-Length: 3", b"400"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000, b"431"),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n", b"413"),
    ],
)
def test_what_is_no_request_is_answered_in_a_line(line: bytes, status: bytes) -> None:
    with serving() as server, connect(port_of(server)) as client:
        client.sendall(line + b"\r\n\r\n")
        answer = everything(client)
        assert answer.split()[1] == status
        assert b"text/plain" in answer


def test_a_client_that_left_is_not_logged() -> None:
    text, said = Slow(), list[str]()
    with serving(text, said=said) as server:
        with ExitStack() as stack:
            (client,) = text.fill(server, stack, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        text.may_go.set()
    assert said == []


def test_a_failure_is_a_500_without_details() -> None:
    said: list[str] = []
    with serving(lambda: str(1 / 0), said=said) as server:
        status, answer = scrape(port_of(server))
        assert status == 500
        assert "division" not in answer
    assert said == ["request of 127.0.0.1: ZeroDivisionError: division by zero"]


NO_DESCRIPTOR = """
import os, resource, socket, threading
from holdfast.fleet.report.serving import server as page_server

class Clock:
    def __getattr__(self, name):
        return getattr(time, name)
    def sleep(self, seconds):
        for taken in held:
            os.close(taken)
        held.clear()
        time.sleep(seconds)

import time
page_server.time = Clock()

def answer(environ, start_response):
    start_response("200 OK", [])
    return [b"x 1"]

server = page_server.PageServer(page_server.listen_on("127.0.0.1", 0), answer, print)
resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))
held = []
late = socket.socket()
threading.Thread(target=server.run, daemon=True).start()
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    late.connect(("127.0.0.1", int(server.effective_port)))
    late.sendall(b"GET /metrics HTTP/1.1\\r\\n\\r\\n")
    assert late.recv(12) == b"HTTP/1.1 200", "no answer"
"""


def test_without_descriptors_the_server_rests_and_continues_when_there_are_some() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_DESCRIPTOR],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


LIMITED = """
import resource, sys
from holdfast.cli.app import main
resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
main(sys.argv[1:])
"""


def test_the_command_serves_with_few_descriptors_and_many_clients_and_ends_well(
    tmp_path: Path,
) -> None:
    folder = write_tables(tables(rolling_bounce()), tmp_path)
    command = [sys.executable, "-c", LIMITED, "serve", "--input", str(folder)]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        with ExitStack() as stack:
            stack.callback(process.terminate)
            said = process.stderr.readline()
            port = int(re.findall(r":(\d+)/", said)[0])
            clients = [stack.enter_context(connect(port)) for _ in range(400)]
            for client in clients:
                with contextlib.suppress(ConnectionError):
                    client.sendall(HALF)
            while (answer := scrape(port))[0] == 503:  # the groups are being examined
                time.sleep(0.1)
            assert answer[0] == 200
            assert "holdfast_group_generation" in answer[1]
        assert process.wait(PATIENCE_S) == 0

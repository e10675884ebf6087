"""Connections end in time, leave no socket open, and lose no last answer."""

from __future__ import annotations

import gc
import socket
import sys
import warnings
from contextlib import closing

import pytest
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from holdfast.cluster import diagnosis, kafka_python_repairs
from holdfast.cluster.connections import SOCKET_OPTIONS, Connections
from holdfast.errors import SourceError
from holdfast.members.config.settings import Settings


def fail_to_open(address: str, **extra: object) -> str:
    config = {"bootstrap.servers": address, "group.id": "g", "request.timeout.ms": 500, **extra}
    connections = Connections(Settings.parse(config))
    try:
        connections.open()
    except SourceError as error:
        return str(error)
    raise AssertionError("something answered")


@pytest.fixture
def left_open(monkeypatch):
    """What the garbage collector finds unclosed."""
    found: list[str] = []
    gc.collect()
    monkeypatch.setattr(sys, "unraisablehook", lambda seen: found.append(str(seen.exc_value)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        yield found


@pytest.fixture
def silent_server():
    """Takes connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_refused_connection_leaves_no_socket(left_open):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    assert f"nothing listens at {address}" in fail_to_open(address)
    gc.collect()
    assert left_open == []


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_connection_that_is_never_answered_ends(left_open, silent_server, monkeypatch, protocol):
    """kafka-python waits for a TLS handshake without a limit."""
    monkeypatch.setattr(diagnosis, "_LOOK_S", 0.3)
    text = fail_to_open(silent_server, **{"security.protocol": protocol})
    assert text.startswith(f"{silent_server} accepts connections and never answers")
    gc.collect()
    assert left_open == []


def test_a_client_closed_with_a_request_to_write_leaves_no_socket(left_open, silent_server):
    """kafka-python closes a socket after its last write, and ends the loop that would write."""
    host, port = silent_server.split(":")
    loop = NetworkSelector()
    transport = KafkaTCPTransport(loop, socket.create_connection((host, int(port))))
    transport.write(b"a request")
    transport.close()
    loop.close()
    del transport, loop
    gc.collect()
    assert left_open == []


@pytest.mark.parametrize("kind", [KafkaTCPTransport, KafkaSSLTransport])
def test_an_answer_that_comes_with_the_end_is_read(kind):
    """A broker sends why it refuses a login and closes; a busy client finds both at once."""
    kafka_python_repairs.mend_connects()
    transport = kind.__new__(kind)  # without a loop that reads
    transport._closed = False
    transport._sock, broker = socket.socketpair()
    with closing(transport._sock):
        broker.sendall(b"wrong password")
        broker.close()
        assert transport._sock_recv() == (b"wrong password", None)
        data, error = transport._sock_recv()
        assert (data, str(error)) == (b"", "KafkaConnectionError: socket disconnected")


def test_a_host_that_dies_without_a_word_is_noticed(connections):
    """The kernel looks after quiet connections: a JoinGroup may be pending for minutes."""
    with socket.socket() as one:
        for option in SOCKET_OPTIONS:
            one.setsockopt(*option)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert connections._manager.config["socket_options"] == SOCKET_OPTIONS

"""A real Kafka: ready in seconds, and ended with its starter."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.live.racks import check_that_members_read_in_their_racks
from tests.live.waiting import until

from holdfast.errors import BrokerError, ConfigError
from holdfast.local import broker as module
from holdfast.local.broker import Broker, BrokerSettings

pytestmark = pytest.mark.broker


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def accepts(bootstrap: str) -> bool:
    host, port = bootstrap.split(",", maxsplit=1)[0].split(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def taken_port() -> Iterator[int]:
    """A port that somebody listens at."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


PROGRAM = """
import sys, time
from holdfast.local.broker import Broker
with Broker.start() as broker:
    print(broker.bootstrap, broker.folder, *broker.process_ids(), flush=True)
    {then}
"""


@pytest.fixture
def child() -> Iterator[Callable[[str], tuple[subprocess.Popen[str], str, Path, int]]]:
    """Start a program that has a broker; returns it with bootstrap, folder and server's pid."""
    runs = []

    def start(then: str) -> tuple[subprocess.Popen[str], str, Path, int]:
        run = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(then=then)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        runs.append(run)
        bootstrap, folder, pid = run.stdout.readline().split()
        return run, bootstrap, Path(folder), int(pid)

    yield start
    for run in runs:
        run.kill()
        run.wait()
        run.stdout.close()


@pytest.mark.parametrize("end", [None, signal.SIGTERM, signal.SIGKILL], ids=str)
@pytest.mark.every
def test_nothing_is_left_when_the_parent_ends(child, end):
    """By an exception, or by a signal; the command below ends with Ctrl-C."""
    run, bootstrap, folder, pid = child("raise RuntimeError" if end is None else "time.sleep(600)")
    if end is not None:
        assert is_alive(pid)
        assert folder.exists()
        run.send_signal(end)
    run.wait(60)
    until(lambda: not is_alive(pid), "its end")
    until(lambda: not folder.exists(), "an end of its folder")
    assert not accepts(bootstrap)


@pytest.mark.every
def test_server_dies_when_its_guard_is_killed(child):
    run, _, folder, pid = child("time.sleep(600)")
    status = Path(f"/proc/{pid}/status").read_text()
    guard = int(status.split("PPid:")[1].split()[0])
    os.kill(guard, signal.SIGKILL)
    until(lambda: not is_alive(pid), "its end")
    assert run.poll() is None
    run.send_signal(signal.SIGINT)
    run.wait(60)
    assert not folder.exists()


@pytest.mark.every
def test_nothing_is_left_when_the_server_died_before_its_parent(child):
    run, _, folder, pid = child("time.sleep(600)")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid), "its end")
    run.send_signal(signal.SIGKILL)
    run.wait(60)
    until(lambda: not folder.exists(), "an end of its folder")


@pytest.mark.every
def test_a_server_that_ends_by_itself_is_an_error(child):
    run, _, folder, pid = child("broker.wait()")
    os.kill(pid, signal.SIGKILL)
    assert run.wait(60) == 1
    assert not folder.exists()


@pytest.mark.every
def test_three_nodes_settings_listeners_and_restart():
    """One cluster shows it all: starting three nodes is dear."""
    from kafka import KafkaAdminClient

    settings = BrokerSettings(
        brokers=3,
        listeners={"SASL": "SASL_PLAINTEXT"},
        properties={
            "offsets.topic.num.partitions": "2",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        },
        format_arguments=("--add-scram", "SCRAM-SHA-256=[name=ann,password=secret]"),
    )
    with Broker.start(settings=settings) as cluster:
        assert len(cluster.bootstrap.split(",")) == 3
        assert len(cluster.process_ids()) == 3
        assert not set(cluster.bootstrap.split(",")) & set(cluster.bootstrap_of("SASL").split(","))
        admin = KafkaAdminClient(
            bootstrap_servers=cluster.bootstrap_of("SASL"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username="ann",
            sasl_plain_password="secret",
        )
        try:
            assert len(admin.describe_cluster()["brokers"]) == 3
        finally:
            admin.close()
        for stock_leads in (True, False):
            check_that_members_read_in_their_racks(cluster.bootstrap, stock_leads=stock_leads)
        cluster.stop_node(2)
        assert len(cluster.process_ids()) == 2
        cluster.start_node(2)
        cluster.stop_node(3, orderly=False)
        cluster.start_node(3)
        assert len(cluster.process_ids()) == 3
        folder = cluster.folder
    assert not folder.exists()


@pytest.mark.every
def test_a_broker_keeps_its_data_and_draws_again_where_a_port_is_taken(temporary, monkeypatch):
    """The first draw of ports for the second one hands out a port that is taken meanwhile."""
    with Broker.start(settings=BrokerSettings(keep=True)) as kept:
        (pid,) = kept.process_ids()
    assert not is_alive(pid)
    assert list((kept.folder / "node-1" / "data").iterdir())
    with taken_port() as taken:
        draw, draws = module._free_ports, []

        def unlucky(n_ports: int, **options: int | None) -> list[int]:
            ports = draw(n_ports, **options)
            draws.append(ports)
            return [taken, *ports[1:]] if len(draws) == 1 else ports

        monkeypatch.setattr(module, "_free_ports", unlucky)
        with Broker.start() as second:
            assert accepts(second.bootstrap)
        assert len(draws) == 2


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (BrokerSettings(brokers=2), "brokers: 1 or 3, not 2"),
        (BrokerSettings(heap_mb=0), "heap_mb: 64 or more, not 0"),
        (BrokerSettings(port=70_000), "port: 1 to"),
        (BrokerSettings(brokers=3, port=65_535), "port: 1 to 65533"),
    ],
)
def test_impossible_settings_are_refused(settings, word):
    with pytest.raises(ConfigError, match=word):
        Broker.start(settings=settings)


def test_a_port_in_use_is_one_line():
    with (
        taken_port() as port,
        pytest.raises(BrokerError, match=f"port {port} is already in use"),
    ):
        Broker.start(settings=BrokerSettings(port=port))


def test_a_setting_that_kafka_refuses_is_said_and_cleaned_up(temporary):
    settings = BrokerSettings(properties={"process.roles": "juggler"})
    with pytest.raises(BrokerError, match=r"format failed: .*juggler") as caught:
        Broker.start(settings=settings)
    assert "\n" not in str(caught.value)
    assert list(temporary.iterdir()) == []


def test_command_is_ready_when_it_prints_the_address_and_leaves_nothing_after_ctrl_c(temporary):
    from kafka import KafkaAdminClient

    run = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "broker"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        bootstrap = run.stdout.readline().strip()
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
            cluster = admin.describe_cluster()
        assert [node["broker_id"] for node in cluster["brokers"]] == [1]
        assert cluster["cluster_id"] == module._CLUSTER_ID
        assert list(temporary.iterdir())
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 130
    assert out == ""
    (seconds,) = map(float, re.findall(r"Kafka is ready after ([\d.]+) s", err))
    assert 0 < seconds < module._START_SECONDS
    assert "Traceback" not in err
    until(lambda: not accepts(bootstrap), "a closed port")
    until(lambda: not list(temporary.iterdir()), "an empty folder")


def test_command_refuses_a_property_that_is_none():
    answer = subprocess.run(
        [sys.executable, "-m", "holdfast", "broker", "--property", "a"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 2
    assert "KEY=VALUE" in answer.stderr

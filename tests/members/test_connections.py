"""Requests end with the connections: no thread waits for an answer that cannot come."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import kafka
import pytest
from tests.members.configured import settings_of

from holdfast.cluster.connections import Connections
from holdfast.cluster.kafka_python_repairs import mend_connects
from holdfast.errors import ClientError
from holdfast.kafka import KafkaConsumer


async def answer():
    return 7


async def refuse():
    raise ValueError("no")


def test_an_answer_and_an_error_come_back(connections):
    assert connections.future(answer).result(30) == 7
    with pytest.raises(ClientError, match="ValueError: no"):
        connections.future(refuse).result(30)
    assert not connections._open_questions


def test_answers_may_be_as_large_as_a_group(connections):
    """A leader is sent the subscriptions of all members; the library's default is a megabyte."""
    assert connections._manager.config["receive_message_max_bytes"] >= 100_000_000


def test_closing_fails_what_is_open(connections):
    asked = threading.Event()

    async def wait():
        asked.set()
        await connections._net.sleep(3_600)

    question = connections.future(wait)
    assert asked.wait(30)
    connections.close()
    with pytest.raises(ClientError):
        question.result(30)


def test_closing_fails_what_the_loop_never_began(connections, monkeypatch):
    """kafka-python's loop forgets what came too late for its last turn."""
    monkeypatch.setattr(connections._net, "call_soon_threadsafe", lambda work: None)
    question = connections.future(answer)
    monkeypatch.undo()
    connections.close()
    with pytest.raises(ClientError, match="the connections are closed"):
        question.result(30)


def test_what_is_asked_after_the_end_fails_at_once(connections):
    connections.close()
    with pytest.raises(ClientError, match="the connections are closed"):
        connections.future(answer).result(30)
    said = []
    connections.submit(answer, said.append, said.append)
    assert [type(error) for error in said] == [ClientError]


def test_two_closes_at_once_leave_no_socket_open(monkeypatch):
    """An application closes while the thread that connects finds out that it has to end."""
    made = Connections(settings_of())
    first, run, order = threading.Event(), made._net.run, []

    def slow(work):
        order.append("begins")
        first.set()
        threading.Event().wait(0.05)  # the other one gets as far as it can
        order.append("ends")
        return run(work)

    monkeypatch.setattr(made._net, "run", slow)
    other = threading.Thread(target=made.close)
    other.start()
    first.wait()
    made.close()
    other.join()
    # Two threads in kafka-python's loop: it raises on one of them, and is not closed to the end.
    assert order == ["begins", "ends"] * 2
    assert made._net._wakeup_r.fileno() == -1


def block(net):
    """Have a task of an event loop let no other run, for longer than kafka-python likes (0.1 s).

    Returns the text of the task: on a busy machine, another one may be as slow.
    """
    tasks = []

    async def sleep():
        tasks.append(repr(net._current))
        time.sleep(0.15)

    net.run(sleep)
    return tasks[0]


def warnings_of_loops(caplog):
    """Ask once the loops have ended: a warning comes after the answer of its task."""
    return [r for r in caplog.records if r.name == "kafka.net.selector"]


def test_a_slow_moment_of_the_members_loop_is_not_in_the_applications_log(connections, caplog):
    with closing(connections):
        block(connections._net)
    assert warnings_of_loops(caplog) == []


@pytest.mark.parametrize("kind", [kafka.KafkaConsumer, KafkaConsumer])
def test_what_the_application_does_in_its_own_consumers_loop_is_warned_of(kind, caplog):
    """It may be the application's own code: a listener that is a coroutine, a serializer."""
    mend_connects()  # kafka-python's own leaves those open that are refused
    with closing(kind(bootstrap_servers="127.0.0.1:1", api_version=(2, 6), group_id="g")) as mine:
        task = block(mine._net)
    assert [task in r.getMessage() for r in warnings_of_loops(caplog)].count(True) == 1

"""Fixtures that several tests of members use."""

from __future__ import annotations

import signal

import pytest
from tests.members.configured import settings_of
from tests.members.fake_machine import FakeCoordinator, Notes

from holdfast.cluster.connections import Connections
from holdfast.members.runtime.member_thread import MemberThread


@pytest.fixture
def on_alarm():
    """Set what the alarm does, and in how many seconds."""
    before = signal.getsignal(signal.SIGALRM)

    def set_alarm(action, seconds, every=0.0):
        signal.signal(signal.SIGALRM, lambda *_: action())
        signal.setitimer(signal.ITIMER_REAL, seconds, every)

    yield set_alarm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def connections():
    """As after ``open()``, with nobody at the other end."""
    made = Connections(settings_of())
    made._net.start()
    yield made
    made.close()


@pytest.fixture
def run():
    """Start a host on a script; stopped afterwards."""
    member_threads = []

    def start(script, rebalance_handler=None, compute=lambda _: None, coordinator=None, ready=None):
        member_thread = MemberThread(
            script, rebalance_handler or Notes(), compute, name="t", ready=ready
        )
        member_threads.append(member_thread)
        member_thread.start(coordinator or FakeCoordinator())
        return member_thread

    yield start
    for member_thread in member_threads:
        member_thread.stop()
        member_thread.stop()

"""What several tests of adapters use."""

from __future__ import annotations

import signal

import pytest

from holdfast.cluster.connections import Connections
from holdfast.cluster.settings import Settings


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
    made = Connections(Settings.parse({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}))
    made._net.start()
    yield made
    made.close()

"""What several tests of adapters use."""

from __future__ import annotations

import signal

import pytest
from tests.adapters.configured import settings_of
from tests.adapters.fake_machine import Link, Notes

from holdfast.cluster.connections import Connections
from holdfast.members.member.host import MemberHost


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
    hosts = []

    def start(script, duties=None, compute=lambda _: None, link=None, ready=None):
        host = MemberHost(script, duties or Notes(), compute, name="t", ready=ready)
        hosts.append(host)
        host.start(link or Link())
        return host

    yield start
    for host in hosts:
        host.stop()
        host.stop()

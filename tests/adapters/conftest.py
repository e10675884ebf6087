"""What several tests of adapters use."""

from __future__ import annotations

import signal

import pytest


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

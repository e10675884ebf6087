"""When a client counts as stalled."""

from __future__ import annotations

import pytest

from holdfast.members.clients.librdkafka import recreation
from holdfast.members.clients.librdkafka.recreation import REQUEST_EVERY_S, StallDetector


class World:
    """A clock, and a coordinator that has answered at some time."""

    def __init__(self):
        self.now = 100.0
        self.heartbeat_answered_at = 0.0

    def wait(self, *, answers):
        self.now += REQUEST_EVERY_S
        if answers:
            self.heartbeat_answered_at = self.now - 1


@pytest.fixture
def world(monkeypatch):
    made = World()
    monkeypatch.setattr(recreation.time, "monotonic", lambda: made.now)
    return made


def questions(world, ended, n, *, answers=True):
    """What comes of so many questions that find no broker."""
    found = []
    for _ in range(n):
        world.wait(answers=answers)
        assert ended.is_due()
        found.append(ended.found_none(world.heartbeat_answered_at))
        assert not ended.is_due()
    return found


def test_nobody_is_stalled_while_the_coordinator_is_silent(world):
    ended = StallDetector()
    assert questions(world, ended, 50, answers=False) == [False] * 50
    # The broker is back: librdkafka has some seconds to find it.
    assert questions(world, ended, 3) == [False] * 3


def test_what_comes_resets_the_stall(world):
    ended = StallDetector()
    assert not any(questions(world, ended, 3))
    ended.end()
    assert questions(world, ended, 4) == [False, False, False, True]


def test_where_it_does_not_help_it_is_done_less_and_less_often(world):
    ended = StallDetector()
    found = questions(world, ended, 4 + 8 + 16 + 32 + 64 + 64)
    assert [n for n, stalled in enumerate(found, 1) if stalled] == [4, 12, 28, 60, 124, 188]

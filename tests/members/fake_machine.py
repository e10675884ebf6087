"""Fakes around a member thread: a scripted machine, a rebalance handler, a coordinator."""

from __future__ import annotations

import queue
import threading
from dataclasses import fields

from holdfast.core.machine import actions, events
from holdfast.core.machine.shared_values import Identity, ListenerCall
from holdfast.core.machine.states import MemberState

A = (("a", 0),)
COMMIT = actions.Commit(token=4, resources=A, generation=3, member_id="m", instance_id=None)


def bare(kind, **given):
    """An action or event of which only these fields matter."""
    return kind(**dict.fromkeys(field.name for field in fields(kind)) | given)


class Script:
    """Stands for a member machine: answers an event with what was written down for it."""

    def __init__(self, answers):
        self.answers = answers
        self.seen = queue.SimpleQueue()
        self.threads = set()
        self.state = MemberState.UNJOINED
        self.deadline_ms = None
        self.identity = Identity(generation=3, member_id="m", instance_id=None)
        self.is_leader = False
        self.holdings = type("Holdings", (), {"owned": frozenset(A), "terms": {}})()

    def step(self, now_ms, event):
        self.threads.add(threading.current_thread())
        answer = self.answers.get(type(event), ())
        if isinstance(answer, MemberState):
            self.state, answer = answer, ()
        if isinstance(event, events.Tick):
            self.deadline_ms = None
        self.seen.put(event)
        return answer

    def next(self, kind):
        """The next event of a kind, in time."""
        while True:
            event = self.seen.get(timeout=30)
            if isinstance(event, kind):
                return event


class Notes:
    """Duties that note their calls and are done at once."""

    def __init__(self):
        self.notes = []

    def mark_pending_revocation(self, resources, drained):
        self.notes.append("stop")
        drained()

    def drop(self, resources, lost):
        self.notes.append(f"drop, {len(lost)} told")

    def call(self, call, resources, done):
        self.notes.append(call.value)
        done("OSError: no" if call is ListenerCall.LOST else None)

    def commit(self, action, done):
        self.notes.append("commit")
        done(27)


class FakeCoordinator:
    """Notes requests."""

    def __init__(self):
        self.sent = []

    def perform(self, action):
        self.sent.append(action)

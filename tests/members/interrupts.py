"""Exceptions at any line of the application's thread, and a group for the interrupted member.

A signal handler runs between two steps of the interpreter, and may raise: at the start of a
function, and after a call has returned. :class:`Interrupt` raises there, at one line of the package
:mod:`holdfast.members` or of what it calls. :class:`Group` simulates a coordinator of one member,
and another one that may join: a run takes a part of a second, so every line can be tested.
"""

from __future__ import annotations

import _weakrefset
import gc
import sys
import threading
import weakref
from pathlib import Path

from tests.members.fake_member import done

import holdfast.members
from holdfast.cluster.lookup import FoundTopics
from holdfast.core.machine import actions, events
from holdfast.core.machine.events import JoinedMember

OURS = str(Path(holdfast.members.__file__).parent)
REBALANCE_IN_PROGRESS = 27
TOPIC = "orders"
_FINALISERS = {weakref.__file__, _weakrefset.__file__}
_WAITS = {"acquire", "sleep"}  # a handler runs in the middle of these, too


class AtOneStep:
    """Raise ``KeyboardInterrupt`` at one step of this thread, once.

    Attributes
    ----------
    has_raised : bool
        Whether the step was reached.
    """

    has_raised = False

    def __enter__(self):
        gc.disable()  # in a callback or finaliser of the collector an exception is ignored
        sys.setprofile(self._step)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        gc.enable()

    def _step(self, frame, event, arg):
        raise NotImplementedError

    def _raise(self, *where):
        sys.setprofile(None)
        self.has_raised = True
        raise KeyboardInterrupt(*where)


class Interrupt(AtOneStep):
    """Raise ``KeyboardInterrupt`` on this thread at one place, once; without a place, note all.

    Attributes
    ----------
    places : list of tuple
        Where it might have raised, in the order in which they were reached first.
    """

    def __init__(self, at=None):
        self.at = at
        self.places = {}

    def _step(self, frame, event, arg):
        if event in ("c_call", "c_exception"):
            if event == "c_exception" or arg.__name__ not in _WAITS:
                return
        elif event != "c_return" and not _is_ours(frame):
            if frame.f_code.co_filename in _FINALISERS:
                return  # no exception is raised in one
            frame = frame.f_back
        if frame is None or not _is_ours(frame):
            return
        file = frame.f_code.co_filename[len(OURS) + 1 :]
        what = arg.__name__ if event.startswith("c_") else ""
        place = (file, frame.f_code.co_qualname, frame.f_lineno, event, what)
        self.places[place] = None
        if place == self.at:
            self._raise(str(place))


def _is_ours(frame):
    return frame.f_code.co_filename.startswith(OURS)


class Group:
    """A coordinator, in this process: of one member, which leads, and of one that may come."""

    def __init__(self, counts):
        self.counts = counts
        self.generation = 0
        self.joined = set()
        self.left = set()
        self.metadata = None  # of the first join
        self.is_crowded = False  # somebody else is a member, too
        self.must_join = False
        self.commits = []

    def crowd(self):
        """Another member joins."""
        self.is_crowded = self.must_join = True

    def answer(self, action):
        """The answer to a request."""
        match action:
            case actions.FindCoordinator():
                return events.CoordinatorFound(action.request)
            case actions.SendJoin():
                return self._join(action)
            case actions.SendSync():
                mine = dict(action.assignments)[action.member_id]
                return events.SyncAnswered(request=action.request, assignment=mine)
            case actions.SendHeartbeat():
                error = REBALANCE_IN_PROGRESS if self.must_join else 0
                return events.HeartbeatAnswered(action.request, error)
            case actions.SendLeave():
                self.left.add(action.member_id)
                return events.LeaveAnswered(action.request, 0)

    def _join(self, action):
        self.generation += 1
        self.must_join = False
        member_id = action.member_id or f"m{self.generation}"
        self.joined.add(member_id)
        name, metadata = action.protocols[0]
        self.metadata = self.metadata or metadata
        members = [JoinedMember(member_id=member_id, metadata=metadata)]
        if self.is_crowded:
            members.append(JoinedMember(member_id="other", metadata=self.metadata))
        return events.JoinAnswered(
            request=action.request,
            generation=self.generation,
            protocol_name=name,
            leader_id=member_id,
            member_id=member_id,
            members=tuple(members),
        )

    # In the places of Connections, Lookup and CoordinatorClient

    def connections(self, *_, **__):
        return Connections()

    def lookup(self, _):
        return self

    def partitions(self, _):
        return done(FoundTopics(counts=self.counts))

    def list_offsets(self, partitions, _):
        return done(dict.fromkeys(partitions, 0))

    def coordinator(self, _, post, fail):
        return FakeCoordinator(self, post)


class Connections:
    timeout_ms = 1_000

    def open(self):
        pass

    def close(self):
        pass


class FakeCoordinator:
    def __init__(self, group, post):
        self._group = group
        self._post = post

    def perform(self, action):
        self._post(self._group.answer(action))

    def commit(self, offsets, _):
        self._group.commits.append(dict(offsets))
        return done(0)

    def committed(self, partitions, **_):
        return done(dict.fromkeys(partitions, -1))


def in_time(work, seconds=60.0):
    """Whether a thread does this in time."""
    other = threading.Thread(target=work, daemon=True)
    other.start()
    other.join(seconds)
    return not other.is_alive()

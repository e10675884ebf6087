"""A client in memory, and a member that does as a test says: for tests of the seat."""

from __future__ import annotations

import logging
import time
from collections import deque
from concurrent.futures import Future
from types import SimpleNamespace

from holdfast.cluster.settings import Settings
from holdfast.core.machine.callbacks import ListenerCall
from holdfast.core.machine.events import CommitRefused, Polled, RejoinRequested
from holdfast.core.machine.member.identity import Identity
from holdfast.core.machine.states import MemberState
from holdfast.members.member.host import Standing
from holdfast.members.member.membership import assignors_of
from holdfast.members.member.offsets import OffsetToCommit
from holdfast.members.member.process import OwnProcess
from holdfast.members.seat.hands import before


class FakeHands:
    """See :class:`~holdfast.members.seat.hands.Hands`; what is handed out is a list of records.

    Attributes
    ----------
    calls : list of tuple
        What the seat had done, in order: a word and sorted partitions.
    listens : set of ListenerCall
        The application's callbacks.
    raises : Exception or None
        What these raise.
    """

    def __init__(self, *, listens=frozenset(ListenerCall)):
        self.calls = []
        self.listens = set(listens)
        self.raises = None
        self.in_callback = lambda _: None
        self.reached = {}

    def hand_out(self, tp, offset):
        """Hand out the record at this offset; returns it, for the application's hand."""
        self.reached[tp] = offset + 1
        return [(tp, offset)]

    def hold_back(self, partitions):
        self.calls.append(("hold back", sorted(partitions)))

    def hide(self, partitions):
        self.calls.append(("hide", sorted(partitions)))

    def drop(self, partitions):
        if partitions:
            self.calls.append(("drop", sorted(partitions)))
        for tp in partitions:
            self.reached.pop(tp, None)

    def positions(self, partitions):
        return {tp: OffsetToCommit(at) for tp, at in self.reached.items() if tp in partitions}

    def processed(self, positions, in_hand):
        return before(positions, in_hand)

    def firsts(self, held):
        found = {}
        for tp, offset in held:
            found.setdefault(tp, OffsetToCommit(offset))
        return found

    def hears(self, call):
        return call in self.listens

    def tell(self, callback):
        return callback(self._listen, callback) if callback.call in self.listens else None

    def assigned(self, callback, *, is_news):
        for tp in callback.in_order():
            self.reached.setdefault(tp, 0)
        return self.tell(callback) if is_news else None

    def _listen(self, callback):
        self.calls.append((callback.call.value, callback.in_order()))
        self.in_callback(callback)
        if self.raises is not None:
            raise self.raises


class FakeLink:
    """Notes commits, and answers each with the next code; without one the test answers."""

    def __init__(self):
        self.sent = []  # offsets by partition, and the generation that they went with
        self.open = []
        self.codes = deque()

    def commit(self, offsets, who):
        self.sent.append(({tp: at.offset for tp, at in offsets.items()}, who.generation))
        answer = Future()
        if self.codes:
            answer.set_result(self.codes.popleft())
        else:
            self.open.append(answer)
        return answer

    def pause(self, seconds):
        over = Future()
        over.set_result(None)
        return over


class FakeHost:
    """A machine that the test plays: :attr:`steps` are done while the application waits for it."""

    def __init__(self):
        self.standing = Standing(state=MemberState.STABLE, identity=identity(1), owned=frozenset())
        self.failure = None
        self.posted = []
        self.steps = deque()
        self.beat_at = 0.0

    def post(self, event):
        self.posted.append(event)

    def note_polled(self):
        self.post(Polled())

    def note_refused(self, generation, code):
        self.post(CommitRefused(generation, code))

    def rejoin(self, reason):
        self.post(RejoinRequested(reason))

    def after(self, work):
        work()

    def catch_up(self, timeout_s):
        if self.steps:
            self.steps.popleft()()
        return True


class FakeMembership:
    """See :class:`~holdfast.members.seat.membership.Membership`; a broker has answered."""

    is_member = True

    def __init__(self, **keys):
        config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", **keys}
        self.settings = Settings.parse(config)
        self.assignors = assignors_of(self.settings)
        self.duties = None
        self.process = OwnProcess()
        self.host, self.link = FakeHost(), FakeLink()
        self.logged = []
        self.parts = SimpleNamespace(
            host=self.host,
            link=self.link,
            counters=SimpleNamespace(add=lambda *_: None),
            log=logging.getLogger("fake"),
            note_untold=self.logged.append,
        )
        self.is_leaving = False
        self.leaves = lambda: None

    @property
    def standing(self):
        return self.host.standing

    @property
    def failure(self):
        return self.host.failure

    def owns(self, terms, generation=1, *, state=MemberState.STABLE, member_id="m"):
        """The member owns these, in terms with these numbers."""
        self.host.standing = Standing(
            state=state,
            identity=identity(generation, member_id),
            owned=frozenset(terms),
            terms=dict(terms),
        )

    def leave(self, *, returns):
        if not self.is_leaving:
            self.is_leaving = True
            self.leaves()

    def is_over(self):
        return self.is_leaving and not self.host.standing.owned


def identity(generation, member_id="m"):
    return Identity(generation=generation, member_id=member_id, instance_id=None)


def until(condition, seconds=30.0):
    """Wait for what another thread does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)

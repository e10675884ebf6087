"""A member without a broker, and a client in memory: the two sides of a session.

:class:`Member` replaces :class:`holdfast.members.runtime.member_runtime.MemberRuntime`. A test acts
as the group: it sets what the member owns, answers its commits, and does the work of the member
thread. :class:`FakeAdapter` replaces a client: a test chooses the records that it delivers.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from concurrent.futures import Future
from types import SimpleNamespace
from typing import NamedTuple

from tests.members.configured import settings_of

from holdfast.core.machine import actions
from holdfast.core.machine.events import CommitRefused, LeaveRequested, Polled, RejoinRequested
from holdfast.core.machine.shared_values import Identity, ListenerCall, OffsetToCommit
from holdfast.core.machine.states import MemberState
from holdfast.members.clients.librdkafka.adapter import StartOffset
from holdfast.members.config.arguments import TopicPartition
from holdfast.members.config.policy import assignors_of
from holdfast.members.metrics import Counters
from holdfast.members.runtime.member_status import MemberSnapshot
from holdfast.members.session.membership import Membership
from holdfast.members.session.poll_session import InFlight, PollSession
from holdfast.members.session.session import ClientTraits


class Record(NamedTuple):
    """What a client hands out."""

    partition: tuple[str, int]
    offset: int


class Listener:
    """Callbacks of an application, which notes them; a test may have them do something."""

    def __init__(self, **works):
        self.heard = []
        self.works = works
        for word in works:
            setattr(self, f"on_partitions_{word}", self._noted(word))

    def _noted(self, word):
        def callback(partitions):
            self.heard.append((word, [tuple(tp) for tp in partitions]))
            if self.works[word] is not None:
                self.works[word](partitions)

        return callback

    def listener_for(self, call):
        """Return the callback for ``call``, as a consumer does."""
        method = getattr(self, f"on_partitions_{call.value}", None)
        if method is None and call is ListenerCall.LOST:
            method = getattr(self, "on_partitions_revoked", None)
        return method and (lambda resources: method([TopicPartition(*tp) for tp in resources]))


class FakeMemberThread:
    """The member's machine; a test says what it comes to."""

    def __init__(self):
        self.failure = None
        self.finished = threading.Event()
        self.heartbeat_sent_at = self.heartbeat_answered_at = 0.0
        self.posted = []
        self.due = deque()  # what the member's thread does whenever it catches up
        self.leaves = self.finished.set
        self.snapshot = None

    def post(self, event):
        self.posted.append(event)

    def record_poll(self):
        self.post(Polled())

    def record_refused(self, generation, code):
        self.post(CommitRefused(generation, code))

    def rejoin(self, reason):
        self.post(RejoinRequested(reason))

    def call_soon(self, work):
        self.catch_up(0.0)
        work()

    def catch_up(self, timeout_s):
        if self.due:
            self.due.popleft()()
        return True

    def leave(self, *, returns, process_ends=True):
        self.post(LeaveRequested(returns, process_ends))
        self.leaves()


class Sent(NamedTuple):
    """A commit that has gone out."""

    offsets: dict
    generation: int
    answer: Future


class FakeCoordinator:
    """The coordinator, which answers as a test says: at once, or by the test itself.

    Attributes
    ----------
    answers : list
        Codes or errors of the next commits; where there are none, the test answers.
    sent : list of Sent
        What went out.
    pauses : list of Future, or None
        Pauses before another attempt, which the test ends; None for no pause.
    """

    def __init__(self):
        self.answers = []
        self.sent = []
        self.pauses = None
        self.stands = {}  # what the group has committed

    def commit(self, offsets, who):
        made = Sent({tp: at.offset for tp, at in offsets.items()}, who.generation, Future())
        self.sent.append(made)
        if self.answers:
            answer(made, self.answers.pop(0))
        return made.answer

    def wait(self, seconds):
        over = Future()
        if self.pauses is None:
            over.set_result(None)
        else:
            self.pauses.append(over)
        return over

    def committed(self, partitions):
        return done({tp: self.stands.get(tp, -1) for tp in partitions})

    @property
    def commits(self):
        """What went out, by generation."""
        return [(sent.offsets, sent.generation) for sent in self.sent]


def done(value):
    future = Future()
    future.set_result(value)
    return future


def failed(error):
    future = Future()
    future.set_exception(error)
    return future


def answer(sent, said):
    """Answer a commit: with a code, an error, or by work that is done before that gives one."""
    said = said() if callable(said) else said
    if isinstance(said, Exception):
        sent.answer.set_exception(said)
    else:
        sent.answer.set_result(said)


class Member:
    """The parts of a running member."""

    def __init__(self, session):
        self.session = session
        self.member_thread = FakeMemberThread()
        self.coordinator = FakeCoordinator()
        self.lookup = SimpleNamespace()
        self.counters = Counters()
        self.log = logging.getLogger("holdfast.test")
        self.logged = []
        self.traits = []
        self.is_closed = False
        self.answered = []  # what hand-overs, callbacks and last commits gave, in order
        self._terms = {}
        self._n_terms = 0
        self.stand(-1, state=MemberState.UNJOINED)

    # What a membership asks of its parts

    def subscribe(self, topics, pattern):
        self.traits.append((topics, pattern))

    def record_unreported_loss(self, error):
        self.logged.append(str(error))

    def metrics(self):
        return self.counters.read()

    def close(self):
        self.is_closed = True

    # What the member's thread does

    def stand(self, generation, owned=None, state=MemberState.STABLE):
        """Be in this generation."""
        owned = self._terms.keys() if owned is None else owned
        self.owns({tp: self._terms.get(tp, 0) for tp in owned}, generation, state=state)

    def owns(self, terms, generation=1, *, state=MemberState.STABLE, member_id="m"):
        """Be in this generation, and own these in terms with these numbers."""
        self._terms = dict(terms)
        self.member_thread.snapshot = MemberSnapshot(
            state=state,
            identity=Identity(generation=generation, member_id=member_id, instance_id=None),
            owned=frozenset(terms),
            terms=dict(terms),
        )

    @property
    def generation(self):
        return self.member_thread.snapshot.identity.generation

    def gain(self, *partitions):
        """A round gives these to the member."""
        self._n_terms += 1
        self._terms |= dict.fromkeys(partitions, self._n_terms)
        self.stand(max(self.generation, 0) + 1)
        self.call(ListenerCall.ASSIGNED, *partitions)

    def lose(self, *partitions):
        """The coordinator has removed the member, which owned these."""
        self.session.drop(partitions, partitions)
        self.stand(-1, self._terms.keys() - set(partitions))
        self.call(ListenerCall.LOST, *partitions)

    def give_up(self, *partitions):
        """The deadline of a hand-over is there: these are given up without its commit."""
        self.session.drop(partitions, ())
        self.stand(self.generation + 1, self._terms.keys() - set(partitions))

    def mark_pending_revocation(self, *partitions):
        self.session.mark_pending_revocation(partitions, lambda: self.answered.append("drained"))

    def call(self, call, *partitions):
        self.session.call(call, partitions, lambda error: self.answered.append((call.value, error)))

    def commit_revoked(self, *partitions):
        """Send the last commit of these."""
        action = self.last_commit(*partitions)
        self.session.commit(action, lambda code: self.answered.append(("committed", code)))

    def last_commit(self, *partitions):
        return actions.Commit(
            token=1,
            resources=partitions,
            generation=self.generation,
            member_id="m",
            instance_id=None,
        )


class FakeAdapter:
    """A client in memory; see :class:`holdfast.members.session.poll_session.PollClientAdapter`.

    It also has what ``holdfast.Consumer`` wants of its own adapter.

    Attributes
    ----------
    calls : list of tuple
        What the session had done, in order: a word and sorted partitions.
    batches : list
        What the next fetches hand out: lists of records, or work that gives one.
    at : dict
        After what was handed out of each partition that is fetched.
    """

    def __init__(self, _settings, listeners):
        self._listeners = listeners
        self.session = None
        self.client = None
        self.pending_starts = SimpleNamespace(assign_known=lambda: None)
        self.calls = []
        self.batches = []
        self.at = {}
        self.paused = set()
        self.sought = []
        self.is_closed = False

    def mark_pending_revocation(self, partitions):
        self.calls.append(("hold back", sorted(partitions)))

    def stop_delivery(self, partitions):
        self.calls.append(("stop_delivery", sorted(partitions)))

    def stop_fetching(self, partitions):
        if partitions:
            self.calls.append(("drop", sorted(partitions)))
        for tp in partitions:
            self.at.pop(tp, None)

    def positions(self, partitions):
        return {tp: OffsetToCommit(self.at[tp]) for tp in partitions if tp in self.at}

    def raise_error(self):
        """No partition fails here."""

    def first_in_flight(self, result):
        found = {}
        for record in result:
            found.setdefault(record.partition, OffsetToCommit(record.offset))
        return found

    def has_callback(self, call):
        return self._listeners()(call) is not None

    def notify(self, notification):
        work = self._listeners()(notification.call)
        if work is None:
            return None

        def noted(partitions):
            self.calls.append((notification.call.value, partitions))
            return work(partitions)

        return notification(noted, notification.in_order())

    def apply_assignment(self, notification, *, should_report):
        error = self.notify(notification) if should_report else None
        stands = self.session.request_committed(notification.resources).result()
        self.session.subscription_state.start_at_committed(stands)
        self.at |= {tp: max(at, 0) for tp, at in stands.items()}
        return error

    # What holdfast.Consumer wants

    def is_fetching(self):
        return True

    def fetch(self, limit, wait_s):
        found = self.batches.pop(0) if self.batches else []
        found = found() if callable(found) else found
        for record in found:
            self.at[record.partition] = record.offset + 1
        return found

    def position(self, tp):
        return self.at.get(tp)

    def start_offsets(self, partitions):
        return {tp: StartOffset(0) for tp in partitions}

    def seek(self, tp, offset):
        self.sought.append((tp, offset))

    def pause(self, partitions):
        self.paused.update(partitions)

    def resume(self, partitions):
        self.paused.difference_update(partitions)

    def close(self):
        self.is_closed = True


def make_session(settings, adapter, traits):
    """Make a member over ``adapter``, and its session."""
    membership = Membership(settings, assignors_of(settings))
    session = adapter.session = PollSession(membership, adapter, traits, InFlight())
    membership.runtime = member = Member(session)
    return member, session


def make_member(listener=None, *, traits=None, **keys):
    """Make a member whose client is in memory, and its session."""
    settings = settings_of(**keys)
    owner = listener or Listener()
    adapter = FakeAdapter(settings, weakref.WeakMethod(owner.listener_for))
    adapter.owner = owner  # as long as the adapter
    traits = traits or ClientTraits(reports_empty_changes=True, error_stops_commit=True)
    return make_session(settings, adapter, traits)

"""The calls of holdfast.Consumer: their effects on a session, their errors, their end."""

from __future__ import annotations

import signal
import threading
from functools import partial
from types import SimpleNamespace

import pytest
from tests.members.configured import NEEDED, keys
from tests.members.fake_member import FakeAdapter, Listener, Member, Record

from holdfast import Consumer
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import LeaveRequested, ListenerCall, RejoinRequested
from holdfast.errors import ClientError, LocalProtocolError, RemoteProtocolError
from holdfast.members.session.membership import Membership

A, B = ("t", 0), ("t", 1)
LOST = "t-0 had been lost since"
FENCED = RemoteProtocolError("fenced", error_code=ErrorCode.FENCED_INSTANCE_ID)


@pytest.fixture
def make(monkeypatch):
    """Make a consumer whose member owns t-0, at offset 4, and whose hands are in memory."""
    unconnected = partial(Membership, connect=lambda _: None)
    monkeypatch.setattr("holdfast.members.consumer.Membership", unconnected)
    monkeypatch.setattr("holdfast.members.consumer.ConsumerAdapter", FakeAdapter)
    monkeypatch.setattr(
        "holdfast.members.runtime.member_runtime.MemberRuntime",
        lambda _settings, _assignors, session, _connections: Member(session),
    )

    def make(listener=None, **words):
        consumer = Consumer({**NEEDED, "enable.auto.commit": False, **keys(**words)})
        return consumer, begin(consumer, listener)

    return make


def begin(consumer, listener=None):
    """Subscribe; return the member, which owns t-0."""
    consumer.subscribe(["t"], listener)
    member = consumer._session.membership.runtime
    member.gain(A)
    consumer.poll(0)
    member.session.adapter.at[A] = 4
    return member


@pytest.fixture
def made(make):
    return make()


@pytest.fixture
def consumer(made):
    return made[0]


@pytest.fixture
def member(made):
    return made[1]


def records(*offsets):
    return [Record(A, at) for at in offsets]


def commits_nothing(member):
    return member.coordinator.sent == []


# Commits


@pytest.mark.parametrize("offsets", [None, {A: 4}])
def test_a_commit_waits_until_it_is_done(consumer, member, offsets):
    member.coordinator.answers = [ErrorCode.REBALANCE_IN_PROGRESS, 0]
    consumer.commit(offsets)
    assert member.coordinator.commits == [({A: 4}, 1)] * 2


def test_a_commit_raises_why_it_was_refused(consumer, member):
    member.coordinator.answers = [ErrorCode.UNKNOWN_MEMBER_ID, 0]
    with pytest.raises(RemoteProtocolError, match="UNKNOWN_MEMBER_ID"):
        consumer.commit()
    with pytest.raises(LocalProtocolError, match="t-1 is not this member's in generation 1"):
        consumer.commit({B: 6})


@pytest.mark.parametrize("offsets", [None, {A: 4}])
def test_a_commit_is_notified_of_a_loss_that_nobody_has_noted(consumer, member, offsets):
    member.lose(A)
    with pytest.raises(RemoteProtocolError, match=LOST):
        consumer.commit(offsets)
    assert commits_nothing(member)


@pytest.mark.parametrize(("said", "kind"), [(0, None), (25, RemoteProtocolError)])
def test_a_commit_that_nobody_waits_for_tells_how_it_ended(consumer, member, said, kind):
    told = []
    member.coordinator.answers = [said]
    consumer.commit_async(on_commit=lambda offsets, error: told.append((offsets, type(error))))
    assert told == [], "a later call of the application tells it"
    consumer.poll(0)
    assert told == [({A: 4}, kind or type(None))]


def test_a_seek_of_what_was_lost_since_the_last_poll_is_refused(consumer, member):
    member.lose(A)
    with pytest.raises(RemoteProtocolError, match=LOST):
        consumer.seek(A, 3)
    member.gain(A)
    consumer.poll(0)
    consumer.seek(A, 3)
    assert member.session.adapter.sought == [(A, 3)]


# Callbacks, failures


def test_a_listener_without_a_callback_for_losses_is_notified_of_a_revocation(make):
    listener = Listener(revoked=None)
    consumer, member = make(listener)
    member.lose(A)
    consumer.poll(0)
    assert listener.heard == [("revoked", [A])]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_error_of_a_callback_is_the_pollers(make, error):
    """Every callback that is due runs first; then the poll raises, and the next one goes on."""

    def fail(_):
        raise error

    listener = Listener(revoked=fail)
    consumer, member = make(listener)
    for _ in range(2):
        member.call(ListenerCall.REVOKED, A)
    member.session.adapter.batches = [records(4)]
    with pytest.raises(error):
        consumer.poll(0)
    assert listener.heard == [("revoked", [A])] * 2
    assert member.answered[-1] == ("revoked", f"{error.__name__}: ")
    assert consumer.poll(0) == records(4)


@pytest.mark.parametrize(
    "call",
    [
        Consumer.metrics,
        Consumer.assignment,
        Consumer.commit,
        Consumer.paused,
        lambda consumer: consumer.seek(A, 1),
        lambda consumer: consumer.position(A),
    ],
)
def test_after_a_failure_only_a_poll_runs_callbacks(make, call):
    """The others may be called from the thread that has to run them, as on an event loop."""
    listener = Listener(lost=None)
    consumer, member = make(listener)
    member.lose(A)
    member.member_thread.failure = FENCED
    with pytest.raises(RemoteProtocolError, match="fenced"):
        call(consumer)
    assert listener.heard == []
    with pytest.raises(RemoteProtocolError, match="fenced"):
        consumer.poll()
    assert listener.heard == [("lost", [A])]


def test_a_round_can_be_asked_for(consumer, member):
    consumer.enforce_rebalance()
    consumer.enforce_rebalance("new lags")
    assert member.member_thread.posted[-2:] == [
        RejoinRequested("requested by the application"),
        RejoinRequested("new lags"),
    ]
    consumer.close()
    with pytest.raises(ClientError, match="closed"):
        consumer.enforce_rebalance()


# The end: what is committed


def commits_of_a_close(member):
    """What the close has committed, at last or before it left."""
    return [offsets for offsets, _ in member.coordinator.commits]


def automatic(make):
    """A consumer that commits by itself; the commits of its polls are far away."""
    consumer, member = make(enable_auto_commit=True, auto_commit_interval_ms=3_600_000)
    member.coordinator.answers = [0] * 9
    return consumer, member


@pytest.mark.parametrize("fails", [False, True])
def test_the_list_of_a_block_that_fails_is_not_processed(make, fails):
    consumer, member = automatic(make)
    member.session.adapter.batches = [records(4, 5)]

    def use():
        with consumer:
            consumer.poll(0)
            if fails:
                raise ValueError("cannot handle this")

    if fails:
        with pytest.raises(ValueError, match="cannot handle"):
            use()
    else:
        use()
    assert commits_of_a_close(member) == [{A: 4 if fails else 6}]
    assert member.member_thread.posted[-1] == LeaveRequested(True)


def test_stop_in_the_loop_counts_its_list_as_processed(make):
    consumer, member = automatic(make)
    member.session.adapter.batches = [records(4), records(5)]
    for _ in consumer:
        consumer.stop()
    consumer.close()
    assert commits_of_a_close(member) == [{A: 5}]


def test_a_close_in_the_loop_does_not_commit_its_list(make):
    """A signal handler cannot know how far the application is."""
    consumer, member = automatic(make)
    member.session.adapter.batches = [records(4)]
    for _ in consumer:
        consumer.close()
    assert commits_of_a_close(member) == [{A: 4}]


def test_what_a_poll_found_while_it_was_closed_is_not_processed(make):
    """The application never gets it. The close happens as soon as the poll is out."""
    consumer, member = automatic(make)
    member.session.adapter.batches = [lambda: consumer.close() or records(4)]
    assert consumer.poll(10.0) == []
    assert commits_of_a_close(member) == [{A: 4}]
    with pytest.raises(ClientError, match="closed"):
        consumer.poll()


def test_a_close_from_another_thread_lets_the_poll_come_out(consumer, member):
    polls = threading.Event()
    member.session.adapter.batches = [lambda: polls.set() or []]
    result = []
    poller = threading.Thread(target=lambda: result.append(consumer.poll(3600.0)))
    poller.start()
    assert polls.wait(30)
    consumer.close(30.0)
    poller.join(30)
    assert result == [[]]


def test_a_list_that_another_thread_may_work_on_is_not_committed(make):
    consumer, member = automatic(make)
    member.session.adapter.batches = [records(4)]
    may_end, has_it = threading.Event(), threading.Event()

    def work():
        consumer.poll(0)
        has_it.set()
        may_end.wait(30)

    poller = threading.Thread(target=work)
    poller.start()
    assert has_it.wait(30)
    consumer.close()
    may_end.set()
    poller.join(30)
    assert commits_of_a_close(member) == [{A: 4}]


# The end: what is raised


@pytest.mark.parametrize("told", [False, True], ids=["silent", "told"])
@pytest.mark.parametrize("automatic", [True, False])
def test_closing_raises_what_nobody_was_told(make, told, automatic):
    listener = Listener(lost=None) if told else None
    consumer, member = make(listener, enable_auto_commit=automatic)
    member.lose(A)
    if told:
        consumer.close()
    else:
        with pytest.raises(RemoteProtocolError, match=LOST):
            consumer.close()
    assert member.is_closed
    assert member.session.adapter.is_closed
    consumer.close()


def test_after_an_unsubscribe_that_raises_a_loss_the_consumer_may_subscribe_again(consumer, member):
    member.lose(A)
    with pytest.raises(RemoteProtocolError, match=LOST):
        consumer.unsubscribe()
    assert member.member_thread.posted[-1] == LeaveRequested(True, process_ends=False)
    consumer.unsubscribe()
    with pytest.raises(LocalProtocolError, match="subscribe"):
        consumer.commit()
    again = begin(consumer)
    again.coordinator.answers = [0]
    consumer.commit()
    assert again.coordinator.commits == [({A: 4}, 1)]


def test_closing_does_not_hide_the_error_that_ends_the_block(consumer, member):
    member.lose(A)

    def use():
        with consumer:
            raise ValueError("cannot handle this")

    with pytest.raises(ValueError, match="cannot handle"):
        use()
    assert [LOST in line for line in member.logged] == [True]


def test_closing_after_a_failure_that_was_raised_raises_nothing_more(consumer, member):
    member.lose(A)
    member.member_thread.failure = FENCED
    with pytest.raises(RemoteProtocolError, match="fenced"):
        consumer.poll()
    consumer.close()
    assert [LOST in line for line in member.logged] == [True]


def test_an_error_of_a_callback_of_the_close_is_raised_when_all_is_closed(make):
    consumer, member = make(Listener(revoked=lambda _: 1 / 0))
    member.call(ListenerCall.REVOKED, A)
    with pytest.raises(ZeroDivisionError):
        consumer.close()
    assert member.is_closed
    consumer.close()


def test_a_callback_of_the_close_may_commit(make):
    """on_partitions_revoked is where an application commits that does so by hand."""
    consumer, member = make(Listener(revoked=lambda _: consumer.commit()))
    member.coordinator.answers = [0]
    member.member_thread.leaves = lambda: leave(member)
    consumer.close()
    assert member.coordinator.commits == [({A: 4}, 1)]
    with pytest.raises(ClientError, match="closed"):
        consumer.commit()


def test_a_callback_of_the_close_may_not_poll(make):
    consumer, member = make(Listener(revoked=lambda _: consumer.poll()))
    member.member_thread.leaves = lambda: leave(member)
    with pytest.raises(ClientError, match="may commit, but not poll"):
        consumer.close()


def leave(member):
    """The member gives everything up, and is out."""
    member.call(ListenerCall.REVOKED, A)
    member.member_thread.finished.set()


# Stop, and signals


def test_stop_ends_a_poll_that_waits_and_the_iteration(consumer, member):
    member.session.adapter.batches = [lambda: consumer.stop() or []]
    assert consumer.poll(3600.0) == []
    assert list(consumer) == []


def test_a_signal_ends_the_block_at_the_next_poll(make, default_signals):
    consumer, member = automatic(make)
    member.session.adapter.batches = [records(4), records(5)]
    handled = []
    with pytest.raises(SystemExit) as ended, consumer:
        for batch in consumer:
            signal.raise_signal(signal.SIGTERM)
            handled.append(batch)
    assert ended.value.code == 143
    assert handled == [records(4)]
    assert commits_of_a_close(member) == [{A: 5}]


def test_a_signal_in_a_block_that_does_not_poll_again_is_not_forgotten(consumer, default_signals):
    with pytest.raises(KeyboardInterrupt), consumer:
        signal.raise_signal(signal.SIGINT)


def test_signals_may_be_left_to_the_program(default_signals):
    consumer = Consumer({**NEEDED, "holdfast.handle.signals": False})
    with consumer:
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# What is refused before anything is done


@pytest.mark.parametrize(
    "given", [[("t",)], ["t-0"], [object()], [("t", "0")], [SimpleNamespace(topic="t")]]
)
def test_what_is_no_partition_is_refused(consumer, given):
    asking = (consumer.committed, consumer.beginning_offsets, consumer.end_offsets)
    for call in (consumer.pause, consumer.resume, *asking):
        with pytest.raises(LocalProtocolError, match=r"pairs \(topic, partition\)"):
            call(given)
    with pytest.raises(LocalProtocolError, match=r"pairs \(topic, partition\)"):
        consumer.position(given[0])


def test_only_what_is_owned_is_paused(consumer):
    with pytest.raises(LocalProtocolError, match="t-1 is not this member's"):
        consumer.pause([A, B])
    assert consumer.paused() == set()
    consumer.pause([A])
    assert consumer.paused() == {A}


@pytest.mark.parametrize("given", [None, 7, "t", A])
def test_what_is_no_list_of_partitions_is_refused(consumer, given):
    with pytest.raises(LocalProtocolError, match="a list of pairs"):
        consumer.pause(given)


@pytest.mark.parametrize(
    ("topics", "listener", "words"),
    [
        ([], None, "at least one topic name"),
        ([""], None, "at least one topic name"),
        ([1], None, "a topic's name is a str, found 1"),
        (None, None, "a list of topics"),
        ("orders", None, r"a list of topics: \['orders'\]"),
        (["orders"], lambda partitions: None, "a listener is an object with on_partitions"),
    ],
)
def test_what_can_never_be_read_or_called_is_refused(topics, listener, words):
    with pytest.raises(LocalProtocolError, match=words):
        Consumer(NEEDED).subscribe(topics, listener)  # nothing is connected


@pytest.mark.parametrize("given", [None, "1", True, float("nan")])
def test_what_is_no_timeout_is_refused(consumer, given):
    with pytest.raises(LocalProtocolError, match="a number of seconds"):
        consumer.poll(given)


@pytest.mark.parametrize("given", [[A], object(), 7])
def test_what_is_no_mapping_of_offsets_is_refused(consumer, member, given):
    with pytest.raises(LocalProtocolError, match="a mapping from"):
        consumer.commit(given)
    assert commits_nothing(member)


@pytest.mark.parametrize("offset", [-5, -1, True, 1.5, "7", None, 2**63])
def test_what_is_no_offset_is_refused(consumer, member, offset):
    with pytest.raises(LocalProtocolError, match="t-0: an offset is a whole number from 0"):
        consumer.commit({A: offset})
    with pytest.raises(LocalProtocolError, match="t-0: an offset is a whole number from 0"):
        consumer.seek(A, offset)
    assert commits_nothing(member)

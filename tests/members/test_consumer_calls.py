"""The calls of holdfast.Consumer: their effects on a session, their errors, their end."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import pytest
from tests.members.configured import NEEDED, keys
from tests.members.fake_member import FakeAdapter, Listener, Member, Record

from holdfast import Consumer
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import LeaveRequested, RejoinRequested
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.errors import ClientError, LocalProtocolError, RemoteProtocolError
from holdfast.members.session.membership import Membership

SESSION = "holdfast.members.clients.librdkafka.consumer_session"
A, B = ("t", 0), ("t", 1)
LOST = "t-0 had been lost since"
FENCED = RemoteProtocolError("fenced", error_code=ErrorCode.FENCED_INSTANCE_ID)


@pytest.fixture
def make(monkeypatch):
    """Make a consumer whose member owns t-0, at offset 4, and whose hands are in memory."""
    unconnected = partial(Membership, connect=lambda _: None)
    monkeypatch.setattr(f"{SESSION}.Membership", unconnected)
    monkeypatch.setattr(f"{SESSION}.ConsumerAdapter", FakeAdapter)
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


def block(consumer, *, fails):
    with suppress(ValueError), consumer:
        consumer.poll(0)
        if fails:
            raise ValueError("cannot handle this")


def loop(consumer, *, end):
    for _ in consumer:
        end(consumer)
    consumer.close()


def polled_elsewhere(consumer):
    """Another thread may still work on its list when this one closes."""
    has_it, may_end = threading.Event(), threading.Event()

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


@pytest.mark.parametrize(
    ("program", "committed"),
    [
        (partial(block, fails=False), 5),
        (partial(block, fails=True), 4),
        (partial(loop, end=Consumer.stop), 5),
        (partial(loop, end=Consumer.close), 4),  # a handler cannot know how far the loop is
        (polled_elsewhere, 4),
    ],
    ids=["block", "block that fails", "stop in the loop", "close in the loop", "another thread"],
)
def test_the_end_commits_only_what_the_application_has_processed(make, program, committed):
    consumer, member = automatic(make)
    member.session.adapter.batches = [records(4)]
    program(consumer)
    assert commits_of_a_close(member) == [{A: committed}]
    assert member.member_thread.posted[-1] == LeaveRequested(True)


def test_a_list_found_by_a_poll_that_was_closed_is_neither_returned_nor_committed(make):
    consumer, member = automatic(make)
    member.session.adapter.batches = [lambda: consumer.close() or records(4)]
    assert consumer.poll(10.0) == []
    assert commits_of_a_close(member) == [{A: 4}]
    with pytest.raises(ClientError, match="closed"):
        consumer.poll()


@pytest.mark.parametrize("end", [Consumer.close, Consumer.stop])
def test_a_poll_that_waits_on_another_thread_returns(consumer, member, end):
    polls, result = threading.Event(), []
    member.session.adapter.batches = [lambda: polls.set() or []]
    poller = threading.Thread(target=lambda: result.append(consumer.poll(3600.0)), daemon=True)
    poller.start()
    assert polls.wait(30)
    end(consumer)
    poller.join(30)
    assert result == [[]]
    assert list(consumer) == []


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


@pytest.mark.parametrize("error", [ValueError("cannot handle this"), FENCED])
def test_closing_logs_a_loss_and_raises_nothing_where_another_error_was_raised(
    consumer, member, error
):
    member.lose(A)

    def use():
        with consumer:
            if error is not FENCED:
                raise error
            member.member_thread.failure = FENCED
            consumer.poll()

    with pytest.raises(type(error), match=str(error)):
        use()
    consumer.close()
    assert [LOST in line for line in member.logged] == [True]


def test_a_callback_of_the_close_may_commit_but_not_poll_and_its_error_is_raised_at_the_end(make):
    """on_partitions_revoked is where an application commits that does so by hand."""

    def use(_):
        consumer.commit()
        consumer.poll()

    consumer, member = make(Listener(revoked=use))
    member.coordinator.answers = [0]
    member.member_thread.leaves = lambda: leave(member)
    with pytest.raises(ClientError, match="may commit, but not poll"):
        consumer.close()
    assert member.coordinator.commits == [({A: 4}, 1)]
    assert member.is_closed
    consumer.close()


def leave(member):
    """The member gives everything up, and is out."""
    member.call(ListenerCall.REVOKED, A)
    member.member_thread.finished.set()


# Stop, and signals


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

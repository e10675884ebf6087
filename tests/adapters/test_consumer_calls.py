"""holdfast.Consumer around parts that answer as a script says: commits, callbacks, failures."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from holdfast import AsyncConsumer, Consumer
from holdfast.adapters.member.errands import Errands
from holdfast.adapters.member.host import Standing
from holdfast.adapters.records.terms import PartitionTerms
from holdfast.adapters.records.topic_duties import PendingCall
from holdfast.errors import AdapterError, LocalProtocolError, RemoteProtocolError
from holdfast.machine.events import LeaveRequested, RejoinRequested
from holdfast.machine.member.holdings import Identity
from holdfast.machine.states import MemberState

A, B = ("t", 0), ("t", 1)
ILLEGAL_GENERATION = 22
REBALANCE_IN_PROGRESS = 27
UNKNOWN_MEMBER_ID = 25
ILLEGAL_GENERATION = 22


class Parts:
    """Stands for Assembly."""

    def __init__(self):
        self.answers = []
        self.commits = []
        self.reached = {A: 4, B: 6}
        self.polled = []
        self.closing = []
        self.logged = []
        self.counters = SimpleNamespace(add=lambda *words: None)
        self.terms = PartitionTerms()
        self.refused = ()
        self.drains = False
        self.due = []  # callbacks that the member's thread makes, one whenever it catches up
        self.host = SimpleNamespace(
            failure=None,
            over=threading.Event(),
            post=lambda event: None,
            leave=lambda *, returns: self.host.post(LeaveRequested(returns)),
            beat_at=0.0,
            catch_up=self.catch_up,
        )
        self.duties = SimpleNamespace(
            calls=Errands(),
            reconsider=lambda offsets: None,
            refused=lambda terms, offsets: set(self.refused),
            delivery=SimpleNamespace(
                processed=self.processed,
                give_up_waiting=lambda owned: self.closing.append(("given up", set(owned))),
                poll=lambda *words: self.polled.pop(0),
                active=lambda: {A},
                terms=lambda ask: ask(self.terms),
                uncommitted=self.uncommitted,
                to_commit=self.uncommitted,
            ),
        )
        self.stand(1)

    def uncommitted(self, among, handed=False):
        return {tp: at for tp, at in self.reached.items() if tp in among}

    def lose(self, *partitions, told=()):
        """As the member's thread: ``LOST`` is called, of which a callback tells, or an error."""
        uncommitted = dict.fromkeys(partitions, 4)
        self.terms.lose(partitions, uncommitted=uncommitted, told=partitions)
        self.terms.tell_by_error(set(partitions).difference(told))

    def give_up(self, *partitions):
        """As the member's thread at the deadline of a hand-over."""
        uncommitted = dict.fromkeys(partitions, 4)
        self.terms.lose(partitions, uncommitted=uncommitted, told=())

    def note_untold(self, error):
        self.logged.append(str(error))

    def processed(self):
        self.terms.come_back()
        self.closing.append("processed")
        return self.drains

    def catch_up(self, timeout_s):
        if self.due:
            waiting(self, self.due.pop(0))
        return True

    def stand(self, generation, owned=(A,), state=MemberState.STABLE):
        self.host.standing = Standing(
            state=state,
            identity=Identity(generation=generation, member_id="m", instance_id=None),
            owned=frozenset(owned),
            terms=dict.fromkeys(owned, 0),
        )

    def commit(self, offsets, identity):
        self.commits.append((dict(offsets), identity.generation))
        future = Future()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    def close(self):
        pass


CONFIG = {"bootstrap.servers": "h:1", "group.id": "g", "request.timeout.ms": 60_000}


@pytest.fixture
def made():
    consumer = Consumer({**CONFIG, "enable.auto.commit": False})
    consumer._parts = parts = Parts()
    return consumer, parts


def waiting(parts, work):
    parts.duties.calls.put(PendingCall(work, (A,), lambda error: None))


def test_a_commit_takes_what_is_owned(made):
    """A partition that was given up without a commit is no reason to refuse the others."""
    consumer, parts = made
    parts.answers = [0]
    consumer.commit()
    assert parts.commits == [({A: 4}, 1)]
    with pytest.raises(LocalProtocolError, match="t-1 is not this member's"):
        consumer.commit({B: 6})


def test_a_round_can_be_asked_for(made):
    consumer, parts = made
    asked = []
    parts.host.post = asked.append
    consumer.enforce_rebalance()
    consumer.enforce_rebalance("new lags")
    assert asked == [
        RejoinRequested("requested by the application"),
        RejoinRequested("new lags"),
    ]
    closes(parts)
    consumer.close()
    with pytest.raises(AdapterError, match="closed"):
        consumer.enforce_rebalance()


def test_a_commit_is_tried_again_and_runs_no_callback(made):
    """It may come from inside a callback, or from another thread than the one that polls."""
    consumer, parts = made
    ran = []
    waiting(parts, ran.append)
    parts.answers = [REBALANCE_IN_PROGRESS, AdapterError("no answer"), 0]
    consumer.commit()
    assert len(parts.commits) == 3
    assert ran == []


def test_a_commit_that_a_round_overtook_goes_with_the_new_generation(made):
    consumer, parts = made
    parts.answers = [REBALANCE_IN_PROGRESS, 0]
    commit = parts.commit

    def commit_and_go_on(offsets, identity):
        future = commit(offsets, identity)
        parts.stand(2, (A, B))
        return future

    parts.commit = commit_and_go_on
    consumer.commit()
    assert parts.commits == [({A: 4}, 1), ({A: 4, B: 6}, 2)]


def test_a_commit_refused_for_an_old_generation_goes_with_the_new_one(made):
    """Whether the answer of the round is still on the way, or has just come."""
    consumer, parts = made
    parts.answers = [ILLEGAL_GENERATION, ILLEGAL_GENERATION, 0]
    stands = [lambda: parts.stand(1, state=MemberState.PREPARING_REBALANCE), lambda: parts.stand(2)]
    commit = parts.commit

    def commit_and_go_on(offsets, identity):
        future = commit(offsets, identity)
        if stands:
            stands.pop(0)()
        return future

    parts.commit = commit_and_go_on
    consumer.commit()
    assert [generation for _, generation in parts.commits] == [1, 1, 2]
    parts.answers = [ILLEGAL_GENERATION]
    stands = [lambda: parts.stand(-1, owned=())]
    with pytest.raises(RemoteProtocolError, match="ILLEGAL_GENERATION"):
        consumer.commit()


@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS])
def test_closing_commits_before_it_gives_up_the_round(code):
    """The round is over at the coordinator: only who takes its answer can commit."""
    consumer = Consumer(CONFIG)
    consumer._parts = parts = Parts()
    parts.stand(1, state=MemberState.PREPARING_REBALANCE)
    parts.answers = [code, 0]
    order = []
    commit = parts.commit

    def commit_and_go_on(offsets, identity):
        order.append(identity.generation)
        future = commit(offsets, identity)
        parts.stand(2)
        if not parts.answers:
            parts.reached.clear()
        return future

    def leave(event):
        order.append(type(event).__name__)
        parts.host.over.set()

    parts.commit, parts.host.post = commit_and_go_on, leave
    consumer.close()
    assert order == [1, 2, "LeaveRequested"]


@pytest.mark.parametrize("answer", [UNKNOWN_MEMBER_ID, AdapterError("no answer"), "nothing"])
def test_closing_does_not_wait_for_a_commit_that_cannot_be(answer):
    consumer = Consumer(CONFIG)
    consumer._parts = parts = Parts()
    parts.answers = [answer]
    parts.host.post = lambda event: parts.host.over.set()
    if answer == "nothing":
        parts.commit = lambda offsets, identity: Future()
    consumer.close(timeout=0.05)
    assert parts.host.over.is_set()


def test_a_refused_commit_and_one_without_an_answer(made):
    consumer, parts = made
    parts.answers = [UNKNOWN_MEMBER_ID]
    with pytest.raises(RemoteProtocolError) as caught:
        consumer.commit()
    assert caught.value.error_code == UNKNOWN_MEMBER_ID
    parts.answers = [RemoteProtocolError("not authorised", error_code=30)]
    with pytest.raises(RemoteProtocolError, match="not authorised"):
        consumer.commit()
    consumer._commits._timeout_s = 0.0
    parts.answers = [AdapterError("no answer")]
    with pytest.raises(AdapterError, match="not answered in time"):
        consumer.commit()


def test_a_commit_ends_with_its_member(made):
    consumer, parts = made
    parts.answers = [REBALANCE_IN_PROGRESS]
    commit = parts.commit

    def commit_and_fail(offsets, identity):
        parts.host.failure = RemoteProtocolError("fenced", error_code=82)
        parts.host.over.set()
        return commit(offsets, identity)

    parts.commit = commit_and_fail
    with pytest.raises(RemoteProtocolError, match="fenced"):
        consumer.commit()


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
def test_after_a_failure_only_a_poll_runs_callbacks(made, call):
    """The others may be called from the thread that has to run them, as on an event loop."""
    consumer, parts = made
    ran = []
    parts.host.failure = RemoteProtocolError("fenced", error_code=82)
    waiting(parts, ran.append)
    with pytest.raises(RemoteProtocolError, match="fenced"):
        call(consumer)
    assert ran == []
    with pytest.raises(RemoteProtocolError, match="fenced"):
        consumer.poll()
    assert ran == [[A]]


def test_callbacks_of_a_hand_over_that_waited_for_a_poll_come_before_its_records(made):
    """One is queued, the next is made when that is over: both before the next batch is out."""
    consumer, parts = made
    order = []
    parts.due = [lambda partitions: order.append("assigned"), lambda ps: order.append("revoked")]
    parts.polled = [["a"], ["b"]]
    poll = parts.duties.delivery.poll
    parts.duties.delivery.poll = lambda *words: order.append("records") or poll(*words)
    assert consumer.poll(1) == ["a"]
    assert order == ["records"]  # nothing waited: nobody is asked
    parts.drains = True
    assert consumer.poll(1) == ["b"]
    assert order == ["records", "assigned", "revoked", "records"]


def test_what_a_callback_interrupts_is_raised_by_the_poll(made):
    consumer, parts = made
    said = []

    def interrupt(partitions):
        raise KeyboardInterrupt

    parts.duties.calls.put(PendingCall(interrupt, (A,), said.append))
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(0)
    assert said == ["KeyboardInterrupt: "]
    parts.polled = [["record"]]
    assert consumer.poll(0) == ["record"]


@pytest.mark.parametrize("fails", [False, True])
def test_the_list_of_a_block_that_fails_is_not_processed(made, fails):
    consumer, parts = made
    parts.host.post = lambda event: parts.host.over.set()

    def use():
        with consumer:
            if fails:
                raise ValueError("cannot handle this")

    if fails:
        with pytest.raises(ValueError, match="cannot handle"):
            use()
        assert parts.closing == [("given up", {A}), "processed"]
    else:
        use()
        assert parts.closing == ["processed"]


# What the application holds and cannot commit any more


LOST = "t-0 had been lost since"


@pytest.mark.parametrize("offsets", [None, {A: 4}])
def test_a_commit_after_a_loss_is_refused_although_the_partition_is_back(made, offsets):
    consumer, parts = made
    parts.lose(A)
    parts.refused = (A,)
    with pytest.raises(RemoteProtocolError, match=LOST) as caught:
        consumer.commit(offsets)
    assert caught.value.error_code == UNKNOWN_MEMBER_ID
    assert parts.commits == []


@pytest.mark.parametrize("offsets", [None, {A: 4}])
def test_a_commit_of_what_was_given_up_at_a_deadline_names_the_generation(made, offsets):
    consumer, parts = made
    parts.give_up(A)
    parts.refused = (A,)
    with pytest.raises(RemoteProtocolError, match="t-0 had been given up since") as caught:
        consumer.commit(offsets)
    assert caught.value.error_code == ILLEGAL_GENERATION
    parts.lose(B)
    with pytest.raises(RemoteProtocolError) as caught:
        consumer.commit()  # of both: the membership has ended since
    assert caught.value.error_code == UNKNOWN_MEMBER_ID
    assert parts.commits == []


@pytest.mark.parametrize("told", [(), (A,)])
def test_a_commit_is_refused_until_the_application_was_told_and_polls(made, told):
    """By the callback if it comes, else by the error and a poll after it."""
    consumer, parts = made
    parts.lose(A, told=told)
    parts.polled = [["r"]] * 3
    consumer.poll()
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match=LOST):
            consumer.commit()
    if told:
        consumer.poll()
        with pytest.raises(RemoteProtocolError, match=LOST):
            consumer.commit()
        parts.terms.tell([A])
    else:
        consumer.poll()
    parts.answers = [0]
    consumer.commit()
    assert parts.commits == [({A: 4}, 1)]


def test_who_was_told_by_the_coordinator_is_not_told_again(made):
    """Right after it wakes, a member does not know yet that it was removed."""
    consumer, parts = made
    parts.answers = [UNKNOWN_MEMBER_ID, 0]
    commit = parts.commit

    def commit_and_lose(offsets, identity):
        if len(parts.answers) == 2:
            parts.lose(A)
        return commit(offsets, identity)

    parts.commit = commit_and_lose
    with pytest.raises(RemoteProtocolError, match="UNKNOWN_MEMBER_ID"):
        consumer.commit()
    with pytest.raises(RemoteProtocolError, match=LOST):
        consumer.commit()
    parts.polled = [["r"]]
    consumer.poll()
    consumer.commit()
    assert len(parts.commits) == 2


@pytest.mark.parametrize("told", [(), (A,)])
@pytest.mark.parametrize("auto", [True, False])
def test_closing_raises_what_nobody_was_told(told, auto):
    consumer = Consumer({**CONFIG, "enable.auto.commit": auto})
    consumer._parts = parts = Parts()
    parts.reached.clear()
    parts.lose(A, told=told)
    parts.host.post = lambda event: parts.host.over.set()
    if told:
        waiting(parts, parts.terms.tell)
        consumer.close()
        return
    with pytest.raises(RemoteProtocolError, match=LOST):
        consumer.close()
    consumer.close()


def test_a_callback_of_the_close_may_commit(made):
    """on_partitions_revoked is where an application commits that does so by hand."""
    consumer, parts = made
    errors = []
    for work in (consumer.commit, consumer.poll):
        call = PendingCall(lambda partitions, work=work: work(), (A,), errors.append)
        parts.duties.calls.put(call)
    parts.host.post = lambda event: parts.host.over.set()
    parts.answers = [0]
    with pytest.raises(AdapterError, match="may commit, and not poll"):
        consumer.close()
    assert errors == [
        None,
        "AdapterError: the consumer is closing: a callback may commit, and not poll",
    ]
    assert parts.commits == [({A: 4}, 1)]
    with pytest.raises(AdapterError, match="closed"):
        consumer.commit()


def test_after_an_unsubscribe_that_raises_a_loss_the_consumer_may_subscribe_again(made):
    consumer, parts = made
    parts.lose(A)
    parts.host.post = lambda event: parts.host.over.set()
    with pytest.raises(RemoteProtocolError, match=LOST):
        consumer.unsubscribe()
    consumer.unsubscribe()
    with pytest.raises(LocalProtocolError, match="subscribe"):
        consumer.commit()


def test_closing_does_not_hide_the_error_that_ends_the_block(made):
    consumer, parts = made
    parts.host.post = lambda event: parts.host.over.set()
    parts.lose(A)

    def use():
        with consumer:
            raise ValueError("cannot handle this")

    with pytest.raises(ValueError, match="cannot handle"):
        use()
    assert [LOST in line for line in parts.logged] == [True]


def test_closing_after_a_failure_that_was_raised_raises_nothing_more(made):
    consumer, parts = made
    parts.host.failure = RemoteProtocolError("fenced", error_code=82)
    parts.lose(A)
    with pytest.raises(RemoteProtocolError, match="fenced"):
        consumer.poll()
    consumer.close()
    assert len(parts.logged) == 1


@pytest.mark.parametrize("told", [(), (A,)])
def test_the_loop_writes_to_the_log_what_it_can_commit_no_more(told):
    """A callback tells of it instead, if there is one."""
    consumer = Consumer(CONFIG)
    consumer._parts = parts = Parts()
    parts.reached.clear()
    parts.polled = [["r"]] * 2
    parts.lose(A, told=told)
    for _ in range(2):
        assert consumer.poll() == ["r"]
    assert [LOST in line for line in parts.logged] == ([] if told else [True])


def test_a_seek_of_what_was_lost_since_the_last_poll_is_refused(made):
    consumer, parts = made
    sought = []
    parts.duties.seek = lambda *where: sought.append(where)
    parts.lose(A)
    with pytest.raises(RemoteProtocolError, match=LOST):
        consumer.seek(A, 3)
    parts.polled = [["r"]]
    consumer.poll()
    consumer.seek(A, 3)
    assert sought == [(A, 3)]


def closes(parts):
    parts.host.post = lambda event: parts.host.over.set()
    return parts


def test_an_error_of_a_callback_is_the_pollers(made):
    """Every callback that is due runs first; then the poll raises, and the next one goes on."""
    consumer, parts = made
    ran = []
    waiting(parts, lambda partitions: 1 / 0)
    waiting(parts, ran.append)
    parts.polled = [["record"]]
    with pytest.raises(ZeroDivisionError):
        consumer.poll(0.0)
    assert len(ran) == 1
    assert consumer.poll(0.0) == ["record"]


def test_an_error_of_a_callback_of_the_close_is_raised_when_all_is_closed(made):
    consumer, parts = made
    closed = []
    closes(parts).close = lambda: closed.append(True)
    waiting(parts, lambda partitions: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        consumer.close()
    assert closed
    consumer.close()


def test_stop_ends_a_poll_that_waits_and_the_iteration(made):
    consumer, parts = made
    parts.duties.delivery.poll = lambda *words: consumer.stop() or []
    assert consumer.poll(3600.0) == []
    assert list(consumer) == []


def test_stop_in_the_loop_counts_its_list_as_processed(made):
    consumer, parts = made
    closes(parts).polled = [["r1"], ["r2"]]
    for _ in consumer:
        consumer.stop()
    consumer.close()
    assert parts.polled == [["r2"]]
    assert ("given up", {A}) not in parts.closing


def test_a_close_in_the_loop_does_not_commit_its_list(made):
    """A signal handler cannot know how far the application is."""
    consumer, parts = made
    closes(parts).polled = [["r1"]]
    for _ in consumer:
        consumer.close()
    assert ("given up", {A}) in parts.closing


def test_what_a_poll_found_while_it_was_closed_is_not_processed(made):
    """The application never gets it. The close happens as soon as the poll is out."""
    consumer, parts = made
    closes(parts).duties.delivery.poll = lambda *words: consumer.close() or ["r1"]
    assert consumer.poll(10.0) == []
    assert parts.closing[-2:] == [("given up", {A}), "processed"]
    with pytest.raises(AdapterError, match="closed"):
        consumer.poll()


def test_a_close_from_another_thread_lets_the_poll_come_out(made):
    consumer, parts = made
    polls = threading.Event()
    closes(parts).duties.delivery.poll = lambda *words: polls.set() or []
    result = []
    poller = threading.Thread(target=lambda: result.append(consumer.poll(3600.0)))
    poller.start()
    assert polls.wait(30)
    consumer.close(30.0)
    poller.join(30)
    assert result == [[]]


def test_a_list_that_another_thread_may_work_on_is_not_committed(made):
    consumer, parts = made
    closes(parts).polled = [["r1"]]
    may_end = threading.Event()
    has_it = threading.Event()

    def work():
        consumer.poll(0.0)
        has_it.set()
        may_end.wait(30)

    poller = threading.Thread(target=work)
    poller.start()
    assert has_it.wait(30)
    consumer.close()
    may_end.set()
    poller.join(30)
    assert ("given up", {A}) in parts.closing


def test_a_signal_ends_the_block_at_the_next_poll(made, default_signals):
    consumer, parts = made
    closes(parts).polled = [["r1"], ["r2"]]
    handled = []
    with pytest.raises(SystemExit) as ended, consumer:
        for batch in consumer:
            signal.raise_signal(signal.SIGTERM)
            handled.append(batch)
    assert ended.value.code == 143
    assert handled == [["r1"]]
    assert parts.polled == [["r2"]]
    assert "processed" in parts.closing


def test_a_signal_in_a_block_that_does_not_poll_again_is_not_forgotten(made, default_signals):
    consumer, parts = made
    closes(parts)
    with pytest.raises(KeyboardInterrupt), consumer:
        signal.raise_signal(signal.SIGINT)


def test_signals_may_be_left_to_the_program(default_signals):
    consumer = Consumer({**CONFIG, "holdfast.handle.signals": False})
    with consumer:
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    "given", [[("t",)], ["t-0"], [object()], [("t", "0")], [SimpleNamespace(topic="t")]]
)
def test_what_is_no_partition_is_refused(made, given):
    consumer, parts = made
    parts.duties.pause = parts.duties.resume = lambda partitions: pytest.fail("reached")
    asking = (consumer.committed, consumer.beginning_offsets, consumer.end_offsets)
    for call in (consumer.pause, consumer.resume, *asking):
        with pytest.raises(LocalProtocolError, match=r"pairs \(topic, partition\)"):
            call(given)
    with pytest.raises(LocalProtocolError, match=r"pairs \(topic, partition\)"):
        consumer.position(given[0])


def test_only_what_is_owned_is_paused(made):
    consumer, parts = made
    paused = []
    parts.duties.pause = paused.extend
    consumer.pause([A])
    with pytest.raises(LocalProtocolError, match="t-1 is not this member's"):
        consumer.pause([A, B])
    assert paused == [A]


@pytest.mark.parametrize("given", [None, 7, "t", A])
def test_what_is_no_list_of_partitions_is_refused(made, given):
    consumer, _ = made
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
    consumer = Consumer(CONFIG)  # nothing is connected
    with pytest.raises(LocalProtocolError, match=words):
        consumer.subscribe(topics, listener)
    if topics:
        waiting = AsyncConsumer(CONFIG).subscribe(topics, listener)
        with pytest.raises(LocalProtocolError, match=words):
            asyncio.run(waiting)


@pytest.mark.parametrize("given", [None, "1", True, float("nan")])
def test_what_is_no_timeout_is_refused(made, given):
    consumer, _ = made
    with pytest.raises(LocalProtocolError, match="a number of seconds"):
        consumer.poll(given)


@pytest.mark.parametrize("given", [[A], object(), 7])
def test_what_is_no_mapping_of_offsets_is_refused(made, given):
    consumer, parts = made
    with pytest.raises(LocalProtocolError, match="a mapping from"):
        consumer.commit(given)
    assert parts.commits == []


@pytest.mark.parametrize("offset", [-5, -1, True, 1.5, "7", None, 2**63])
def test_what_is_no_offset_is_refused(made, offset):
    consumer, parts = made
    with pytest.raises(LocalProtocolError, match="t-0: an offset is a whole number from 0"):
        consumer.commit({A: offset})
    with pytest.raises(LocalProtocolError, match="t-0: an offset is a whole number from 0"):
        consumer.seek(A, offset)
    assert parts.commits == []

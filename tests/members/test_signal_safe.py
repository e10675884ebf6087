"""A flag, a mailbox and a future, whatever a signal handler interrupts."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from concurrent.futures import Future
from contextlib import suppress

import pytest
from tests.live.waiting import until
from tests.members.interrupts import AtOneStep, in_time

from holdfast.cluster.signal_safe import Flag, Mailbox, SignalSafeFuture, and_then, wait_for_all

SOON_S = 1.0
_NOT_RAISED = ("weakref.py", "_weakrefset.py", "contextlib.py")  # of callbacks, or of the test


class Handler(AtOneStep):
    """Raise at the n-th step of this thread at which a signal's handler may run.

    That is the begin of a function, and the moment after a call of one that is written in C. There
    is no such step inside ``with`` on a lock that is written in C.
    """

    def __init__(self, n):
        self._left = n

    def _step(self, frame, event, arg):
        file = frame.f_code.co_filename
        if event not in ("call", "c_return") or file == __file__ or file.endswith(_NOT_RAISED):
            return
        self._left -= 1
        if self._left < 0:
            self._raise()


def stuck_after(make, use, finish):
    """Steps of ``use`` after whose interruption ``finish``, on another thread, never ends."""
    stuck, n = [], 0
    while True:
        one, handler = make(), Handler(n)
        with suppress(KeyboardInterrupt), handler:
            use(one)
        if not in_time(lambda: finish(one), SOON_S):  # noqa: B023 - it is over by then
            stuck.append(n)
        if not handler.has_raised:
            return stuck, n
        n += 1


def ask(future):
    """All that the application's thread asks a future."""
    future.add_done_callback(lambda _: None)
    future.done()
    with suppress(TimeoutError):
        future.result(0)
    with suppress(TimeoutError):
        future.exception(0)


def test_a_handler_that_raises_leaves_no_lock_of_a_future_held():
    stuck, n_steps = stuck_after(SignalSafeFuture, ask, lambda future: future.set_result(1))
    assert stuck == []
    assert n_steps > 10


@pytest.mark.every
def test_the_librarys_future_has_that_fault():
    """Else :class:`SignalSafeFuture` were for nothing."""

    def ask_and_leave(future):
        with suppress(RuntimeError):  # its condition is left, and was not entered
            ask(future)

    stuck, _ = stuck_after(Future, ask_and_leave, lambda future: future.set_result(1))
    assert stuck


async def seven():
    return 7


def test_a_handler_that_raises_in_a_question_does_not_stop_the_answers(connections):
    """kafka-python's own future keeps its lock then, and its IO thread waits for it."""

    def answered(_):
        assert connections.future(seven).result(SOON_S) == 7

    stuck, n_steps = stuck_after(lambda: None, lambda _: connections.future(seven), answered)
    assert stuck == []
    assert n_steps > 10


def test_connections_are_closed_in_time_whose_io_thread_waits_for_ever(connections, monkeypatch):
    monkeypatch.setattr("holdfast.cluster.connections._END_MS", 200)
    blocked = threading.Lock()
    blocked.acquire()

    async def wait():
        blocked.acquire()

    asked, loop = connections.future(wait), connections._net
    until(lambda: loop._current is not None, "the IO thread waits")
    thread = loop._io_thread
    assert in_time(connections.close, 30)
    assert "closed" in str(asked.exception(0))
    blocked.release()
    thread.join()
    for left in (loop._wakeup_r, loop._wakeup_w):  # the library closes no loop that still turns
        left.close()


def test_a_future_answers_as_the_librarys():
    asked = SignalSafeFuture()
    with pytest.raises(TimeoutError):
        asked.result(0.01)
    threading.Timer(0.05, asked.set_result, [3]).start()
    assert asked.result() == asked.result(0) == 3
    assert asked.exception() is None
    failed = SignalSafeFuture()
    failed.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        failed.result(30)

    async def on_a_loop():
        asked = SignalSafeFuture()
        threading.Timer(0.05, asked.set_result, [4]).start()
        return await asyncio.wrap_future(asked)

    assert asyncio.run(on_a_loop()) == 4


def test_a_future_goes_on_with_a_value_or_with_a_question():
    first, second = SignalSafeFuture(), SignalSafeFuture()
    seen = and_then(first, lambda n: n + 1)
    asked = and_then(first, lambda _: second)
    failed = and_then(first, lambda n: n / 0)
    first.set_result(1)
    assert seen.result(0) == 2
    with pytest.raises(ZeroDivisionError):
        failed.result(0)
    assert not asked.done()
    second.set_exception(ValueError("nobody answers"))
    with pytest.raises(ValueError, match="nobody"):
        asked.result(0)
    with pytest.raises(ValueError, match="nobody"):
        and_then(asked, lambda n: n).result(0)


def test_all_are_waited_for_no_longer_than_asked():
    one, other = SignalSafeFuture(), SignalSafeFuture()
    threading.Timer(0.05, one.set_result, [1]).start()
    wait_for_all([one], 30)
    assert one.done()
    began = time.monotonic()
    wait_for_all([one, other], 0.05)
    assert time.monotonic() - began < SOON_S
    assert not other.done()


def test_a_flag_wakes_all_who_wait():
    flag = Flag()
    assert not flag.is_set()
    assert not flag.wait(0)
    assert not flag.wait(0.01)
    said = []
    threads = [threading.Thread(target=lambda: said.append(flag.wait(30))) for _ in range(4)]
    for thread in threads:
        thread.start()
    flag.set()
    flag.set()
    for thread in threads:
        thread.join(30)
    assert said == [True] * 4
    assert flag.wait()
    assert flag.is_set()


def test_a_handler_may_set_and_wait_whatever_it_interrupts(on_alarm):
    """``threading.Event`` waits for its own lock when a handler interrupts it."""
    flags = [Flag()]

    def fire():
        flags[0].wait(0)
        flags[0].set()
        assert flags[0].wait(30)

    on_alarm(fire, 0.0005, every=0.0005)
    for _ in range(300):
        assert flags[0].wait(30)
        flags[0] = Flag()


class Interrupted:
    """A lock; a handler runs as soon as somebody has it."""

    def __init__(self, lock, handler):
        self.release = lock.release
        self._lock = lock
        self._handler = handler

    def acquire(self, timeout):
        acquired = self._lock.acquire(timeout=timeout)
        if acquired:
            self._handler()
        return acquired


def interrupted_flag(handler):
    """A flag that another thread sets while we wait; the handler has it then."""
    flag = Flag()
    flag._gate = Interrupted(flag._gate, lambda: handler(flag))
    threading.Timer(0.05, flag.set).start()
    return flag


def test_a_flag_is_set_again_while_one_who_waited_wakes():
    """The second ``set`` opens the gate that the one who waited is about to open for the next."""
    flag = interrupted_flag(Flag.set)
    assert flag.wait(30)
    assert flag._gate.acquire(timeout=0)  # it is open


def test_a_handler_that_raises_leaves_no_other_waiting():
    def stop(_):
        raise KeyboardInterrupt

    flag = interrupted_flag(stop)
    with pytest.raises(KeyboardInterrupt):
        flag.wait(30)
    with pytest.raises(KeyboardInterrupt):  # it is open: the next one has it too
        flag._gate.acquire(timeout=0)


# The mailbox


def test_items_come_in_order_and_an_empty_box_says_so():
    box = Mailbox()
    for number in range(5):
        box.put(number)
    assert [box.get(0) for _ in range(5)] == [0, 1, 2, 3, 4]
    for timeout in (0, 0.01):
        with pytest.raises(queue.Empty):
            box.get(timeout)
    box.put(5)
    assert box.get() == 5


def test_a_handler_that_outlasts_the_wait_does_not_make_it_endless(on_alarm):
    """``SimpleQueue.get`` of CPython 3.11 never comes back from this."""
    on_alarm(lambda: time.sleep(0.2), 0.02)
    with pytest.raises(queue.Empty):
        Mailbox().get(0.1)


def test_a_handler_may_put_whatever_it_interrupts(on_alarm):
    box, heard = Mailbox(), 0
    on_alarm(lambda: box.put("alarm"), 0.0005, every=0.0005)
    while heard < 200:
        box.put("ours")
        while box.get(30) != "ours":
            heard += 1


def test_nothing_is_lost_between_threads():
    box, n_writers, n_each = Mailbox(), 4, 2_000

    def write(writer):
        for number in range(n_each):
            box.put((writer, number))

    threads = [threading.Thread(target=write, args=(w,)) for w in range(n_writers)]
    for thread in threads:
        thread.start()
    got = [box.get(30) for _ in range(n_writers * n_each)]
    for thread in threads:
        thread.join()
    for writer in range(n_writers):
        assert [n for w, n in got if w == writer] == list(range(n_each))
    with pytest.raises(queue.Empty):
        box.get(0)

"""One reader, many writers, and signals in between."""

from __future__ import annotations

import queue
import signal
import threading
import time

import pytest

from holdfast.members.member.mailbox import Flag, Mailbox


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

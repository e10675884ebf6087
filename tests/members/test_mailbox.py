"""One reader, many writers, and signals in between."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from holdfast.members.runtime.application_tasks import Mailbox


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

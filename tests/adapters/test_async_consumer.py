"""holdfast.AsyncConsumer around a consumer that answers as a script says."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import threading

import pytest

from holdfast.adapters import async_consumer
from holdfast.adapters.async_consumer import AsyncConsumer, _OnLoop
from holdfast.errors import AdapterError, LocalProtocolError


class Scripted:
    """Stands for holdfast.Consumer: polls hand out what was put there, or wait for it."""

    def __init__(self, config):
        self.batches = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.calls = []
        self.is_seen = True
        self.seen_at_close = None
        self.listener = None
        self.ended_with_error = False
        self.handles_signals = True
        self.is_stopped = False

    def stop(self):
        self.is_stopped = True

    def end_with_error(self):
        self.ended_with_error = True

    def subscribe(self, topics, listener):
        self.calls.append(("subscribe", topics))
        self.listener = listener

    def poll(self, timeout, max_records):
        self.calls.append("poll")
        assert self.may_answer.wait(30)
        return self.batches.pop(0) if self.batches else []

    def close(self, timeout, *, returns):
        self.seen_at_close = self.is_seen and not self.ended_with_error
        self.calls.append(("close", returns))

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, *arguments))
            return name

        return call


@pytest.fixture
def made(monkeypatch):
    """An AsyncConsumer and the consumer within."""
    monkeypatch.setattr(async_consumer, "Consumer", Scripted)
    consumer = AsyncConsumer({})
    yield consumer, consumer._consumer
    consumer._consumer.may_answer.set()


async def cancelled(task):
    """Cancel a task and see that it took notice."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_poll_loses_nothing(made):
    """Its records come with the next poll, and none of them counts as processed before."""
    consumer, inner = made

    async def run():
        inner.batches = [["r1"], ["r2"]]
        inner.may_answer.clear()
        poll = asyncio.create_task(consumer.poll(5))
        while "poll" not in inner.calls:
            await asyncio.sleep(0.01)
        await cancelled(poll)
        inner.may_answer.set()
        assert not inner.is_seen
        first = await consumer.poll(5)
        assert inner.is_seen
        second = await consumer.poll(5)
        await consumer.close()
        return first, second

    assert asyncio.run(run()) == (["r1"], ["r2"])
    assert inner.calls.count("poll") == 2


def test_a_time_out_around_a_poll_loses_nothing(made):
    consumer, inner = made

    async def run():
        inner.batches = [["r1"]]
        inner.may_answer.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.poll(5), 0.05)
        inner.may_answer.set()
        found = await consumer.poll(5)
        await consumer.close()
        return found

    assert asyncio.run(run()) == ["r1"]


def test_closing_after_a_cancelled_poll_tells_that_nobody_saw_its_records(made):
    consumer, inner = made

    async def run():
        inner.batches = [["r1"]]
        inner.may_answer.clear()
        poll = asyncio.create_task(consumer.poll(5))
        while "poll" not in inner.calls:
            await asyncio.sleep(0.01)
        await cancelled(poll)
        inner.may_answer.set()
        await consumer.close(returns=False)

    asyncio.run(run())
    assert inner.seen_at_close is False
    assert inner.calls[-1] == ("close", False)


def test_an_error_in_the_block_tells_that_its_records_are_not_processed(made):
    consumer, inner = made

    async def run():
        inner.batches = [["r1"]]
        async with consumer:
            assert await consumer.poll(5) == ["r1"]
            raise ValueError("cannot handle r1")

    with pytest.raises(ValueError, match="cannot handle"):
        asyncio.run(run())
    assert inner.seen_at_close is False


def test_an_error_of_a_poll_is_raised_once_and_the_next_poll_polls(made):
    consumer, inner = made

    async def run():
        inner.batches = None  # a poll fails on it
        inner.__dict__["poll"] = lambda *_: 1 / 0
        with pytest.raises(ZeroDivisionError):
            await consumer.poll()
        del inner.__dict__["poll"]
        inner.batches = [["r"]]
        assert await consumer.poll() == ["r"]
        await consumer.close()

    asyncio.run(run())


def test_one_task_polls_at_a_time(made):
    consumer, inner = made

    async def run():
        inner.may_answer.clear()
        poll = asyncio.create_task(consumer.poll(5))
        while "poll" not in inner.calls:
            await asyncio.sleep(0.01)
        with pytest.raises(LocalProtocolError, match="another task is polling"):
            await consumer.poll(5)
        await consumer.commit()  # a commit need not wait for the poll
        inner.may_answer.set()
        await poll
        await consumer.close()

    asyncio.run(run())
    assert ("commit", None) in inner.calls


def test_closing_twice_and_a_close_that_was_cancelled(made):
    consumer, inner = made

    async def run():
        inner.may_answer.clear()
        poll = asyncio.create_task(consumer.poll(5))
        while "poll" not in inner.calls:
            await asyncio.sleep(0.01)
        await cancelled(poll)
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        await cancelled(closing)
        inner.may_answer.set()
        await consumer.close()
        await consumer.close()

        with pytest.raises(AdapterError, match="closed"):
            await consumer.commit()

    asyncio.run(run())
    assert [c for c in inner.calls if c[0] == "close"] == [("close", True)]


def test_iteration_yields_no_empty_list_and_ends_with_the_consumer(made):
    consumer, inner = made

    async def run():
        inner.batches = [[], ["a"], [], ["b"]]
        found = []
        async with consumer:
            async for batch in consumer:
                found.append(batch)
                if batch == ["b"]:
                    await consumer.close()
        return found

    assert asyncio.run(run()) == [["a"], ["b"]]


def test_the_other_calls_go_to_the_consumer(made):
    consumer, inner = made

    async def run():
        await consumer.subscribe(["t"])
        assert await consumer.committed([("t", 0)]) == "committed"
        assert await consumer.position(("t", 0)) == "position"
        await consumer.seek(("t", 0), 7)
        await consumer.pause([("t", 0)])
        await consumer.resume([("t", 0)])
        await consumer.unsubscribe()
        assert consumer.assignment() == "assignment"
        assert consumer.metrics() == "metrics"
        await consumer.close()

    asyncio.run(run())
    assert ("seek", ("t", 0), 7) in inner.calls
    assert ("subscribe", ["t"]) in inner.calls


class Both:
    """A listener with one coroutine, one plain method, and one that is missing."""

    def __init__(self):
        self.calls = []

    async def on_partitions_assigned(self, partitions):
        await asyncio.sleep(0)
        self.calls.append(("assigned", partitions, threading.current_thread()))

    def on_partitions_revoked(self, partitions):
        self.calls.append(("revoked", partitions, threading.current_thread()))
        raise KeyError("x")


def test_callbacks_run_on_the_loop_and_raise_where_they_were_called():
    listener = Both()

    async def run():
        on_loop = _OnLoop(listener, asyncio.get_running_loop())
        await asyncio.to_thread(on_loop.on_partitions_assigned, [1])
        with pytest.raises(KeyError):
            await asyncio.to_thread(on_loop.on_partitions_revoked, [1])
        assert not hasattr(on_loop, "on_partitions_lost")  # or its consumer would count on it

    asyncio.run(run())
    assert [(name, parts) for name, parts, _ in listener.calls] == [
        ("assigned", [1]),
        ("revoked", [1]),
    ]
    assert {thread for *_, thread in listener.calls} == {threading.main_thread()}


def test_a_callback_does_not_wait_for_a_loop_that_has_stopped(monkeypatch):
    monkeypatch.setattr(async_consumer, "_LOOK_S", 0.02)
    loop = asyncio.new_event_loop()
    on_loop = _OnLoop(Both(), loop)
    with pytest.raises(concurrent.futures.CancelledError):
        on_loop.on_partitions_assigned([1])
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_a_signal_ends_the_block_at_the_next_poll(made, default_signals):
    """As the consumer within does; a second one cancels what the block waits for."""
    consumer, inner = made
    seen = []

    inner.poll = lambda timeout, max_records: [] if inner.is_stopped else ["r"]

    async def run():
        async with consumer:
            async for batch in consumer:
                seen.append(batch)
                signal.raise_signal(signal.SIGTERM)
                await asyncio.sleep(0.01)
                seen.append("handled")

    with pytest.raises(SystemExit) as ended:
        asyncio.run(run())
    assert ended.value.code == 143
    assert seen == [["r"], "handled"]
    assert ("close", True) in inner.calls
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_second_signal_cancels_the_block(made, default_signals):
    consumer, inner = made

    async def run():
        async with consumer:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0.01)
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(60)

    with pytest.raises(SystemExit) as ended:
        asyncio.run(run())
    assert ended.value.code == 143
    assert inner.seen_at_close is False


def test_a_program_with_a_handler_of_its_own_keeps_it(made, default_signals):
    consumer, _ = made
    heard = []
    old = signal.signal(signal.SIGTERM, lambda *_: heard.append("mine"))
    try:

        async def run():
            async with consumer:
                signal.raise_signal(signal.SIGTERM)
                await asyncio.sleep(0.01)

        asyncio.run(run())
    finally:
        signal.signal(signal.SIGTERM, old)
    assert heard == ["mine"]


def test_stop_ends_the_iteration(made):
    consumer, inner = made
    inner.batches = [["r1"], ["r2"]]

    async def run():
        async for _ in consumer:
            consumer.stop()
        await consumer.close()

    asyncio.run(run())
    assert inner.batches == [["r2"]]

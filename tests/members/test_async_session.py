"""The session of a client on an event loop, through its public interface; the client is a fake."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from tests.members.configured import settings_of
from tests.members.fake_member import FakeAdapter, Member, done
from tests.members.running import PATIENCE_S, on_a_loop

from holdfast.core.machine.shared_values import ListenerCall, OffsetToCommit
from holdfast.members.config.policy import assignors_of
from holdfast.members.session.async_session import AsyncSession
from holdfast.members.session.commits import CommitOrigin
from holdfast.members.session.membership import Membership
from holdfast.members.session.session import ClientTraits

A, B = ("t", 0), ("t", 1)
GENERATION = 3
ASSIGNED, REVOKED, LOST = ListenerCall.ASSIGNED, ListenerCall.REVOKED, ListenerCall.LOST
TRAITS = {"reports_empty_changes": False, "error_stops_commit": False}


class LoopAdapter(FakeAdapter):
    """A client in memory, on a loop."""

    def __init__(self):
        super().__init__(None, None)
        self.listener = None  # takes a notification; a coroutine function

    def has_callback(self, call):
        return self.listener is not None

    def apply_assignment(self, partitions):
        self.calls.append(("assign", sorted(partitions)))

    def start_delivery(self, partitions):
        """The session's order of calls is the tests'; this one follows each of an assignment."""

    async def notify(self, notification):
        self.calls.append((notification.call.value, notification.in_order()))
        if self.listener is not None:
            await self.listener(notification)


class Harness:
    """One session on the loop of the test."""

    def __init__(self, *, traits=None, **keys):
        settings = settings_of(**keys)
        self.membership = Membership(settings, assignors_of(settings))
        self.adapter = LoopAdapter()
        self.answers = []
        self.session = AsyncSession(
            self.membership,
            self.adapter,
            ClientTraits(**TRAITS | (traits or {})),
            asyncio.get_running_loop(),
            {},
        )
        self.membership.runtime = self.member = Member(self.session)
        self.member.coordinator.answers = [0] * 9
        self.member.coordinator.committed = lambda _: self.committed_offsets
        self.own({})

    @property
    def committed(self):
        """What went out, in this generation."""
        assert all(generation == GENERATION for _, generation in self.member.coordinator.commits)
        return [offsets for offsets, _ in self.member.coordinator.commits]

    def own(self, terms):
        self.member.owns(terms, GENERATION)

    def answer(self, word):
        return lambda *_: self.answers.append(word)

    async def duty(self, name, *arguments):
        """The member's thread asks for something; wait until the loop has done what it can."""
        thread = threading.Thread(target=getattr(self.session, name), args=arguments)
        thread.start()
        await asyncio.to_thread(thread.join)
        await turns()

    async def assign(self, terms, committed_offsets=None, at=None):
        """Own these, with places where the group has committed and positions of the client."""
        self.own({**self.membership.snapshot.terms, **terms})
        await self.duty("call", ASSIGNED, tuple(terms), self.answer("assigned"))
        self.committed_offsets = done(committed_offsets or dict.fromkeys(terms, -1))
        await self.session.committed_offsets(list(terms))
        self.adapter.at.update(at or {})
        self.session.record_positions()

    async def lose(self, *partitions):
        terms = self.membership.snapshot.terms
        await self.duty("drop", partitions, partitions)
        self.own({tp: n for tp, n in terms.items() if tp not in partitions})
        await self.duty("call", LOST, partitions, self.answer("lost"))

    async def commit_revoked(self, *partitions):
        await self.duty("commit", self.member.last_commit(*partitions), self.answers.append)

    def commit(self, offsets, asked=CommitOrigin.NAMED):
        sent = self.session.commits.commit_async(
            {tp: OffsetToCommit(at) for tp, at in offsets.items()}, asked, timeout_s=PATIENCE_S
        )
        return sent.result(PATIENCE_S)


async def turns():
    for _ in range(20):
        await asyncio.sleep(0)


# Hand-overs


@on_a_loop
async def test_what_is_not_subscribed_to_any_more_is_processed():
    """An application that asks for single partitions never asks for those again."""
    s = Harness()
    old, new = ("old", 0), ("new", 0)
    s.session.in_flight.update({old: 3, new: 4})
    await s.duty("mark_pending_revocation", (old,), s.answer("old"))
    await s.duty("mark_pending_revocation", (new,), s.answer("new"))
    s.session.forget_unsubscribed({"new"})
    assert s.answers == ["old"]
    assert s.session.in_flight == {new: 4}


@on_a_loop
async def test_what_is_lost_is_not_waited_for():
    s = Harness()
    await s.assign({A: 1}, at={A: 5})
    s.session.in_flight[A] = 3
    await s.duty("mark_pending_revocation", (A,), s.answer("drained"))
    await s.lose(A)
    assert "drained" in s.answers


# Callbacks


@pytest.mark.parametrize("begins_first", [True, False])
@on_a_loop
async def test_a_callback_that_is_cancelled_is_answered(begins_first):
    """A program that ends cancels all tasks, also one that has not begun."""
    s = Harness()

    async def listener(notification):
        await asyncio.Event().wait()

    s.adapter.listener = listener
    before_it = asyncio.all_tasks()
    s.session.call(REVOKED, (A,), s.answer("over"))
    s.session.run_due_jobs()
    if begins_first:
        await turns()
    (task,) = asyncio.all_tasks() - before_it
    task.cancel()
    await turns()
    assert s.answers == ["over"]


@on_a_loop
async def test_an_application_that_leaves_hears_nothing_more_if_its_client_wants_so():
    s = Harness(traits={"reports_on_close": False})
    await s.assign({A: 1})
    s.membership.leave(returns=True)
    await s.duty("call", REVOKED, (A,), s.answer("over"))
    assert s.answers == ["assigned", "over"]
    assert [word for word, _ in s.adapter.calls] == ["assign", "assigned", "drop"]


# Losses


@on_a_loop
async def test_what_is_lost_is_hidden_before_its_callback_is_over():
    s = Harness()
    await s.assign({A: 1}, at={A: 5})

    async def listener(notification):
        await asyncio.Event().wait()

    s.adapter.listener = listener
    await s.lose(A)
    assert s.adapter.calls[-2:] == [("stop_delivery", [A]), ("lost", [A])]
    assert "lost" not in s.answers
    s.session.stop_callbacks()
    await turns()
    assert "lost" in s.answers


@on_a_loop
async def test_a_partition_of_which_nothing_was_handed_out_is_lost_without_a_word():
    """It has a position, where nothing stands committed: the end, say."""
    s = Harness()
    await s.assign({A: 1})
    s.session.subscription_state.start_at_reset({A: 30})
    s.adapter.at[A] = 30
    await s.lose(A)
    s.commit({}, CommitOrigin.ALL)


@on_a_loop
async def test_an_answer_for_an_earlier_term_is_no_place_to_start():
    """Another member may have read on, and committed, between the two terms."""
    s = Harness()
    await s.assign({A: 1}, committed_offsets={A: 2})
    s.committed_offsets = Future()
    asking = asyncio.create_task(s.session.committed_offsets([A]))
    await turns()
    s.own({A: 2})
    s.committed_offsets.set_result({A: 5})
    assert await asking is None
    s.committed_offsets = done({A: 7})
    assert await s.session.committed_offsets([A]) == {A: 7}


# Leaving


# Interruptions, and a loop that has ended


def harness_on_new_loop():
    async def make():
        return Harness()

    loop = asyncio.new_event_loop()
    return loop, loop.run_until_complete(make())


def test_a_job_that_is_interrupted_is_done_again():
    loop, s = harness_on_new_loop()
    mark_pending_revocation, n = s.adapter.mark_pending_revocation, []

    def interrupted(partitions):
        n.append(1)
        if len(n) == 1:
            raise KeyboardInterrupt
        mark_pending_revocation(partitions)

    s.adapter.mark_pending_revocation = interrupted
    s.session.mark_pending_revocation((A,), s.answer("drained"))
    s.session.call(REVOKED, (A,), s.answer("revoked"))
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(turns())
    assert s.answers == []
    loop.run_until_complete(turns())
    assert s.answers == ["drained", "revoked"]
    assert [word for word, _ in s.adapter.calls] == ["hold back", "revoked", "drop"]
    loop.close()


def test_a_closed_loop_answers_at_once():
    loop, s = harness_on_new_loop()
    loop.close()
    s.session.mark_pending_revocation((A,), s.answer("drained"))
    s.session.drop((A,), (A,))
    s.session.call(LOST, (A,), s.answer("lost"))
    s.session.commit(SimpleNamespace(resources=(A,)), s.answers.append)
    assert s.answers == ["drained", "lost", -1]

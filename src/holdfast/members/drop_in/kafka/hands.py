"""kafka-python's ``SubscriptionState`` in the hands of a seat: what it has is what is fetched.

**Rules.** The assignment changes on the thread of the application's calls alone. What is held back,
or lost, is marked as given up: kafka-python hands out nothing of it, and keeps its position.

An eager member gives everything up in every round and gets most of it back. As with kafka-python's
own coordinator, what comes back goes on where it was: it is *parked* between the two callbacks. It
goes on only in the very next generation, because nobody else can have had it then. In any other
one it begins where the group has committed.

References: KIP-429; kafka-python's ConsumerCoordinator, ``_on_join_complete_async``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from kafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.core.machine.callbacks import ListenerCall
from holdfast.core.model.partitions import Resource
from holdfast.members.drop_in.kafka.starts import MemberStarts
from holdfast.members.member.offsets import Offsets, OffsetToCommit
from holdfast.members.seat.hands import Callback, before
from holdfast.members.seat.seat import Seat


class SubscriptionHands:
    """See :class:`~holdfast.members.seat.hands.Hands`.

    Parameters
    ----------
    subscription : kafka.consumer.subscription_state.SubscriptionState
        The consumer's.
    run : callable
        Runs a coroutine function with its arguments on kafka-python's loop, and waits.
    """

    def __init__(self, subscription: Any, run: Callable[..., object]):
        self._subscription = subscription
        self._run_coroutine = run
        self.starts = MemberStarts(subscription)
        self._held_back: set[Resource] = set()
        self._hidden: set[Resource] = set()  # lost; the member's thread adds to it
        self._parked: set[Resource] = set()
        self._parked_in = -1  # generation
        self.seat: Seat

    # Questions

    def positions(self, partitions: Collection[Resource]) -> Offsets:
        consumed = ours(self._subscription.all_consumed_offsets())
        return {tp: at for tp, at in consumed.items() if tp in partitions}

    def processed(self, positions: Offsets, in_hand: Offsets) -> Offsets:
        return before(positions, in_hand)

    def firsts(self, held: Any) -> Offsets:
        """See :class:`~holdfast.members.seat.hands.Hands`; lists, or the record of an iterator."""
        records = held.values() if isinstance(held, dict) else [(held,)] if held else ()
        return {(r[0].topic, r[0].partition): OffsetToCommit(r[0].offset) for r in records}

    # Changes

    def hold_back(self, partitions: Collection[Resource]) -> None:
        self._held_back.update(partitions)
        self._subscription.mark_pending_revocation(theirs(partitions))

    def hide(self, partitions: Collection[Resource]) -> None:
        self._hidden.update(partitions)
        self._subscription.mark_pending_revocation(theirs(partitions))

    def drop(self, partitions: Collection[Resource]) -> None:
        """See :class:`~holdfast.members.seat.hands.Hands`; what is parked may come back."""
        gone = set(partitions) - (self._parked - self._hidden)
        self._keep(self._assigned() - gone)
        for noted in (self._held_back, self._hidden, self._parked):
            noted.difference_update(gone)

    def _assigned(self) -> set[Resource]:
        return set(map(tuple, self._subscription.assigned_partitions()))

    def _keep(self, kept: Collection[Resource]) -> None:
        """Have exactly these, and hand out of them what is not being given up."""
        if not self._subscription.partitions_auto_assigned():
            return
        topics = self._subscription.subscription or ()
        self._subscription.assign_from_subscribed(theirs(tp for tp in kept if tp[0] in topics))
        self._subscription.mark_pending_revocation(theirs([*self._held_back, *self._hidden]))

    # Callbacks

    def hears(self, call: ListenerCall) -> bool:
        """See :class:`~holdfast.members.seat.hands.Hands`; kafka-python's listener has all."""
        return self._subscription.rebalance_listener is not None

    def tell(self, callback: Callback) -> BaseException | None:
        error = self._run(callback)
        if callback.call is ListenerCall.REVOKED and not self.seat.is_cooperative:
            self._parked = (self._assigned() & callback.resources) - self._hidden
            self._parked_in = self._generation()
        return error

    def assigned(self, callback: Callback, *, is_news: bool) -> BaseException | None:
        if not callback.has_begun:
            self._take(callback.resources)
        return self._run(callback) if is_news else None

    def _take(self, resources: frozenset[Resource]) -> None:
        self.starts.forget()  # what was asked before may be older than the last owner's commit
        if self._parked and self._generation() != self._parked_in + 1:
            self._keep(self._assigned() - self._parked)
        stays = self._assigned()
        goes_on = stays & resources & self._parked - self.starts.missing()
        self._held_back -= resources
        self._keep(resources | (stays if self.seat.is_cooperative else set()))
        for tp in goes_on:
            self.seat.progress.begins_at(tp, 0)  # nobody else has committed in between
        self._parked = set()

    def _generation(self) -> int:
        standing = self.seat.membership.standing
        return -1 if standing is None else standing.identity.generation

    def _run(self, callback: Callback) -> BaseException | None:
        listener = self._subscription.rebalance_listener
        if listener is None:
            return None
        method = getattr(listener, f"on_partitions_{callback.call.value}")
        if inspect.iscoroutinefunction(method):
            method = partial(self._run_coroutine, method)
        return callback(method, set(theirs(callback.resources)))


def theirs(resources: Iterable[Resource]) -> list[TopicPartition]:
    """Partitions as kafka-python's, in order."""
    return [TopicPartition(*tp) for tp in sorted(resources)]


def ours(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[Resource, OffsetToCommit]:
    """kafka-python's offsets, with what is committed beside them."""
    return {
        tuple(tp): OffsetToCommit(
            at.offset, at.metadata or "", -1 if at.leader_epoch is None else at.leader_epoch
        )
        for tp, at in offsets.items()
    }


def as_theirs(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets as kafka-python's."""
    return {
        TopicPartition(*tp): OffsetAndMetadata(at.offset, at.note, at.epoch)
        for tp, at in sorted(offsets.items())
    }

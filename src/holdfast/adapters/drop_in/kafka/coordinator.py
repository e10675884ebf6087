"""Our member in the place of kafka-python's group coordinator.

**Rules.** A consumer that subscribes with a group is a member of ours; any other has kafka-python's
own coordinator. Joining happens in the background: a poll never waits for it, and nothing of what
stays is fetched again. Callbacks run inside ``poll``, ``unsubscribe`` and ``close``, on the
application's thread, and may commit. What the application polled counts as processed at its next
poll. A commit goes only with what the member owns now, and all commits take one way.

**Strategy.** The class is a subclass of kafka-python's coordinator: questions for offsets are
kafka-python's; commits are the member's (:mod:`~holdfast.adapters.drop_in.kafka.commits`).

References: KIP-429, KIP-62, KIP-345, KIP-447; Kafka's ``CommitFailedException``.
"""

from __future__ import annotations

import concurrent.futures
import inspect
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

import kafka.errors as kafka_errors
from kafka.coordinator.base import Generation
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.coordinator.heartbeat import Heartbeat
from kafka.future import Future
from kafka.structs import ConsumerGroupMetadata, MemberState, OffsetAndMetadata, TopicPartition
from kafka.util import WeakMethod

from holdfast.adapters.cluster.connections import Connections
from holdfast.adapters.drop_in import client_errors
from holdfast.adapters.drop_in.in_hand import InHand
from holdfast.adapters.drop_in.kafka import commits
from holdfast.adapters.drop_in.kafka.commits import theirs
from holdfast.adapters.drop_in.kafka.opening import Opening
from holdfast.adapters.drop_in.kafka.poll_duties import PollDuties
from holdfast.adapters.member.assembly import MemberParts
from holdfast.adapters.member.errands import Once, to_the_end
from holdfast.adapters.settings import Settings
from holdfast.errors import HoldfastError
from holdfast.machine import actions, events
from holdfast.machine import states as machine_states
from holdfast.machine.actions import ListenerCall
from holdfast.machine.leader.designs import Assignor
from holdfast.machine.leader.embedded import RebalanceMode
from holdfast.machine.member.holdings import Identity
from holdfast.machine.member.member import choose_mode
from holdfast.model.partitions import Resource

_CATCH_UP_S = 0.25
_LOOK_S = 0.1
_AGAIN_S = 0.05
_MOMENT_S = 0.05
_CONNECT_S = 0.1  # a poll that begins to be a member waits so long for a broker
_STABLE = machine_states.MemberState.STABLE


_not_ours = partial(client_errors.not_ours, kafka_errors)


class MemberHeartbeat(Heartbeat):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's record of heartbeats, told by our member."""

    parts: MemberParts[PollDuties] | None = None

    @property
    def last_send(self) -> float:
        """When the last one was sent."""
        return -1.0 if self.parts is None else self.parts.host.beat_at

    @last_send.setter
    def last_send(self, value: float) -> None:
        """Leave it to the member."""

    @property
    def last_receive(self) -> float:
        """When the last one was acknowledged."""
        return -1.0 if self.parts is None else self.parts.host.answered_at

    @last_receive.setter
    def last_receive(self, value: float) -> None:
        """Leave it to the member."""


class MemberConsumerCoordinator(ConsumerCoordinator):  # type: ignore[misc]
    """What a consumer of kafka-python asks about its group.

    Parameters
    ----------
    client, subscription
        kafka-python's.
    settings : Settings
        Of the member.
    offered : sequence of Assignor
        What it offers.
    network : mapping of str to object
        Keywords of the member's connections.
    in_hand : InHand
        What the consumer's last call handed out.
    **configs
        Those of kafka-python's coordinator.
    """

    # kafka-python has no types
    _subscription: Any
    heartbeat: Any
    next_auto_commit_deadline: Any

    def __init__(
        self,
        client: Any,
        subscription: Any,
        *,
        settings: Settings,
        offered: Iterable[Assignor],
        network: Mapping[str, Any],
        in_hand: InHand,
        **configs: Any,
    ):
        self._settings = settings
        self._offered = tuple(offered)
        self._is_cooperative = choose_mode(self._offered) is RebalanceMode.COOPERATIVE
        self._network = network
        self._held = in_hand
        self._parts: MemberParts[PollDuties] | None = None
        self._opening: Opening | None = None  # what becomes the parts
        self._told: tuple[str, ...] | None = None  # topics that the member knows
        self._given_up: dict[TopicPartition, Any] = {}  # where each was
        self._lost: set[TopicPartition] = set()  # hidden, and to be forgotten by the next poll
        self._in_hand: set[TopicPartition] = set()  # lost since the application polled
        self._polled_at = 0.0
        self._commits_last = True
        self._asked: concurrent.futures.Future[Any] | None = None  # for start positions
        self._asked_at = 0.0
        self.is_asked_for_place = False  # the application waits for the position of a partition
        self._began: dict[
            TopicPartition, int
        ] = {}  # what is committed, of those not committed here
        super().__init__(client, subscription, **configs)
        self.heartbeat = MemberHeartbeat(**self.config)
        if self._sensors is not None:
            self._sensors.heartbeat = self.heartbeat

    # Readings under kafka-python's names

    @property
    def is_member(self) -> bool:
        """Whether the consumer subscribes, and so is a member."""
        return self.group_id is not None and bool(self._subscription.partitions_auto_assigned())

    @property
    def _generation(self) -> Any:
        parts = self._parts
        if parts is None:
            return Generation.NO_GENERATION
        identity = parts.host.standing.identity
        return Generation(identity.generation, identity.member_id, None)

    @_generation.setter
    def _generation(self, value: Any) -> None:
        """Leave it to the member."""

    @property
    def state(self) -> Any:
        """kafka-python's word for the member's state."""
        parts = self._parts
        if parts is None or parts.host.standing.identity.generation < 0:
            return MemberState.UNJOINED
        is_stable = parts.host.standing.state is _STABLE
        return MemberState.STABLE if is_stable else MemberState.REBALANCING

    @state.setter
    def state(self, value: Any) -> None:
        """Leave it to the member."""

    @property
    def rejoining(self) -> bool:
        """Whether a round is under way."""
        return self._parts is not None and self._parts.host.standing.state is not _STABLE

    @rejoining.setter
    def rejoining(self, value: bool) -> None:
        """Leave it to the member."""

    def generation_if_stable(self) -> Any:
        """Identity of a commit: a member that joins in the background has one all the time."""
        generation = self._generation
        return None if generation.generation_id < 0 else generation

    def group_metadata(self) -> Any:
        """What fences the offsets of a transaction."""
        generation = self._generation
        return ConsumerGroupMetadata(
            group_id=self.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self.group_instance_id,
            state=self.state,
        )

    # The application's poll

    def poll(self, timeout_ms: float | None = None) -> bool:
        """Do what waits for the application; never wait for the group.

        Raises
        ------
        KafkaError
            If the group refused this member for good, or a callback raised.
        """
        if not self.is_member:
            return bool(super().poll(timeout_ms=timeout_ms))
        self._invoke_completed_offset_commit_callbacks()
        self._in_hand.clear()
        parts = self._tell_member(math.inf if timeout_ms is None else timeout_ms / 1000)
        if parts is None:  # no broker has answered yet
            self.heartbeat.poll()
            return True
        self._raise_failure(parts)
        self.heartbeat.poll()
        now = time.monotonic()
        if now - self._polled_at >= _LOOK_S:
            self._polled_at = now
            parts.host.post(events.Polled())
        self._run(parts)
        if self.config["enable_auto_commit"] and now > self.next_auto_commit_deadline:
            self.next_auto_commit_deadline = now + self.auto_commit_interval
            self._do_auto_commit_offsets_async()
        return True

    def _run(self, parts: MemberParts[PollDuties]) -> None:
        """Do the jobs; those of a hand-over come one after the other."""
        raised = None
        n_done, error = parts.duties.run()
        while n_done:
            raised = error or raised
            if not parts.host.catch_up(_CATCH_UP_S):
                break
            n_done, error = parts.duties.run()
        _raise_of_callback(error or raised)

    def _raise_failure(self, parts: MemberParts[PollDuties]) -> None:
        failure = parts.host.failure
        if failure is not None:
            parts.duties.run()
            self._close_parts()
            raise theirs(failure)

    def _tell_member(self, wait_s: float) -> MemberParts[PollDuties] | None:
        """Begin to be a member, or tell it what is subscribed to; None while no broker answers."""
        topics = tuple(sorted(self._subscription.subscription or ()))
        if self._parts is None:
            self._parts = self._opened(wait_s)
        if self._parts is None:
            return None
        self._opening = None
        if self.heartbeat.parts is None:
            self.heartbeat.parts = self._parts
            if not self._is_cooperative and self._subscription.rebalance_listener is not None:
                self._call_listener("on_partitions_revoked", set())
        if topics != self._told:
            self._parts.subscribe(topics, None, None)
            self._told = topics
        return self._parts

    def _opened(self, wait_s: float) -> MemberParts[PollDuties] | None:
        is_new = self._opening is None
        if self._opening is None:
            self._opening = Opening(self._settings, self._network, self._open)
        try:
            return self._opening.take(min(wait_s, _CONNECT_S) if is_new else 0.0)
        except HoldfastError as error:
            self._opening = None
            raise theirs(error) from error

    def _open(self, connections: Connections) -> MemberParts[PollDuties]:
        return MemberParts(self._settings, self._offered, lambda _: PollDuties(self), connections)

    def _handle_metadata_update(self, cluster: Any) -> None:
        before = self._metadata_snapshot
        super()._handle_metadata_update(cluster)
        if self._parts is not None and self._metadata_snapshot != before:
            self._parts.look_again()

    def time_to_next_poll(self) -> float:
        """Seconds until a callback may wait."""
        return _LOOK_S if self.is_member else float(super().time_to_next_poll())

    # The member's duties

    def hold_back(self, resources: tuple[Resource, ...]) -> None:
        """See :class:`~holdfast.adapters.drop_in.kafka.poll_duties.PollSide`."""
        consumed = self._subscription.all_consumed_offsets()
        for tp in _partitions(resources):
            self._given_up[tp] = consumed.get(tp)
        self._subscription.mark_pending_revocation(_partitions(resources))

    def hide(self, resources: tuple[Resource, ...]) -> None:
        """See :class:`~holdfast.adapters.drop_in.kafka.poll_duties.PollSide`."""
        tps = _partitions(resources)
        self._in_hand.update(tps)
        self._lost.update(tps)
        self._subscription.mark_pending_revocation(tps)

    def forget(self, resources: tuple[Resource, ...]) -> None:
        """See :class:`~holdfast.adapters.drop_in.kafka.poll_duties.PollSide`."""
        tps = set(_partitions(resources))
        for tp in tps:
            self._given_up.pop(tp, None)
        self._keep(self._subscription.assigned_partitions() - tps)
        self._lost -= tps

    def settle(self, action: actions.JoinCompleted) -> None:
        """See :class:`~holdfast.adapters.drop_in.kafka.poll_duties.PollSide`."""
        gone = {tp for tp in self._given_up if tuple(tp) not in action.owned}
        if self._is_cooperative and gone:
            self._keep(self._subscription.assigned_partitions() - gone)
        for tp in gone:  # last: after an interruption this is called again
            self._given_up.pop(tp, None)

    def _keep(self, kept: Collection[TopicPartition]) -> None:
        """Have exactly these, and hand out of them what is not being given up."""
        if not self._subscription.partitions_auto_assigned():
            return
        topics = self._subscription.subscription or ()
        self._subscription.assign_from_subscribed(sorted(tp for tp in kept if tp.topic in topics))
        self._subscription.mark_pending_revocation([*self._given_up, *self._lost])

    def tell(
        self, call: ListenerCall, resources: tuple[Resource, ...], listen: Once
    ) -> BaseException | None:
        """See :class:`~holdfast.adapters.drop_in.kafka.poll_duties.PollSide`."""
        if call is ListenerCall.ASSIGNED and not listen.has_begun:
            self._take(set(_partitions(resources)))
        return listen()

    def call_listener(self, call: ListenerCall, resources: tuple[Resource, ...]) -> None:
        """See :class:`~holdfast.adapters.drop_in.kafka.poll_duties.PollSide`."""
        if self._subscription.rebalance_listener is not None:
            self._call_listener(f"on_partitions_{call.value}", set(_partitions(resources)))

    def _take(self, tps: set[TopicPartition]) -> None:
        for tp in tps:
            self._given_up.pop(tp, None)
            self._began.pop(tp, None)
        self._asked = None  # what was asked before may be older than the last owner's commit
        stays = self._subscription.assigned_partitions() if self._is_cooperative else set()
        self._keep(stays | tps)
        self.next_auto_commit_deadline = time.monotonic() + self.auto_commit_interval

    def _call_listener(self, name: str, tps: set[TopicPartition]) -> None:
        """Call the listener on this thread; a coroutine runs on kafka-python's loop."""
        method = getattr(self._subscription.rebalance_listener, name)
        if inspect.iscoroutinefunction(method):
            self._net.run(method, tps)
        else:
            method(tps)

    def hand_over(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """See :class:`~holdfast.adapters.drop_in.kafka.poll_duties.PollSide`."""
        parts, tps = self._parts, _partitions(action.resources)
        known = self._given_up
        if not known.keys() >= set(tps):  # at a deadline the application may be away still
            found = self._held.asked_past(self._subscription.all_consumed_offsets, _firsts)
            if found is None and parts is not None:
                parts.duties.later(lambda: self._hand_over_inside(action, done))
                return
            known = {**(found or {}), **known}
        self._commit_known(action, done, known)

    def _hand_over_inside(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        known = {**self._subscription.all_consumed_offsets(), **self._given_up}
        self._commit_known(action, done, known)

    def _commit_known(
        self,
        action: actions.Commit,
        done: Callable[[int], None],
        known: Mapping[TopicPartition, Any],
    ) -> None:
        parts, tps = self._parts, _partitions(action.resources)
        offsets = self._news({tp: known[tp] for tp in tps if known.get(tp) is not None})
        if parts is None or not offsets or not self._commits_last:
            done(0)
            return
        identity = Identity(
            generation=action.generation,
            member_id=action.member_id,
            instance_id=action.instance_id,
        )
        asked = self._send(parts, offsets, identity)

        def answer(future: concurrent.futures.Future[int]) -> None:
            done(-1 if future.exception() is not None else future.result())

        asked.add_done_callback(answer)

    # Leaving

    def maybe_leave_group(self, reason: str | None = None, timeout_ms: float | None = None) -> None:
        """Hand everything over and leave; what was polled counts as processed."""
        self._stop_opening()
        if self._parts is not None:
            self._leave(timeout_ms)
        else:  # kafka-python's own, which refuses a consumer that is closed
            super().maybe_leave_group(reason=reason, timeout_ms=timeout_ms)

    def maybe_auto_commit_offsets_now(self) -> None:
        """Commit before the consumer gives its assignment away."""
        if self._parts is None:
            super().maybe_auto_commit_offsets_now()
        elif self.config["enable_auto_commit"]:
            try:
                self.commit_offsets_sync(self.consumed())
            except kafka_errors.KafkaError as error:
                self._parts.log.warning("the last commit failed: %s", error)

    def _leave(self, timeout_ms: float | None) -> None:
        limit_ms = self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + limit_ms / 1000
        try:
            to_the_end(lambda: self._hand_over_all(deadline))
        finally:
            self._close_parts()

    def _hand_over_all(self, deadline: float) -> None:
        """Have the member leave, and do what it wants done until then."""
        parts = self._parts
        if parts is None:
            return
        raised = None
        if parts.host.failure is None:
            parts.host.leave()
            while not parts.host.over.is_set() and time.monotonic() < deadline:
                _, error = parts.duties.run(0.02)
                raised = error or raised
        _, error = parts.duties.run()
        _raise_of_callback(error or raised)

    def _stop_opening(self) -> None:
        if self._opening is not None and self._parts is None:
            self._opening.close()
        self._opening = None

    def _close_parts(self) -> None:
        if self._parts is not None:
            self._parts.close()
        self._given_up.clear()
        self._lost.clear()
        self._began.clear()
        self._asked = None
        if self._subscription.partitions_auto_assigned():
            self._subscription.assign_from_subscribed([])
        self._parts = self.heartbeat.parts = self._told = None  # last: a second call goes on

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Hand over and leave; see kafka-python."""
        self._stop_opening()
        if self._parts is None:
            super().close(autocommit=autocommit, timeout_ms=timeout_ms)
            return
        self._commits_last = autocommit
        try:
            self._leave(timeout_ms)
        finally:
            self._cluster.remove_listener(WeakMethod(self._handle_metadata_update))
            self._close_heartbeat()

    # Offsets

    def refresh_committed_offsets_if_needed(self, timeout_ms: float | None = None) -> bool:
        """Find where new partitions begin; a member waits for open transactions (KIP-447)."""
        parts = self._parts
        if parts is None:
            return bool(super().refresh_committed_offsets_if_needed(timeout_ms=timeout_ms))
        missing = self._subscription.missing_fetch_positions()
        if self._asked is None:
            if not missing:
                return True
            self._asked = parts.link.committed([tuple(tp) for tp in missing])
            self._asked_at = time.monotonic()
        wait_s = None if timeout_ms is None else min(timeout_ms / 1000, threading.TIMEOUT_MAX)
        n_others = len(self._subscription.assigned_partitions()) - len(missing)
        if n_others and not self.is_asked_for_place:  # what stays keeps flowing
            left_s = max(0.0, self._asked_at + _MOMENT_S - time.monotonic())
            wait_s = left_s if wait_s is None else min(wait_s, left_s)
        try:
            found = self._asked.result(wait_s)  # an iteration without an end waits for ever
        except TimeoutError:
            return False
        except HoldfastError as error:
            self._asked = None
            raised = theirs(error)
            if commits.is_passing(raised):  # nobody answered: ask again
                return False
            raise raised from error
        self._asked = None
        missing = self._subscription.missing_fetch_positions()
        for place, offset in found.items():
            if offset >= 0 and TopicPartition(*place) in missing:
                self._began[TopicPartition(*place)] = offset
                self._subscription.seek(TopicPartition(*place), offset)
        return all(tuple(tp) in found for tp in missing)

    def consumed(self) -> dict[TopicPartition, Any]:
        """Positions of what the member owns.

        Raises
        ------
        CommitFailedError
            If records were handed out and their partitions were lost before this commit.
        """
        found: dict[TopicPartition, Any] = self._subscription.all_consumed_offsets()
        if self._parts is None:
            return found
        if self._in_hand:
            raise _not_ours(self._in_hand)
        owned = self._parts.host.standing.owned
        return {tp: at for tp, at in found.items() if tuple(tp) in owned}

    def _refuse(self, offsets: Mapping[TopicPartition, Any]) -> None:
        if self._parts is None or not all(isinstance(tp, TopicPartition) for tp in offsets):
            return
        owned = self._parts.host.standing.owned
        refused = {tp for tp in offsets if tuple(tp) not in owned or tp in self._in_hand}
        if refused:
            raise _not_ours(refused)

    def commit_offsets_sync(
        self, offsets: Mapping[TopicPartition, Any], timeout_ms: float | None = None
    ) -> Any:
        """Commit, and wait until it is done; while a round overtakes it, it is tried again."""
        limit_ms = self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + limit_ms / 1000
        while True:
            self._refuse(offsets)
            parts = self._parts
            if parts is None:
                return super().commit_offsets_sync(offsets, timeout_ms=timeout_ms)
            self._invoke_completed_offset_commit_callbacks()
            before = self._identity(offsets)
            if not offsets:
                return None
            answer = self._send(parts, offsets, before)
            left_s = max(0.0, deadline - time.monotonic())
            if not concurrent.futures.wait([answer], left_s).done:
                raise kafka_errors.KafkaTimeoutError
            error = commits.error_of(answer, self.group_id)
            if error is None:
                return None
            if not self._goes_on(parts, error, before):
                raise error
            if time.monotonic() >= deadline:
                raise kafka_errors.KafkaTimeoutError from error
            time.sleep(_AGAIN_S)

    def _news(self, offsets: Mapping[TopicPartition, Any]) -> dict[TopicPartition, Any]:
        """Without those where the last owner's commit stands, and nothing was read since."""
        return {tp: at for tp, at in offsets.items() if at.offset != self._began.get(tp)}

    def _send(
        self, parts: MemberParts[PollDuties], offsets: Mapping[TopicPartition, Any], who: Identity
    ) -> concurrent.futures.Future[int]:
        for tp in offsets:
            self._began.pop(tp, None)
        return commits.send(parts, offsets, who)

    def _identity(self, offsets: Mapping[TopicPartition, Any]) -> Identity:
        """What a commit of now goes with."""
        assert self._parts is not None
        commits.check_offsets(offsets)
        identity = self._parts.host.standing.identity
        if identity.generation < 0 and offsets:
            raise kafka_errors.CommitFailedError(
                "the consumer is not in its group now; what was handed out is read again"
            )
        return identity

    def _goes_on(self, parts: MemberParts[PollDuties], error: Any, before: Identity) -> bool:
        """Whether a commit that was refused may be tried again."""
        if parts.host.failure is not None:
            return False
        if not isinstance(error, kafka_errors.CommitFailedError):
            return commits.is_passing(error)
        is_late = self.rejoining or parts.host.standing.identity != before
        return is_late and not isinstance(error.args[0], kafka_errors.UnknownMemberIdError)

    def commit_offsets_async(
        self,
        offsets: Mapping[TopicPartition, Any],
        callback: Callable[[Any, Any], object] | None = None,
    ) -> Any:
        """Commit without waiting; see kafka-python."""
        self._refuse(offsets)
        parts = self._parts
        if parts is None:
            return super().commit_offsets_async(offsets, callback=callback)
        self._invoke_completed_offset_commit_callbacks()
        callback = callback or self.config["default_offset_commit_callback"]
        identity = self._identity(offsets)
        told = Future()
        told.add_both(
            lambda found: self.completed_offset_commits.appendleft((callback, offsets, found))
        )
        if not offsets:
            return told.success(None)
        self._send(parts, offsets, identity).add_done_callback(partial(self._answer, told))
        return told

    def _answer(self, told: Any, answer: concurrent.futures.Future[int]) -> None:
        error = commits.error_of(answer, self.group_id)
        if error is None:
            told.success(None)
            return
        if isinstance(error, kafka_errors.FencedInstanceIdError):
            self._async_commit_fenced = True
        told.failure(error)

    def _do_auto_commit_offsets_async(self) -> None:
        """Commit what is owned still; a loss meanwhile is no error of the application's poll."""
        found: dict[TopicPartition, Any] = self._subscription.all_consumed_offsets()
        if self._parts is not None:
            owned, in_hand = self._parts.host.standing.owned, set(self._in_hand)
            found = {tp: at for tp, at in found.items() if tuple(tp) in owned and tp not in in_hand}
            found = self._news(found)
        try:
            self.commit_offsets_async(found, self._commit_offsets_async_on_complete)
        except kafka_errors.CommitFailedError as error:  # lost since the line above
            self._commit_offsets_async_on_complete(found, error)

    def request_rejoin(self) -> None:
        """Leave it to the member, which hears of a round by its own heartbeat."""


def _raise_of_callback(error: BaseException | None) -> None:
    """Raise what a callback raised, as kafka-python does; Ctrl-C stays what it is."""
    if isinstance(error, Exception):
        raise kafka_errors.KafkaError("User rebalance callback throws an error") from error
    if error is not None:
        raise error


def _firsts(held: Any) -> dict[TopicPartition, Any]:
    """Where the first record of each partition lies, of lists or of one record."""
    records = held.values() if isinstance(held, dict) else [(held,)] if held else ()
    firsts = [found[0] for found in records]
    return {
        TopicPartition(r.topic, r.partition): OffsetAndMetadata(r.offset, "", r.leader_epoch)
        for r in firsts
    }


def _partitions(resources: Iterable[Resource]) -> list[TopicPartition]:
    return [TopicPartition(*resource) for resource in sorted(resources)]

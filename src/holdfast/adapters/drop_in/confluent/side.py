"""The group's side of a :class:`~holdfast.adapters.drop_in.confluent.consumer.ConfluentConsumer`.

**Rules.** Everything here runs on the application's thread, inside a call of the consumer. The
callbacks of a rebalance get the consumer and a list, as confluent-kafka's do, and may change the
assignment. If a callback does not, the assignment is changed after it; what is revoked or lost is
unassigned in any case. An exception of a callback leaves the assignment as if it had returned, and
is raised by the call once everything is done.

**Strategy.** :meth:`GroupSide.serve` does what is due between two slices of a poll. The mailbox of
:mod:`holdfast.adapters.drop_in.confluent.in_poll` holds what the member wants done.

References: confluent-kafka-python, ``Consumer_rebalance_cb``; KIP-429; KIP-62.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    cimpl,
)

from holdfast.adapters.drop_in.confluent import codes
from holdfast.adapters.drop_in.confluent.in_poll import Rebalance
from holdfast.adapters.drop_in.confluent.renewal import Renewal
from holdfast.adapters.drop_in.confluent.routing import Routed
from holdfast.adapters.drop_in.confluent.starts import Starts
from holdfast.adapters.drop_in.confluent.subscription import GroupSubscription
from holdfast.adapters.drop_in.in_hand import InHand
from holdfast.adapters.member.commits import CATCH_UP_S
from holdfast.adapters.member.errands import Errand, Once
from holdfast.adapters.member.link import NotedOffset
from holdfast.adapters.records.data_plane import MOST_INTRODUCED
from holdfast.adapters.records.delivery import SLICE_MS
from holdfast.adapters.records.silence import DEAF, Silence
from holdfast.adapters.settings import Settings
from holdfast.errors import HoldfastError
from holdfast.machine import events
from holdfast.machine.actions import ListenerCall
from holdfast.machine.leader.designs import Assignor
from holdfast.model.partitions import Resource

SLICE_S = SLICE_MS / 1000
_POLLED_EVERY_S = 0.1
LEAVE_S = 30.0
_COMMITS_S, _LAST_COMMITS_S = 1.0, 5.0
_ASKED_S = 0.25

_NOT_EAGER = (
    "Changes to the current assignment must be made using assign() when rebalance protocol type is "
    "EAGER"
)
_NOT_OF_ITS_KIND = {
    "assign": "Failed to set assignment: Local: Erroneous state",
    "unassign": "Failed to remove assignment: Local: Erroneous state",
    "incremental_assign": _NOT_EAGER,
    "incremental_unassign": _NOT_EAGER,
}

_Original: Any = confluent_kafka.Consumer
_poll = _Original.poll
_consume = _Original.consume
_identity = getattr(cimpl, "_reentry_identity_var", None)
has_gate = _identity is not None
"""Whether confluent-kafka's own calls wait for each other."""


class Turn:
    """One caller at a time; a callback of the same caller is let in: ``with turn.mine():``.

    A thread's turn is a lock itself, and no context manager of ours, in which an exception of a
    signal's handler could leave the lock for ever. Signals never reach the threads of AIOConsumer.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._caller = 0

    def mine(self) -> AbstractContextManager[object]:
        """The turn of this caller."""
        # AIOConsumer's threads say for whom they call, any other thread calls for itself.
        caller = _identity.get() if _identity is not None else 0
        return self._of(caller) if caller else self._lock

    @contextmanager
    def _of(self, caller: int) -> Iterator[None]:
        if caller == self._caller:  # its callback, on another thread
            yield
            return
        with self._lock:
            self._caller = caller
            try:
                yield
            finally:
                self._caller = 0


class GroupSide:
    """What a consumer needs for its group.

    Parameters
    ----------
    consumer : confluent_kafka.Consumer
        Whose side it is.
    routed : Routed
        Its configuration.
    settings : Settings or None
        The member's; None if the configuration names no broker.
    assignors : sequence of Assignor
        What the member offers.
    on_commit : callable, optional
        The application's; takes an error or None, and a list.
    """

    def __init__(
        self,
        consumer: Any,
        routed: Routed,
        settings: Settings | None,
        assignors: Sequence[Assignor],
        on_commit: Callable[..., object] | None,
    ):
        self._ref = weakref.ref(consumer)  # one that is forgotten ends at once, as the original
        self._routed = routed
        self._assignors = assignors
        self._on_commit = on_commit
        self.settings = settings
        self.turn = Turn()
        self.starts = Starts(routed.reset)
        self.renewal = Renewal(routed.plane)
        self._silence = Silence(self._answered_at)
        self.group: GroupSubscription | None = None
        self.callbacks: tuple[Any, Any, Any] = (None, None, None)
        self.running: Rebalance | None = None
        self.in_hand = InHand()
        self.stored: dict[Resource, NotedOffset] = {}
        self.due_at = 0.0  # when something is to be done before the next record is taken
        self.waiting: Collection[Any] = ()  # or something is to be done now
        self._polled_at = 0.0
        self._commit_at = time.monotonic() + routed.interval_s
        self._known: set[str] = set()
        self._held_error: BaseException | None = None
        self._alone_committed: dict[Resource, int] = {}

    @property
    def _consumer(self) -> Any:
        return self._ref()

    @property
    def polls_alone(self) -> bool:
        """Whether nothing of ours is ever due: no group, and nothing to commit now and then."""
        return self.group is None and not self._routed.is_automatic

    def subscribe(self, topics: list[str]) -> None:
        """Join the group, or change what the member subscribes to."""
        if self.group is not None and (self.group.is_leaving or self.group.is_over()):
            self.finish_leaving(time.monotonic() + LEAVE_S)
        group = self.group
        try:
            if group is None:
                group = self._new_group()
            group.subscribe(topics)
            self.group, self.waiting = group, group.mail.items
        except BaseException as error:
            if self.group is None and group is not None:
                group.close()  # or it would be a member of which nobody knows
            if not isinstance(error, ValueError):
                raise
            text = "Failed to set subscription: Local: Invalid argument or configuration"
            raise codes.exception(codes.INVALID_ARG, f"{text}: {error}") from None

    def _new_group(self) -> GroupSubscription:
        group = GroupSubscription(
            self.settings, self._assignors, tells_commits=self._on_commit is not None
        )
        # Weakly: the group is referred to until the consumer is forgotten, and callbacks of the
        # application, which are here, often refer to the consumer.
        asked = weakref.WeakMethod(self.asked_past)
        group.delivery.ask = lambda: None if (ask := asked()) is None else ask()
        weakref.finalize(self._consumer, group.close)
        self._polled_at = time.monotonic()
        return group

    def log_in_as(self, username: str, password: str) -> None:
        """Log in with these from the next connection of a member on."""
        self.renewal.log_in_as(username, password)
        if self.settings is not None:
            self.settings = self.settings.with_login(username, password)
        if self.group is not None:
            self.group.log_in_as(username, password)

    def unsubscribe(self) -> None:
        """Begin to leave; the next calls end it."""
        if self.group is not None and not self.group.is_leaving:
            self.note_positions()
            self.group.leave(returns=False)
            self.due_at = 0.0

    def poll(self, timeout: float) -> Any:
        """``Consumer.poll``, with everything that is due."""
        if self.polls_alone:
            return _poll(self._consumer, timeout)
        deadline = Deadline(timeout)
        while True:
            event = self.serve()
            if event is not None:
                return event
            found = _poll(self._consumer, deadline.slice_s())
            if found is not None or deadline.is_over():
                return found

    def consume(self, found: list[Any], n: int, timeout: float) -> list[Any]:
        """``Consumer.consume``, with everything that is due; some may be found already."""
        deadline = Deadline(timeout)
        while True:
            if not found and (event := self.serve()) is not None:
                return [event]
            try:
                found += _consume(self._consumer, n - len(found), deadline.slice_s())
            except Exception as error:
                if not found:
                    raise
                self._held_error = error  # the application gets what it must not lose first
                return found
            # What waits in the mailbox may begin only when these are processed.
            if len(found) >= n or deadline.is_over() or (found and self.waiting):
                return found

    def serve(self) -> Message | None:
        """Do what is due between two slices; return a message that is not librdkafka's."""
        error, self._held_error = self._held_error, None
        if error is not None:
            raise error
        now = time.monotonic()
        self.due_at = now + _POLLED_EVERY_S
        group = self.group
        if group is None:
            self._commit_alone(now)
            return None
        late = group.late(now - self._polled_at)
        self._polled_at = now
        if group.host is not None:
            group.host.post(events.Polled())
            if late is not None:
                return late
            group.delivery.processed()
            self._do_mail(group)
            self._begin_late(group)
            self._listen(group)
            self._polled_at = time.monotonic()
            self._commit_now_and_then(group, now)
        if group.is_leaving:
            self.due_at = 0.0
            if group.is_over():
                self._do_last_mail(group)
                self._forget_group()
        return group.problem()

    def _do_last_mail(self, group: GroupSubscription) -> None:
        """Call what is still to be called of a member that is out."""
        if group.host is not None:
            self._do_mail(group)

    def _do_mail(self, group: GroupSubscription) -> None:
        """Do what the member wants done until it wants nothing more; raise a callback's error."""
        first: BaseException | None = None
        host = group.host
        assert host is not None
        while True:
            has_done = False
            while group.mail.items:
                first = group.mail.do_next(0, self) or first
                has_done = True
            if not (has_done or group.is_leaving) or not host.catch_up(CATCH_UP_S):
                break
            if not group.mail.items:
                break
        if group.delivery.leaving:
            self._unassign(set(group.delivery.leaving))
        if first is not None:
            raise first

    def rebalance(self, begun: Rebalance) -> BaseException | None:
        """Run one callback and change the assignment; for the member's mail.

        After an interruption it is called again, and goes on.

        Returns
        -------
        BaseException or None
            What the callback raised; the assignment is changed all the same.
        """
        call, resources = begun.call, begun.resources
        if call is ListenerCall.ASSIGNED:
            return self._assigned(begun)
        _, on_revoke, on_lost = self.callbacks
        callback = (on_lost or on_revoke) if call is ListenerCall.LOST else on_revoke
        self.note_positions()
        error = self._run(callback, begun) if resources else None
        if call is ListenerCall.LOST and self.group is not None:
            self.group.duties.heard(resources, by_callback=callback is not None)
        self.note_positions()
        self._unassign(resources)
        return error

    def _assigned(self, begun: Rebalance) -> BaseException | None:
        group, resources = self.group, begun.resources
        if group is None or group.standing is None:
            return None
        if not begun.has_begun:
            before = self._committed_before(group, resources)
            self._introduce({topic for topic, _ in resources})
            starts = {tp: before.get(tp, 0) for tp in resources}
            group.delivery.begin(group.standing.terms, starts)
        # A cooperative round without news is no news; the first one is.
        is_news = bool(resources) or not group.has_assigned or not group.is_cooperative
        with group.duties.beginning(resources):
            error = self._run(self.callbacks[0], begun) if is_news else None
        group.has_assigned = True
        if not begun.has_changed:
            self._assign_new(group, [TopicPartition(*tp) for tp in resources])
        return error

    def _run(self, callback: Any, begun: Rebalance) -> BaseException | None:
        if callback is None:
            return None
        outer, self.running = self.running, begun
        try:
            partitions = [TopicPartition(*tp) for tp in begun.resources_in_order()]
            return begun(callback, self._consumer, partitions)
        finally:
            self.running = outer

    def _committed_before(
        self, group: GroupSubscription, resources: Collection[Resource]
    ) -> dict[Resource, int]:
        """Committed offsets of what was assigned here before: a commit may not go behind them."""
        return self.starts.committed(group, group.delivery.had_a_term(resources))

    def _begin_late(self, group: GroupSubscription) -> None:
        """Assign what waits for its place, if that is known by now."""
        self._check_commits(group, self.starts.look_again(self._consumer, group))

    def _check_commits(self, group: GroupSubscription, late: dict[Resource, int]) -> None:
        """A commit may not go behind these any more."""
        if late and group.standing is not None:
            group.delivery.begin(group.standing.terms, late)

    def _answered_at(self) -> float:
        host = self.group.host if self.group is not None else None
        return 0.0 if host is None else host.answered_at

    def _listen(self, group: GroupSubscription) -> None:
        """Make librdkafka anew if it is deaf."""
        if not self.renewal.is_deaf(self._consumer, self._silence):
            return
        assert group.parts is not None
        if not has_gate:
            group.parts.log.warning("%s: this process reads nothing until it is restarted", DEAF)
            return
        group.parts.log.warning("%s: it is made anew", DEAF)
        self.note_positions()
        self._known.clear()
        self.renewal.renew(self._consumer)

    def _introduce(self, topics: set[str]) -> None:
        """Ask for new topics: librdkafka fetches a known topic at once, others a second later."""
        new = sorted(topics - self._known)
        self._known |= topics
        try:
            for topic in new[:MOST_INTRODUCED]:
                _Original.list_topics(self._consumer, topic, _ASKED_S)
        except KafkaException:
            return  # it asks again by itself

    def _fetched(self) -> set[Resource]:
        return {(p.topic, p.partition) for p in _Original.assignment(self._consumer)}

    def _now(self) -> set[Resource]:
        return self._fetched().union(self.starts.waiting)

    def _assign_new(self, group: GroupSubscription, partitions: list[Any]) -> None:
        now = self._fetched()
        new = [part for part in partitions if (part.topic, part.partition) not in now]
        self._check_commits(group, self.starts.assign(self._consumer, group, new))

    def _unassign(self, resources: Collection[Resource]) -> None:
        group = self.group
        self._take_away(resources)
        for tp in resources:
            self.stored.pop(tp, None)
        if group is not None:
            group.delivery.finish(list(resources))

    def begins_with(self, partitions: Any) -> bool:
        """Whether an ``on_assign`` callback runs, which has assigned these now."""
        begun, group = self.running, self.group
        if begun is None or group is None or begun.call is not ListenerCall.ASSIGNED:
            return False
        _Original.position(self._consumer, partitions)  # raises for what is no list of partitions
        self._assign_new(group, list(partitions))
        begun.has_changed = True  # last: what an exception left out begins where it would anyway
        given = {(p.topic, p.partition): p.offset for p in partitions if p.offset >= 0}
        if group.standing is not None:
            group.delivery.begin(group.standing.terms, given)
        return True

    def is_ending(self) -> bool:
        """Whether ``on_revoke`` or ``on_lost`` runs."""
        begun = self.running
        return begun is not None and begun.call is not ListenerCall.ASSIGNED

    def end_some(self, resources: Collection[Resource]) -> None:
        """Unassign what a callback gives up itself; what is not assigned does not matter."""
        self.note_positions()
        self._take_away(resources)

    def _take_away(self, resources: Collection[Resource]) -> None:
        gone = [TopicPartition(*tp) for tp in sorted(self._fetched().intersection(resources))]
        self.starts.forget(resources)
        self.renewal.forget(resources)
        if gone:
            _Original.incremental_unassign(self._consumer, gone)

    def check_kind(self, name: str, *, is_step: bool) -> None:
        """Refuse a change of the assignment that is not of the group's kind.

        Parameters
        ----------
        name : str
            What was called.
        is_step : bool
            Whether it adds or takes away, as a cooperative group does, or replaces the whole.

        Raises
        ------
        KafkaException
            With ``_STATE``, as the original.
        """
        group = self.group
        if (
            group is None
            or group.is_leaving
            or not self._is_member()
            or group.is_cooperative == is_step
        ):
            return
        raise codes.exception(codes.STATE, _NOT_OF_ITS_KIND[name])

    def _is_member(self) -> bool:
        standing = self.group.standing if self.group is not None else None
        return standing is not None and standing.identity.generation >= 0

    def note_positions(self) -> None:
        """Read from librdkafka how far the application has come with what the group gave it."""
        group = self.group
        if group is None:
            return
        delivery = group.delivery
        if lost := delivery.unheard():
            delivery.hear(self._positions(lost))
        positions = self._positions(delivery.active())
        delivery.handed_out(positions)
        delivery.reached(positions if self._routed.stores else self.stored)

    def _positions(self, resources: Collection[Resource]) -> dict[Resource, int]:
        held = [TopicPartition(*tp) for tp in sorted(self._fetched().intersection(resources))]
        return _noted(_Original.position(self._consumer, held)) if held else {}

    def asked_past(self) -> dict[Resource, int] | None:
        """See :attr:`InPollDelivery.ask`."""
        group = self.group
        if group is None or self._consumer is None:
            return None
        if not self._routed.stores:
            return dict(self.stored)
        active = group.delivery.active()
        return self.in_hand.asked_past(lambda: self._positions(active), _firsts)

    def store(self, part: Any) -> None:
        """Note what the next commit commits; an offset that is none takes back an earlier one."""
        if part.offset >= 0:
            self.stored[part.topic, part.partition] = noted_offset(part)
        else:
            self.stored.pop((part.topic, part.partition), None)

    def await_commits(self) -> None:
        """Wait for the commits that are under way; not for long while records may be polled."""
        if (group := self.group) is not None:
            most_s = _LAST_COMMITS_S if group.is_leaving else _COMMITS_S
            group.await_commits(time.monotonic() + most_s)

    def sought(self, part: Any) -> None:
        """The application goes on there, and may commit from there on."""
        self.renewal.seek(self._consumer, part)
        offset = 0 if part.offset == OFFSET_BEGINNING else part.offset
        if self.group is not None and offset >= 0:
            self.group.delivery.seek((part.topic, part.partition), offset)

    def commit(
        self, group: GroupSubscription, offsets: list[Any] | None, *, waits: bool
    ) -> list[Any] | None:
        """``Consumer.commit`` of these offsets, or of what is stored."""
        assert group.parts is not None
        assert group.commits is not None
        self.note_positions()
        wanted = self._to_commit(group) if offsets is None else _noted(offsets)
        if offsets is None:  # the original tells of the others that there is nothing to commit
            answer = _listed(wanted)
            answer += [TopicPartition(*tp) for tp in self._now() - wanted.keys()]
        else:
            answer = [_again(part) for part in offsets]
        answer.sort(key=lambda part: (part.topic, part.partition))
        lost = group.commits.loss(group.parts) if offsets is None else None
        if not waits:
            if lost is not None:
                self._put_answer(group, lost, answer)
            elif wanted:
                group.send(wanted, lambda error: self._put_answer(group, error, answer))
            else:
                nothing = codes.exception(codes.NO_OFFSET, "Local: No offset stored")
                self._put_answer(group, nothing, answer)
            return None
        if lost is not None:
            raise codes.commit_failed(lost) from lost
        with group.commits.order:
            group.overtake(wanted)
        try:
            group.commits.commit(
                group.parts, wanted or None if offsets is None else wanted, is_seen=True
            )
        except HoldfastError as error:
            raise codes.commit_failed(error) from error
        if not wanted:
            raise codes.exception(codes.NO_OFFSET, "Commit failed: Local: No offset stored")
        return answer

    def _to_commit(self, group: GroupSubscription) -> dict[Resource, int]:
        assert group.standing is not None
        return group.delivery.to_commit(group.standing.terms)

    def _put_answer(
        self, group: GroupSubscription, error: BaseException | None, answer: list[Any]
    ) -> None:
        """Have ``on_commit`` called by a later poll, as the original does."""
        if self._on_commit is not None:
            tell, told = self._on_commit, None if error is None else codes.kafka_error(error)
            group.mail.put(Errand(Once(lambda _: tell(told, answer))))

    def told_of_hand_over(self, code: int, offsets: Mapping[Resource, int]) -> None:
        """Call ``on_commit`` for what the member has committed itself; for the mail."""
        error = None if code == 0 else KafkaError(code if code > 0 else codes.TIMED_OUT)
        assert self._on_commit is not None
        self._on_commit(error, _listed(offsets))

    def _commit_now_and_then(self, group: GroupSubscription, now: float) -> None:
        assert self._routed is not None
        if not self._routed.is_automatic or now < self._commit_at or group.is_leaving:
            return
        self._commit_at = now + self._routed.interval_s
        self.note_positions()
        wanted = self._to_commit(group)
        if wanted and self._is_member():
            answer = _listed(wanted)
            group.send(wanted, lambda error: self._put_answer(group, error, answer))

    def _commit_alone(self, now: float) -> None:
        assert self._routed is not None
        if now >= self._commit_at:
            self._commit_at = now + self._routed.interval_s
            self.commit_stored_alone()

    def commit_stored_alone(self) -> None:
        """Commit what a manual assignment has stored since the last time, without waiting."""
        if self.group is not None or not self._routed.is_automatic:
            return
        reached: Mapping[Resource, int] = self.stored
        if self._routed.stores:
            assigned = _Original.assignment(self._consumer)
            reached = _noted(_Original.position(self._consumer, assigned))
        if reached and reached != self._alone_committed:
            self._alone_committed = dict(reached)
            _Original.commit(self._consumer, asynchronous=True)

    def end(self) -> None:
        """Hand everything over and leave; a second call goes on where the first was interrupted."""
        if self.group is None:
            self.commit_stored_alone()
            return
        self.group.leave(returns=True)
        self.finish_leaving(time.monotonic() + LEAVE_S)

    def finish_leaving(self, deadline: float) -> None:
        """Do what the leaving member wants until it is out."""
        group = self.group
        if group is None:
            return
        raised: BaseException | None = None
        while group.host is not None and time.monotonic() < deadline:
            try:
                group.delivery.processed()
                self._do_mail(group)
            except BaseException as error:
                raised = raised or error
            if group.is_over():
                break
            group.host.over.wait(SLICE_S)
        group.await_commits(deadline)
        try:
            self._do_last_mail(group)
        except BaseException as error:
            raised = raised or error
        self._forget_group()
        if raised is not None:
            raise raised

    def _forget_group(self) -> None:
        group = self.group
        if group is not None:
            self._unassign(self._now() & group.delivery.active())
            self.stored.clear()
            group.close()
            self.group, self.waiting = None, ()  # last: the next call goes on after an exception


class Deadline:
    """When a call with a time-out ends; a negative one never does."""

    def __init__(self, timeout: float):
        self._end = None if timeout < 0 else time.monotonic() + timeout
        self._is_last = False

    def slice_s(self) -> float:
        """How long the next slice may wait."""
        if self._end is None:
            return SLICE_S
        left = self._end - time.monotonic()
        self._is_last = left <= SLICE_S
        return max(0.0, min(left, SLICE_S))

    def is_over(self) -> bool:
        """Whether the last slice was the last one."""
        return self._is_last


def _firsts(held: Any) -> dict[Resource, int]:
    """Where the first message of each partition lies, of a message or of several."""
    messages: Sequence[Any] = (held,) if isinstance(held, Message) else held
    found: dict[Resource, int] = {}
    for message in messages:
        if message.error() is None:
            found.setdefault((message.topic(), message.partition()), message.offset())
    return found


def _noted(offsets: Sequence[Any]) -> dict[Resource, int]:
    """Offsets of confluent-kafka's partitions, with what is committed beside them."""
    return {(p.topic, p.partition): noted_offset(p) for p in offsets if p.offset >= 0}


def noted_offset(partition: Any) -> NotedOffset:
    """An offset, with its metadata as confluent-kafka writes them: a byte of 0 ends them.

    confluent-kafka reads until that byte, so what another client writes without one is followed by
    whatever lies behind it in memory.
    """
    said = partition.metadata
    ended = None if said is None else f"{said}\0"
    return NotedOffset.of(partition.offset, ended, partition.leader_epoch)


def _again(part: Any) -> Any:
    """The same place and offset, with what is committed beside it."""
    epoch = {} if part.leader_epoch is None else {"leader_epoch": part.leader_epoch}
    beside = epoch if part.metadata is None else {**epoch, "metadata": part.metadata}
    return TopicPartition(part.topic, part.partition, part.offset, **beside)


def _listed(offsets: Mapping[Resource, int]) -> list[Any]:
    return [TopicPartition(*tp, int(at), **_beside(at)) for tp, at in sorted(offsets.items())]


def _beside(offset: int) -> dict[str, Any]:
    if not isinstance(offset, NotedOffset):
        return {}
    epoch = {"leader_epoch": offset.leader_epoch} if offset.leader_epoch >= 0 else {}
    return epoch | ({"metadata": offset.metadata.removesuffix("\0")} if offset.metadata else {})

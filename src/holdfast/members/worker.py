"""``holdfast.Worker``: a group member for resources that are not topics.

**Rules.** A resource is ``(kind, number)``. Every worker of a group is given the same kinds and
counts; if they differ, those of the leader count. With a ``version`` a leader that is behind leaves
alone what a newer version has more or less. Work on a resource begins in ``on_assigned`` and
has ended when ``on_revoked`` returns; only then may another worker begin. Each kind is balanced by
itself, so a change in one kind moves nothing of another. When workers come or go, totals are evened
too. With weights in ``holdfast.kinds``, or with ``holdfast.isolate=false``, all kinds are balanced
together.
A worker offers its own design first and behind it the other designs that can run its assignor, as
Connect's workers offer all built-in protocols: one rolling bounce changes the design of a group. A
list of designs in ``partition.assignment.strategy`` is offered as it stands.
Callbacks come one at a time, on a thread of their own. If ``on_assigned`` raises, nobody does the
work: the worker leaves the group, so that another one does, and its calls raise the error. State
that could not be saved in time, or a loss that no callback tells of, is an error in the log and at
:meth:`Worker.close`.

**Strategy.** The member machine of :class:`holdfast.Consumer`, without records: a hand-over is the
callback. The group has protocol type ``holdfast``, so tools for consumer groups leave it alone.

References: Incremental Cooperative Rebalancing, "Resource", "Isolated support of heterogeneous
resources"; KIP-415 (Connect).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, Self

from holdfast.cluster.connections import Connections
from holdfast.cluster.lookup import FoundTopics
from holdfast.cluster.settings import Settings
from holdfast.core.assignors.registry import find
from holdfast.core.machine import actions, events
from holdfast.core.machine.callbacks import ListenerCall
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.leader.designs import Assignor, DesignAssignor, why_no_target
from holdfast.core.machine.offers import assignors_for, computes, offered
from holdfast.core.machine.policies import DESIGNS, POLICIES
from holdfast.core.model import partitions
from holdfast.errors import (
    AdapterError,
    ConfigError,
    LocalProtocolError,
    RemoteProtocolError,
)
from holdfast.members.member.closing import Closing
from holdfast.members.member.end_signals import EndSignals
from holdfast.members.member.host import MemberHost
from holdfast.members.member.lag_source import LagSource
from holdfast.members.member.link import GroupLink
from holdfast.members.member.member_log import NAME, Log, MemberLog
from holdfast.members.member.membership import (
    Leadership,
    design_of,
    listed_in,
    make_member,
    policy_of,
)
from holdfast.members.member.metrics import Counters, MemberMetrics
from holdfast.members.member.parts import metrics_of
from holdfast.members.member.readiness import ready_file

PROTOCOL_TYPE = "holdfast"
_LOOK_S = 0.05  # how soon run() sees that it was stopped


class Resource(NamedTuple):
    """One thing to own: a ``kind``, and its ``number`` from 0 on.

    References: Incremental Cooperative Rebalancing, whose resources need not be partitions.
    """

    kind: str
    number: int


class WorkerListener(Protocol):
    """Callbacks of a worker's application; any of them may be missing.

    References: KIP-429 (``ConsumerRebalanceListener``), of resources in place of partitions.
    """

    def on_assigned(self, resources: list[Resource]) -> None:
        """Begin work on these."""

    def on_revoked(self, resources: list[Resource]) -> None:
        """End work on these and save its state before returning."""

    def on_lost(self, resources: list[Resource]) -> None:
        """End work on these at once: another worker may have begun."""


class Worker:
    """One worker of a group that shares resources.

    Parameters
    ----------
    config : mapping of str to object
        As for :class:`holdfast.Consumer`; ``holdfast.policy`` is ``simple``, ``deferred``,
        ``incremental`` or ``lend``; a worker's ``simple`` is ``holdfast-simple``.
        ``holdfast.kinds`` says what is different for a kind of resources; what the leader was given
        counts.
        ``partition.assignment.strategy`` is one assignor that computes targets, or a list of
        designs (``holdfast-deferred``) and assignors of your own to offer.
    resources : mapping of str to int
        Kind to count, such as ``{"connector-a": 3, "shard": 12}``; ``{"leader": 1}`` elects one.
    listener : WorkerListener, optional
        Begins and ends work.
    version : int, optional
        Of ``resources``, 0 or more: a later one is a larger number, as the revision of a deploy is.
        If another worker has a newer version than the leader, the leader plans for what both have,
        and leaves alone what one of them has not.

    Attributes
    ----------
    assignors : tuple of Assignor
        What the worker offers to its group, in order of preference.

    Raises
    ------
    ConfigError
        For a bad configuration, kind, count or weight.

    References: Incremental Cooperative Rebalancing; KIP-415, its form in Kafka Connect.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        resources: Mapping[str, int],
        listener: WorkerListener | None = None,
        *,
        version: int | None = None,
    ):
        self._settings = settings = Settings.parse(config)
        self._resources = _checked(resources)
        self._reported = _report(self._resources, version)
        self._version = version
        self.assignors = assignors = tuple(
            replace(a, report=lambda: self._reported) if isinstance(a, DesignAssignor) else a
            for a in _assignors(settings, self._resources)
        )
        log = MemberLog(settings)
        self._leadership = Leadership(
            settings,
            assignors,
            lambda _: FoundTopics(counts=self._resources),
            lag_source=_lag_source(settings),
            version=lambda: self._version,
            log=log,
        )
        member = make_member(settings, assignors, protocol_type=PROTOCOL_TYPE, polls=False)
        self._duties = _WorkerDuties(listener, log)
        self._duties.give_up = lambda: self._host.leave(returns=False)
        name = f"holdfast-{settings['group.id']}-{settings['client.id']}"
        self._host = MemberHost(
            member,
            self._duties,
            self._leadership.compute,
            name=name,
            log=log,
            ready=ready_file(settings, log),
        )
        self._connections: Connections | None = None
        self._closing = Closing(self._end)
        self._signals = EndSignals(at_once=True)
        self._is_started = False
        self._is_stopped = False
        self._ends_with_error = False  # a close must not hide it

    def start(self) -> None:
        """Join the group; returns at once.

        Raises
        ------
        SourceError
            If no broker answers.
        AdapterError
            If the worker was closed.
        """
        if self._closing.has_begun():
            raise AdapterError("the worker is closed")
        if self._is_started:
            return
        if self._connections is None:
            connections = Connections(self._settings)
            try:
                connections.open()
                self._connections = connections
            except BaseException:
                connections.close()
                raise
        self._host.start(GroupLink(self._connections, self._host.post, self._host.fail))
        self._announce()
        self._host.post(events.Started())
        self._is_started = True  # last: after an exception the next call goes on

    def update(self, resources: Mapping[str, int], *, version: int | None = None) -> None:
        """Change kinds and counts; the leader's change moves what has to move.

        Parameters
        ----------
        resources : mapping of str to int
            Each kind and how many there are, 0 or more.
        version : int, optional
            The number of the new version; a worker that was made with one gives it.

        Raises
        ------
        ConfigError
            A kind without a name, or a count below 0.
        """
        self._resources, self._reported, self._version = (
            checked := _checked(resources),
            _report(checked, version),
            version,
        )
        self._announce()

    def _announce(self) -> None:
        self._host.post(events.MetadataChanged(tuple(sorted(self._resources.items()))))
        self._host.post(events.SubscriptionChanged(tuple(sorted(self._resources))))

    @property
    def owned(self) -> frozenset[Resource]:
        """Resources that this worker owns now.

        Raises
        ------
        RemoteProtocolError
            If the group has refused this worker for good.
        """
        self._raise_failure()
        return frozenset(Resource(*r) for r in self._host.standing.owned)

    @property
    def terms(self) -> Mapping[Resource, int]:
        """Number of the present term of each resource that is owned.

        A resource that was lost and came back has another number. An application that saves state
        takes the number in ``on_assigned`` and compares it before it saves: what it has done in an
        earlier term may be older than what another worker has done since.
        """
        return {Resource(*r): term for r, term in self._host.standing.terms.items()}

    @property
    def generation(self) -> int:
        """Generation of the group as this worker knows it, -1 for none."""
        return self._host.standing.identity.generation

    def metrics(self) -> MemberMetrics:
        """Return what was counted so far, in Kafka's names where they exist."""
        own = -1 if self._version is None else self._version
        newest = self._leadership.newest_version
        return replace(
            metrics_of(self._settings, self._host, self._leadership, Counters()),
            resource_version=own,
            newest_resource_version=max(own, -1 if newest is None else newest),
        )

    __holdfast_metrics__ = metrics

    def run(self, timeout: float | None = None) -> None:
        """Wait until the worker is over or stopped, or for ``timeout`` seconds.

        Raises
        ------
        LocalProtocolError
            Before :meth:`start`.
        RemoteProtocolError
            If the group has refused this worker for good.
        Exception
            What a callback raised.
        """
        if self._connections is None:
            raise LocalProtocolError("start() first")
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (self._is_stopped or self._duties.error):
            left_s = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
            if left_s <= 0 or self._host.over.wait(left_s):
                break
        self._raise_failure()

    def stop(self) -> None:
        """End :meth:`run`; from any thread or signal handler."""
        self._is_stopped = True

    def _raise_failure(self) -> None:
        error, self._duties.error = self._duties.error, None
        failure = error or self._host.failure
        if failure is not None:
            raise failure

    def close(self, timeout: float = 30.0, *, returns: bool = True) -> None:
        """End all work in order and leave; ``returns`` as in :meth:`holdfast.Consumer.close`.

        It may be called twice, from another thread, and from a signal handler. A callback that
        takes longer than ``timeout`` seconds is not waited for.

        Raises
        ------
        LocalProtocolError
            In a callback, which the end would wait for.
        RemoteProtocolError
            If resources were lost before ``on_revoked`` had saved their state, or were lost and the
            listener has no ``on_lost``. The log has an error since then, and everything is closed.
        Exception
            What a callback raised and no call has raised yet.
        """
        if self._duties.is_callback():
            raise LocalProtocolError("close() would wait for its own callback: call stop()")
        self._closing.close(timeout, returns=returns)

    def _end(self, timeout_s: float, returns: bool) -> None:
        if self._connections is None:
            return
        connections = self._connections
        if self._host.failure is None:
            self._host.leave(returns=returns)
        has_ended = self._host.over.wait(timeout_s)
        self._host.stop()
        self._duties.close(wait=has_ended)
        connections.close()
        self._connections = None
        failure = self._duties.failure or self._duties.error
        self._duties.failure = self._duties.error = None
        if failure is not None and not self._ends_with_error:
            raise failure

    def __enter__(self) -> Self:
        if self._settings["holdfast.handle.signals"]:
            self._signals.watch()
        try:
            self.start()
        except BaseException:
            self._signals.end()
            raise
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._ends_with_error = error is not None
        try:
            self.close()
        finally:
            self._signals.end()


class _WorkerDuties:
    """The member's :class:`~holdfast.members.member.host.Duties`: callbacks alone."""

    def __init__(self, listener: Any, log: Log | None = None):
        self._listener = listener
        self._log: Log = log or logging.getLogger(NAME)
        self._callbacks = ThreadPoolExecutor(1, thread_name_prefix="holdfast-callbacks")
        self._lock = threading.Lock()
        self._saving: frozenset[partitions.Resource] = frozenset()  # on_revoked is out for these
        self._late: frozenset[partitions.Resource] = frozenset()  # of these, lost since
        self.failure: RemoteProtocolError | None = None
        self.error: BaseException | None = None  # of a callback; the application's next call has it
        self.give_up: Callable[[], None] = lambda: None
        self._thread = 0  # that runs a callback now

    def is_callback(self) -> bool:
        """Whether the caller is a callback."""
        return self._thread == threading.get_ident()

    def hold_back(
        self, resources: tuple[partitions.Resource, ...], drained: Callable[[], None]
    ) -> None:
        drained()

    def drop(
        self, resources: tuple[partitions.Resource, ...], lost: tuple[partitions.Resource, ...]
    ) -> None:
        """Note what was lost while ``on_revoked`` saved its state."""
        with self._lock:
            self._late |= self._saving & set(resources)

    def take_over(self, resources: tuple[partitions.Resource, ...], term: int) -> None:
        """Work has begun in the callback."""

    def call(
        self,
        call: ListenerCall,
        resources: tuple[partitions.Resource, ...],
        done: Callable[[str | None], None],
    ) -> None:
        work = getattr(self._listener, f"on_{call.value}", None)
        if call is ListenerCall.LOST and work is None and self._listener is not None:
            self._tell_of(resources, "and the listener has no on_lost")
        if work is None or not resources:
            done(None)
            return
        if call is ListenerCall.REVOKED:
            with self._lock:
                self._saving = frozenset(resources)
        done = self._until_saved(call, done)
        self._callbacks.submit(self._run, call, work, resources, done)

    def _until_saved(
        self, call: ListenerCall, done: Callable[[str | None], None]
    ) -> Callable[[str | None], None]:
        """Tell of what was lost while ``on_revoked`` ran: its state was saved too late."""
        if call is not ListenerCall.REVOKED:
            return done

        def saved(error: str | None) -> None:
            with self._lock:
                late, self._late, self._saving = self._late, frozenset(), frozenset()
            if late:
                self._tell_of(late, "before on_revoked had returned")
            done(error)

        return saved

    def _tell_of(self, lost: Collection[partitions.Resource], why: str) -> None:
        names = ", ".join(f"{kind}-{number}" for kind, number in sorted(lost)[:5])
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        self.failure = RemoteProtocolError(
            f"{names}{more} were lost {why}: another worker may have begun without their state",
            error_code=ErrorCode.UNKNOWN_MEMBER_ID,
        )
        self._log.error("%s", self.failure)

    def _run(
        self,
        call: ListenerCall,
        work: Callable[[list[Resource]], None],
        resources: tuple[partitions.Resource, ...],
        done: Callable[[str | None], None],
    ) -> None:
        self._thread = threading.get_ident()
        try:
            work([Resource(*r) for r in resources])
        except BaseException as error:  # even an exit: the machine waits for this callback
            self._log.exception("on_%s raised", call.value)
            self.error = self.error or error
            done(f"{type(error).__name__}: {error}")
            if call is ListenerCall.ASSIGNED:
                self.give_up()  # nobody does this work here
        else:
            done(None)
        finally:
            self._thread = 0

    def commit(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        done(0)

    def close(self, *, wait: bool) -> None:
        self._callbacks.shutdown(wait=wait)


def _checked(resources: Mapping[Any, Any]) -> dict[str, int]:
    if not isinstance(resources, Mapping):
        raise ConfigError(f"resources: a mapping of kind to count is expected, found {resources!r}")
    if not resources:
        raise ConfigError("resources: at least one kind is expected")
    for kind, count in resources.items():
        if not isinstance(kind, str) or not kind:
            raise ConfigError(f"resources: a kind is a name, found {kind!r}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ConfigError(f"resources[{kind!r}]: a count is expected, found {count!r}")
    return dict(resources)


def _report(resources: Mapping[str, int], version: object) -> bytes | None:
    """What the worker's subscriptions say of its version."""
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 2**63:
        raise ConfigError(f"version: a number from 0 to 2^63 - 1 is expected, found {version!r}")
    from holdfast.core.machine.leader.counts import report_of

    return report_of(version, resources)


def _lag_source(settings: Settings) -> LagSource | None:
    """The function that knows loads; no broker does."""
    given: LagSource | str = settings["holdfast.lag.source"]
    return None if isinstance(given, str) else given


def _assignors(settings: Settings, resources: Mapping[str, int]) -> tuple[Assignor, ...]:
    """The assignors that a worker offers under its policy."""
    name: str = settings["holdfast.policy"]
    design_of(name, "holdfast.policy: a worker")
    for kind in settings["holdfast.kinds"]:
        if kind not in resources:
            raise ConfigError(
                f"holdfast.kinds: {kind}: not one of the resources {', '.join(sorted(resources))}"
            )
    listed = listed_in(settings)
    policy = policy_of(settings, listed)
    if settings["holdfast.isolate"] is None:
        policy = replace(policy, isolate=not policy.weights)
    # Only members read the assignments of this protocol type.
    policy = replace(policy, omit_unchanged=True)
    own = POLICIES[POLICIES[name].worker]
    if find(policy.assignor).uses_lags and _lag_source(settings) is None:
        raise ConfigError(
            f"holdfast.lag.source: under {find(policy.assignor).name} a worker takes a function "
            "from kinds and counts to the load of each resource"
        )
    named = [a for a in listed if isinstance(a, str)]
    if not listed or (len(listed) == 1 and computes(listed[0])):
        others = [
            name
            for name, design in DESIGNS.items()
            if name not in own.protocols and not why_no_target(replace(policy, design=design))
        ]
        return assignors_for(own.name, policy, (*own.protocols, *others))
    if kafkas := [a for a in named if a not in DESIGNS]:
        raise ConfigError(
            f"partition.assignment.strategy: a worker offers {', '.join(DESIGNS)}, or takes one "
            f"assignor that computes its targets; found {kafkas[0]} in a list"
        )
    if "holdfast.policy" in settings.given:
        return assignors_for(own.name, policy, listed)
    return offered(listed, policy)

"""``holdfast.Worker``: a group member for resources that are not topics.

**Rules.** A resource is ``(kind, number)``. Every worker of a group is given the same kinds and
counts; if they differ, those of the leader count. With a ``version``, a leader whose version is old
does not touch the resources that a newer version adds or removes. Each kind is balanced by itself,
so a change in one kind moves nothing of another. When workers come or go, totals are evened too.
With weights in ``holdfast.kinds``, or with ``holdfast.isolate=false``, all kinds are balanced
together.

A worker lists its own design first and after it the other designs that can run its assignor, as
Connect's workers list all built-in protocols: one rolling bounce changes the design of a group. A
list of designs in ``partition.assignment.strategy`` is used unchanged.

A program gives its work as ``run``, which is called for each resource, or as a listener, whose
callbacks have all resources of a round. Work ends before another worker begins it, except work that
takes longer than ``task.shutdown.graceful.timeout.ms`` to end. An error of the work fails its
resource, not the worker. Only a refusal by the group, and an error that is not an ``Exception``,
end a worker.

If a listener could not save state in time, or no callback reports a loss, an error is logged, and
:meth:`Worker.close` raises it.

**Strategy.** The member machine of :class:`holdfast.Consumer`, without records: a revocation ends
the work (:mod:`holdfast.members.resources`). The group has protocol type ``holdfast``, so
tools for consumer groups leave it alone.

References: Incremental Cooperative Rebalancing, "Resource", "Isolated support of heterogeneous
resources"; KIP-415 (Connect).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, Self

from holdfast.cluster.connections import Connections
from holdfast.cluster.lookup import FoundTopics
from holdfast.core.machine import events
from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.errors import ClientError, ConfigError, LocalProtocolError
from holdfast.members.config.policy import (
    check_leave,
    make_member,
    worker_assignors,
)
from holdfast.members.config.settings import Settings
from holdfast.members.metrics import Counters, MemberMetrics
from holdfast.members.resources.attempts import Resource, ResourceState
from holdfast.members.resources.supervisor import Run, supervise
from holdfast.members.runtime.closing import Closing, EndSignals
from holdfast.members.runtime.coordinator_client import CoordinatorClient
from holdfast.members.runtime.lags import LagSource
from holdfast.members.runtime.leader_planner import LeaderPlanner
from holdfast.members.runtime.member_log import MemberLog
from holdfast.members.runtime.member_runtime import metrics_of
from holdfast.members.runtime.member_thread import MemberThread
from holdfast.members.runtime.readiness import ready_file

PROTOCOL_TYPE = "holdfast"
_LOOK_S = 0.05  # interval at which run() checks whether it was stopped
_LEAVE_S = 25.0  # time that a close has in addition to the end of the work


class WorkerListener(Protocol):
    """Callbacks of a worker's application, instead of ``run``; any of them may be missing.

    The callbacks run one at a time, on a thread of their own, with all resources of a round. An
    error of ``on_assigned`` fails its resources: ``on_revoked`` is called for them, and then
    ``on_assigned`` again, for each by itself.

    References: KIP-429 (``ConsumerRebalanceListener``), for resources instead of partitions.
    """

    def on_assigned(self, resources: list[Resource]) -> None:
        """Begin work on these resources."""

    def on_revoked(self, resources: list[Resource]) -> None:
        """End work on these resources and save its state before returning.

        The worker waits ``task.shutdown.graceful.timeout.ms`` for each of them.
        """

    def on_lost(self, resources: list[Resource]) -> None:
        """End work on these resources at once: another worker may have begun it."""


class Worker:
    """One worker of a group that shares resources.

    Parameters
    ----------
    config : mapping of str to object
        As for :class:`holdfast.Consumer`; ``holdfast.policy`` is ``simple``, ``deferred``,
        ``incremental`` or ``failback``; a worker's ``simple`` is ``holdfast-simple``.
        ``holdfast.kinds`` has what differs for a kind of resources; the leader's value counts.
        ``partition.assignment.strategy`` is one assignor that computes targets, or a list of
        designs (``holdfast-deferred``) and assignors of your own.
    resources : mapping of str to int
        Kind to count, such as ``{"connector-a": 3, "shard": 12}``; ``{"leader": 1}`` elects one.
    listener : WorkerListener, optional
        Begins and ends work on all resources of a round in one call; most programs use ``run``.
    run : callable, optional
        The work on one resource: ``run(resource, stop)`` is called when the worker gets the
        resource, and returns once ``stop`` is set. A function gets a :class:`StopEvent` and a
        thread of its own, an ``async`` function an :class:`AsyncStopEvent` and a task on the
        worker's event loop. An error fails the resource, whose work is restarted. Work that returns
        before ``stop`` is set has ended and is not restarted by this worker.
    version : int, optional
        Version of ``resources``, 0 or more; a later version has a larger number, such as a deploy's
        revision. If another worker has a newer version than the leader, new resources run on the
        workers that report the newest one, and removed resources stay where they are until the
        leader knows that version.

    Attributes
    ----------
    assignors : tuple of Assignor
        The protocols that the worker supports, in order of preference.

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
        run: Run | None = None,
        version: int | None = None,
    ):
        self._settings = settings = Settings.parse(config)
        self._resources = _checked(resources)
        self._reported = _report(self._resources, version)
        self._version = version
        log = MemberLog(settings)
        name = f"holdfast-{settings['group.id']}-{settings['client.id']}"
        self._supervisor = supervise(settings, run, listener, log, name)
        self.assignors = assignors = tuple(
            replace(a, report=lambda: self._reported, failed=self._supervisor.report)
            if isinstance(a, DesignAssignor)
            else a
            for a in worker_assignors(settings, self._resources)
        )
        check_leave(settings, assignors[:1])  # the others only serve a bounce
        self._leadership = LeaderPlanner(
            settings,
            assignors,
            lambda _: FoundTopics(counts=self._resources),
            lag_source=_lag_source(settings),
            version=lambda: self._version,
            log=log,
        )
        member = make_member(settings, assignors, protocol_type=PROTOCOL_TYPE, polls=False)
        self._host = MemberThread(
            member,
            self._supervisor,
            self._leadership.compute,
            name=name,
            log=log,
            ready=ready_file(settings, log),
        )
        self._supervisor.give_up = lambda: self._host.leave(returns=settings.comes_back)
        self._supervisor.request_round = self._host.rejoin
        self._connections: Connections | None = None
        self._closing = Closing(self._end)
        self._signals = EndSignals(at_once=True)
        self._is_started = False
        self._is_stopped = False
        self._ends_with_error = False  # a close must not hide that error

    def start(self) -> None:
        """Join the group; returns at once.

        Raises
        ------
        SourceError
            If no broker answers.
        ClientError
            If the worker was closed.
        """
        if self._closing.has_begun():
            raise ClientError("the worker is closed")
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
        self._host.start(CoordinatorClient(self._connections, self._host.post, self._host.fail))
        self._announce()
        self._host.post(events.Started())
        self._is_started = True  # last: after an exception the next call continues

    def update(self, resources: Mapping[str, int], *, version: int | None = None) -> None:
        """Change kinds and counts; the leader's change moves resources.

        Parameters
        ----------
        resources : mapping of str to int
            Each kind and its count, 0 or more.
        version : int, optional
            The number of the new version; required if the worker was made with one.

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
        """Return the resources that this worker owns now.

        Raises
        ------
        RemoteProtocolError
            If the group has refused this worker for good.
        """
        self._raise_failure()
        return frozenset(Resource(*r) for r in self._host.snapshot.owned)

    @property
    def states(self) -> Mapping[Resource, ResourceState]:
        """Return the state of the work on each resource that this worker owns.

        The state of failed work has its error and the time of the next attempt.
        """
        return self._supervisor.states()

    @property
    def overdue(self) -> frozenset[Resource]:
        """Return the resources whose work continues here although another worker may have begun it.

        The resource was lost, or the end of its work takes longer than
        ``task.shutdown.graceful.timeout.ms``.
        """
        return self._supervisor.overdue()

    @property
    def terms(self) -> Mapping[Resource, int]:
        """Return the number of the present term of each resource that is owned.

        A resource that was lost and came back has another number. An application that saves state
        takes the number in ``on_assigned`` and compares it before it saves: state from an earlier
        term may be older than the state that another worker has saved since.
        """
        return {Resource(*r): term for r, term in self._host.snapshot.terms.items()}

    @property
    def generation(self) -> int:
        """Generation of the group as this worker knows it, -1 for none."""
        return self._host.snapshot.identity.generation

    def metrics(self) -> MemberMetrics:
        """Return the counters, in Kafka's names where they exist."""
        own = -1 if self._version is None else self._version
        newest = self._leadership.newest_version
        counts = self._supervisor.counts()
        return replace(
            metrics_of(self._settings, self._host, self._leadership, Counters()),
            resource_version=own,
            newest_resource_version=max(own, -1 if newest is None else newest),
            running_resources=counts.running,
            failed_resources=counts.failed,
            overdue_resources=counts.overdue,
            resource_failures_total=counts.n_failures,
        )

    __holdfast_metrics__ = metrics

    def run(self, timeout: float | None = None) -> None:
        """Wait until the worker has ended or is stopped, or for ``timeout`` seconds.

        Raises
        ------
        LocalProtocolError
            Before :meth:`start`.
        RemoteProtocolError
            If the group has refused this worker for good.
        BaseException
            An error of the work that is not an ``Exception``, such as ``SystemExit``.
        """
        if self._connections is None:
            raise LocalProtocolError("start() first")
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (self._is_stopped or self._supervisor.error):
            left_s = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
            if left_s <= 0 or self._host.over.wait(left_s):
                break
        self._raise_failure()

    def stop(self) -> None:
        """End :meth:`run`; from any thread or signal handler."""
        self._is_stopped = True

    def _raise_failure(self) -> None:
        error, self._supervisor.error = self._supervisor.error, None
        failure = error or self._host.failure
        if failure is not None:
            raise failure

    def close(self, timeout: float | None = None, *, returns: bool | None = None) -> None:
        """End all work in order and leave; ``returns`` as in :meth:`holdfast.Consumer.close`.

        It may be called twice, from another thread, and from a signal handler. Work that takes
        longer than ``timeout`` seconds to end is not waited for; without a ``timeout``, 25 s more
        than ``task.shutdown.graceful.timeout.ms``.

        Raises
        ------
        LocalProtocolError
            Inside the work itself, for which the call would wait.
        RemoteProtocolError
            If resources were lost before ``on_revoked`` had saved their state, or were lost and the
            listener has no ``on_lost``. The loss was logged as an error; everything is closed by
            then.
        BaseException
            An error of the work that is not an ``Exception`` and that no call has raised yet.
        """
        if self._supervisor.is_inside():
            raise LocalProtocolError("close() would wait for its own callback: call stop()")
        if timeout is None:
            timeout = _LEAVE_S + self._settings["task.shutdown.graceful.timeout.ms"] / 1000
        self._closing.close(timeout, returns=returns)

    def _end(self, timeout_s: float, returns: bool | None) -> None:
        if self._connections is None:
            return
        deadline = time.monotonic() + timeout_s
        connections = self._connections
        if self._host.failure is None:
            self._host.leave(returns=self._settings.comes_back if returns is None else returns)
        self._supervisor.stop_all()
        self._host.over.wait(timeout_s)
        self._host.stop()
        self._supervisor.close(max(0.0, deadline - time.monotonic()))
        connections.close()
        self._connections = None
        failure = self._supervisor.failure or self._supervisor.error
        self._supervisor.failure = self._supervisor.error = None
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


def _checked(resources: Mapping[Any, Any]) -> dict[str, int]:
    if not isinstance(resources, Mapping):
        raise ConfigError(f"resources: expected a mapping of kind to count, found {resources!r}")
    if not resources:
        raise ConfigError("resources: expected at least one kind")
    for kind, count in resources.items():
        if not isinstance(kind, str) or not kind:
            raise ConfigError(f"resources: a kind is a name, found {kind!r}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ConfigError(f"resources[{kind!r}]: expected a count, found {count!r}")
    return dict(resources)


def _report(resources: Mapping[str, int], version: object) -> bytes | None:
    """Return the user data with which the worker's subscriptions report its version."""
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 2**63:
        raise ConfigError(f"version: expected a number from 0 to 2^63 - 1, found {version!r}")
    from holdfast.core.machine.leader.counts import report_of

    return report_of(version, resources)


def _lag_source(settings: Settings) -> LagSource | None:
    """Return the function that knows loads; brokers know none."""
    given: LagSource | str = settings["holdfast.lag.source"]
    return None if isinstance(given, str) else given

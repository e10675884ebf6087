"""``holdfast.Worker``: a group member for resources that are not topics.

**Rules.** A resource is ``(kind, number)``. Every worker of a group is given the same kinds and
counts; if they differ, those of the leader count. With a ``version``, a leader whose version is old
does not touch the resources that a newer version adds or removes. Each kind is balanced by itself,
so a change in one kind moves nothing of another. When workers come or go, the total of each worker
is balanced, too. With weights in ``holdfast.kinds``, or with ``holdfast.isolate=false``, all kinds
are balanced together.

A worker lists its own design first and after it the other designs that can run its assignor, as
Connect's workers list all built-in protocols: one rolling bounce changes the design of a group. A
list of designs in ``partition.assignment.strategy`` is used unchanged.

A program gives its work as ``run``, which is called for each resource, or as a listener, whose
callbacks have all resources of a rebalance. Work ends before another worker begins it, except work
that takes longer than ``task.shutdown.graceful.timeout.ms`` to end. An error of the work fails its
resource, not the worker. Only a refusal by the group, and an error that is not an ``Exception``,
end a worker.

If a listener could not save state in time, or no callback reports a loss, an error is logged, and
:meth:`Worker.close` raises it.

**Strategy.** The worker has the membership and the runtime of all members. A consumer has a
session; a worker has a supervisor of its work. The group has protocol type ``holdfast``, so tools
for consumer groups do not change it.

References: Incremental Cooperative Rebalancing, "Resource", "Isolated support of heterogeneous
resources"; KIP-415 (Connect).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol, Self

from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.errors import ClientError, LocalProtocolError
from holdfast.members.config.policy import check_leave, worker_assignors
from holdfast.members.config.settings import Settings
from holdfast.members.metrics import MemberMetrics
from holdfast.members.resources.attempts import Resource, ResourceState
from holdfast.members.resources.supervisor import Run, Supervisor
from holdfast.members.runtime.application_calls import ApplicationCalls, EndSignals
from holdfast.members.runtime.leader_planner import LagSource, LeaderPlanner
from holdfast.members.runtime.member_runtime import DeclaredResources, MemberRuntime, metrics_of
from holdfast.members.runtime.member_status import MemberLog, clear_ready_file
from holdfast.members.session.membership import Membership

_POLL_S = 0.05  # interval at which run() checks whether it was stopped
_LEAVE_S = 25.0  # time that a close has in addition to the end of the work


class WorkerListener(Protocol):
    """Callbacks of a worker's application, instead of ``run``; any of them may be missing.

    The callbacks run one at a time, on a thread of their own, with all resources of a rebalance. An
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
        Begins and ends work on all resources of a rebalance in one call; most programs use ``run``.
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
        self._resources = declared = DeclaredResources(resources, version)
        log = MemberLog(settings)
        name = f"holdfast-{settings['group.id']}-{settings['client.id']}"
        self._supervisor = Supervisor(settings, run, listener, log, name)
        self.assignors = assignors = tuple(
            replace(a, report=lambda: declared.report, failed=self._supervisor.report)
            if isinstance(a, DesignAssignor)
            else a
            for a in worker_assignors(settings, declared.counts)
        )
        if "holdfast.clean.leave" in settings.given:
            check_leave(settings, assignors[:1])  # the others only serve a bounce
        clear_ready_file(settings)
        self._planner = LeaderPlanner(
            settings,
            assignors,
            declared.count,
            lag_source=_own_lag_source(settings),
            version=lambda: declared.version,
            log=log,
        )
        make_runtime = partial(MemberRuntime, resources=declared, planner=self._planner)
        self._membership = Membership(settings, assignors, make_runtime=make_runtime)
        self._membership.rebalance_handler = self._supervisor
        self._supervisor.leave_group = self._membership.leave
        self._supervisor.request_rebalance = self._rejoin
        self._calls = ApplicationCalls(self._end)
        self._signals = EndSignals(at_once=True)
        self._is_started = False
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
        if self._calls.is_closing():
            raise ClientError("the worker is closed")
        if not self._is_started:
            self._membership.connect_and_subscribe(tuple(sorted(self._resources.counts)))
            self._is_started = True  # last: after an exception the next call continues

    def update(self, resources: Mapping[str, int], *, version: int | None = None) -> None:
        """Declare other kinds and counts; resources move once the leader has them.

        Parameters
        ----------
        resources : mapping of str to int
            Each kind and its count, 0 or more.
        version : int, optional
            The number of the new version; required if the worker was made with one.

        Raises
        ------
        ConfigError
            For a kind without a name, or a count below 0.
        """
        self._resources.declare(resources, version)

    @property
    def owned(self) -> frozenset[Resource]:
        """Return the resources that this worker owns now.

        Raises
        ------
        RemoteProtocolError
            If the group has refused this worker for good.
        """
        self._raise_failure()
        return frozenset(Resource(*r) for r in self._membership.snapshot.owned)

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
        return {Resource(*r): term for r, term in self._membership.snapshot.terms.items()}

    @property
    def generation(self) -> int:
        """Generation of the group as this worker knows it, -1 for none."""
        return self._membership.snapshot.identity.generation

    def metrics(self) -> MemberMetrics:
        """Return the counters, in Kafka's names where they exist."""
        own = -1 if self._resources.version is None else self._resources.version
        newest = self._planner.newest_version
        metrics = metrics_of(self._settings, self._planner, self._membership.runtime)
        return replace(
            self._supervisor.add_counts(metrics),
            resource_version=own,
            newest_resource_version=max(own, -1 if newest is None else newest),
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
        runtime = self._membership.runtime
        if runtime is None or self._calls.is_done:
            raise LocalProtocolError("start() first")
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (self._calls.is_stopped or self._supervisor.error):
            left_s = _POLL_S if deadline is None else min(_POLL_S, deadline - time.monotonic())
            if left_s <= 0 or runtime.member_thread.finished.wait(left_s):
                break
        self._raise_failure()

    def stop(self) -> None:
        """End :meth:`run`; from any thread or signal handler."""
        self._calls.is_stopped = True

    def _raise_failure(self) -> None:
        error, self._supervisor.error = self._supervisor.error, None
        failure = error or self._membership.failure
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
        self._calls.close(timeout, returns=returns)

    def _end(self, timeout_s: float, returns: bool | None) -> None:
        if self._membership.runtime is None:
            return
        self._leave(timeout_s, returns)
        failure = self._supervisor.failure or self._supervisor.error
        self._supervisor.failure = self._supervisor.error = None
        if failure is not None and not self._ends_with_error:
            raise failure

    def _leave(self, timeout_s: float, returns: bool | None) -> None:
        """End all work in order and leave; a second call continues."""
        member_thread = self._membership.member_thread
        assert member_thread is not None
        self._supervisor.close_by = time.monotonic() + timeout_s
        if member_thread.failure is None:
            self._membership.leave(returns=returns)
        self._supervisor.stop_all()
        member_thread.finished.wait(timeout_s)
        self._membership.close()

    def _rejoin(self, reason: str) -> None:
        if (member_thread := self._membership.member_thread) is not None:
            member_thread.rejoin(reason)

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


def _own_lag_source(settings: Settings) -> LagSource | None:
    """Return the user's own lag source: brokers know no loads of a worker's resources."""
    given: LagSource | str = settings["holdfast.lag.source"]
    return None if isinstance(given, str) else given

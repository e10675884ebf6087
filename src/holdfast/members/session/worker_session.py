"""The session of a worker: its membership, and the work on what the member owns.

**Rules.** No method waits for work to begin. Only the end of a revocation is waited for, until the
deadline of the resources. Nothing is fetched, so nothing is in flight and nothing is committed.

References: Kafka Connect's ``Herder``, which starts and stops tasks next to the group's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.model.partitions import Resource
from holdfast.members.config.settings import Settings
from holdfast.members.metrics import MemberMetrics
from holdfast.members.resources.supervisor import Supervisor
from holdfast.members.runtime.lags import LagSource
from holdfast.members.runtime.leader_planner import LeaderPlanner
from holdfast.members.runtime.member_log import MemberLog
from holdfast.members.runtime.member_runtime import MemberRuntime, metrics_of
from holdfast.members.runtime.member_thread import NOT_JOINED, MemberSnapshot
from holdfast.members.runtime.metadata_watch import DeclaredResources
from holdfast.members.session.membership import Membership

if TYPE_CHECKING:
    from holdfast.core.machine import actions
    from holdfast.core.machine.leader.assignor_protocol import Assignor


class WorkerSession:
    """The session of one worker.

    Parameters
    ----------
    resources : DeclaredResources
        The kinds and counts that its group shares.
    supervisor : Supervisor
        Begins and ends the work.
    """

    def __init__(
        self,
        settings: Settings,
        assignors: Sequence[Assignor],
        resources: DeclaredResources,
        supervisor: Supervisor,
        log: MemberLog,
    ):
        self.resources = resources
        self.supervisor = supervisor
        given: LagSource | str = settings["holdfast.lag.source"]
        self.planner = LeaderPlanner(
            settings,
            assignors,
            resources.count,
            lag_source=None if isinstance(given, str) else given,  # brokers know no loads
            version=lambda: resources.version,
            log=log,
        )
        make_runtime = partial(MemberRuntime, resources=resources, planner=self.planner)
        self.membership = Membership(settings, assignors, make_runtime=make_runtime)
        self.membership.rebalance_handler = self
        self._is_ending, self._deadline = False, 0.0
        supervisor.leave_group = self.membership.leave
        supervisor.request_round = self._rejoin

    # The application

    def join(self) -> None:
        """Join the group, or continue a join that was interrupted; see :meth:`Worker.start`."""
        self.membership.join_now(tuple(sorted(self.resources.counts)))

    @property
    def snapshot(self) -> MemberSnapshot:
        """The member snapshot."""
        return self.membership.snapshot or NOT_JOINED

    def metrics(self) -> MemberMetrics:
        """Return the metrics of the member."""
        return metrics_of(self.membership.settings, self.planner, self.membership.runtime)

    def leave(self, timeout_s: float, *, returns: bool | None = None) -> None:
        """End all work in order and leave; a second call continues."""
        member_thread = self.membership.member_thread
        assert member_thread is not None
        self._is_ending, self._deadline = True, time.monotonic() + timeout_s
        if member_thread.failure is None:
            self.membership.leave(returns=returns)
        self.supervisor.stop_all()
        member_thread.finished.wait(timeout_s)
        self.membership.close()

    def _rejoin(self, reason: str) -> None:
        if (member_thread := self.membership.member_thread) is not None:
            member_thread.rejoin(reason)

    # See holdfast.members.runtime.member_thread.RebalanceHandler

    def hold_back(self, resources: tuple[Resource, ...], drained: Callable[[], None]) -> None:
        """Report ``resources`` as drained: nothing is in flight besides the work itself."""
        drained()

    def take_over(self, resources: tuple[Resource, ...], term: int) -> None:
        """Do nothing: the work has begun already."""

    def drop(self, resources: tuple[Resource, ...], lost: tuple[Resource, ...]) -> None:
        """Notify the work that another worker may have begun."""
        self.supervisor.drop(resources)

    def call(
        self,
        call: ListenerCall,
        resources: tuple[Resource, ...],
        done: Callable[[str | None], None],
    ) -> None:
        """Begin or end work; only the end of a revocation is waited for."""
        if resources and call is ListenerCall.REVOKED:
            self.supervisor.revoke(resources, done)
            return
        if resources and call is ListenerCall.ASSIGNED:
            self.supervisor.assign(resources)
        elif resources:
            self.supervisor.lose(resources)
        done(None)

    def commit(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """Do nothing: a worker has no offsets."""
        done(0)

    def is_orphaned(self) -> bool:
        """Return False: a worker's threads are its own."""
        return False

    def end(self) -> None:
        """Wait for work that has to end, until the deadline of the close."""
        if self._is_ending:  # else a start has failed, and the next one may succeed
            self.supervisor.close(max(0.0, self._deadline - time.monotonic()))

    def close(self) -> None:
        """Do nothing: the supervisor has ended."""

"""One membership, from ``subscribe`` to the end: what opens, joins, leaves and closes it.

**Rules.** The member joins in the background. Its connections open on a thread of their own, or in
the call of an application that wants to hear at once that no broker answers. What is subscribed to
before the member is there, it joins with. A membership that has ended opens nothing.

References: Incremental Cooperative Rebalancing, "join group in the background thread".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.cluster.connections import Connections
from holdfast.cluster.settings import Settings
from holdfast.core.machine.codes import ErrorCode
from holdfast.errors import RemoteProtocolError
from holdfast.members.runtime.process import OwnProcess
from holdfast.members.session.connecting import PendingConnection

if TYPE_CHECKING:
    from holdfast.core.machine.leader.designs import Assignor
    from holdfast.members.metrics import MemberMetrics
    from holdfast.members.runtime.member_runtime import ClientRebalanceHandler, MemberRuntime
    from holdfast.members.runtime.member_thread import MemberSnapshot, MemberThread
    from holdfast.members.runtime.metadata_watch import Matches


class Membership:
    """A member on its way, running, or gone.

    Parameters
    ----------
    connect : callable, optional
        Makes its connections, which are not open yet; by default from the settings.
    """

    def __init__(
        self,
        settings: Settings,
        assignors: Sequence[Assignor],
        connect: Callable[[Settings], Connections] | None = None,
    ):
        self.settings = settings
        self.assignors = tuple(assignors)
        self.runtime: MemberRuntime | None = None
        self.rebalance_handler: ClientRebalanceHandler
        self.is_leaving = False
        self.process = OwnProcess()
        self._connect = connect or Connections
        self._lock = threading.Lock()
        self._desired: tuple[tuple[str, ...], Matches | None] | None = None
        self._connecting: PendingConnection[MemberRuntime] | None = None
        self._has_ended = False

    def subscribe(self, topics: tuple[str, ...], pattern: Matches | None = None) -> None:
        """Join in the background, or change what is subscribed to."""
        with self._lock:
            self._desired = topics, pattern
            if self.runtime is not None:
                self.runtime.subscribe(topics, pattern)
                return
        if self._connecting is None:
            self._connecting = PendingConnection(
                lambda: self._connect(self.settings), self._open, group=self.settings["group.id"]
            )
        self._connecting.start()

    def join_now(self, topics: tuple[str, ...], pattern: Matches | None = None) -> None:
        """As :meth:`subscribe`, and wait for a broker."""
        if self.runtime is not None:
            self.subscribe(topics, pattern)
            return
        self._desired = topics, pattern
        self._open(self._connect(self.settings))

    def _open(self, connections: Connections) -> MemberRuntime:
        # The machine and the leader's code are loaded when a member opens, not with the client.
        from holdfast.members.runtime.member_runtime import MemberRuntime

        runtime = MemberRuntime(self.settings, self.assignors, self.rebalance_handler, connections)
        with self._lock:
            if not self._has_ended:
                assert self._desired is not None
                self.runtime = runtime
                runtime.subscribe(*self._desired)
        return runtime

    def wait_until_open(self, seconds: float) -> bool:
        """Whether the member is there, within so many seconds.

        Raises
        ------
        HoldfastError
            If no broker will ever let it in.
        """
        return self._connecting is not None and self._connecting.take(seconds) is not None

    def log_in_as(self, username: str, password: str) -> None:
        """Log in as ``username`` from the next connection on."""
        with self._lock:
            self.settings = self.settings.with_login(username, password)
            connecting = self._connecting
        if connecting is not None and connecting.connections is not None:
            connecting.connections.log_in_as(username, password)

    @property
    def member_thread(self) -> MemberThread | None:
        """The running machine, None before a broker has answered."""
        return None if self.runtime is None else self.runtime.member_thread

    @property
    def snapshot(self) -> MemberSnapshot | None:
        """The member's, None before a broker has answered."""
        return None if self.runtime is None else self.runtime.member_thread.snapshot

    def metrics(self) -> MemberMetrics | None:
        """The member's numbers, None before a broker has answered."""
        return None if self.runtime is None else self.runtime.metrics()

    @property
    def is_member(self) -> bool:
        """Whether it is in a generation of its group."""
        snapshot = self.snapshot
        return snapshot is not None and snapshot.identity.generation >= 0

    @property
    def failure(self) -> BaseException | None:
        """What has ended the member, or will never let it in."""
        if self.runtime is not None:
            return self.runtime.member_thread.failure
        return None if self._connecting is None else self._connecting.failure

    @property
    def is_fenced(self) -> bool:
        """Whether another process has taken this static member.

        Who joins again after that takes the member back, and the two fence each other for ever.
        """
        failure = self.failure
        if not isinstance(failure, RemoteProtocolError):
            return False
        return failure.error_code == ErrorCode.FENCED_INSTANCE_ID

    def leave(self, *, returns: bool | None = None, process_ends: bool = True) -> None:
        """Ask the member to hand everything over and to leave; of two wishes the first counts.

        Parameters
        ----------
        returns : bool, optional
            Whether it comes back; without it ``holdfast.clean.leave`` says so.
        process_ends : bool
            False where the application unsubscribes and goes on.
        """
        with self._lock:
            self._has_ended = self.is_leaving = True
        if self.runtime is not None:
            said = self.settings.comes_back if returns is None else returns
            self.runtime.member_thread.leave(returns=said, process_ends=process_ends)

    def is_over(self) -> bool:
        """Whether the member has left, has failed, or never was a member."""
        return self.is_leaving and (
            self.runtime is None or self.runtime.member_thread.over.is_set()
        )

    def close(self) -> None:
        """Release everything; the group is not told. A fork of the process has nothing of it."""
        if not self.process.is_this():
            return
        with self._lock:
            self._has_ended = True
            connecting = self._connecting
        if self.runtime is not None:
            self.runtime.close()
        if connecting is not None:
            connecting.close()

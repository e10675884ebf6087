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
from holdfast.members.member.process import OwnProcess
from holdfast.members.seat.opening import Opening

if TYPE_CHECKING:
    from holdfast.core.machine.leader.designs import Assignor
    from holdfast.members.member.host import MemberHost, Standing
    from holdfast.members.member.metadata_watch import Matches
    from holdfast.members.member.metrics import MemberMetrics
    from holdfast.members.member.parts import ClientDuties, MemberParts


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
        self.parts: MemberParts | None = None
        self.duties: ClientDuties
        self.is_leaving = False
        self.process = OwnProcess()
        self._connect = connect or Connections
        self._lock = threading.Lock()
        self._wish: tuple[tuple[str, ...], Matches | None] | None = None
        self._opening: Opening[MemberParts] | None = None
        self._has_ended = False

    def subscribe(self, topics: tuple[str, ...], pattern: Matches | None = None) -> None:
        """Join in the background, or change what is subscribed to."""
        with self._lock:
            self._wish = topics, pattern
            if self.parts is not None:
                self.parts.subscribe(topics, pattern)
                return
        if self._opening is None:
            self._opening = Opening(
                lambda: self._connect(self.settings), self._open, group=self.settings["group.id"]
            )
        self._opening.start()

    def join_now(self, topics: tuple[str, ...], pattern: Matches | None = None) -> None:
        """As :meth:`subscribe`, and wait for a broker."""
        if self.parts is not None:
            self.subscribe(topics, pattern)
            return
        self._wish = topics, pattern
        self._open(self._connect(self.settings))

    def _open(self, connections: Connections) -> MemberParts:
        # The machine and the leader's code are loaded when a member opens, not with the client.
        from holdfast.members.member.parts import MemberParts

        parts = MemberParts(self.settings, self.assignors, self.duties, connections)
        with self._lock:
            if not self._has_ended:
                assert self._wish is not None
                self.parts = parts
                parts.subscribe(*self._wish)
        return parts

    def wait_until_open(self, seconds: float) -> bool:
        """Whether the member is there, within so many seconds.

        Raises
        ------
        HoldfastError
            If no broker will ever let it in.
        """
        return self._opening is not None and self._opening.take(seconds) is not None

    def log_in_as(self, username: str, password: str) -> None:
        """Log in as ``username`` from the next connection on."""
        with self._lock:
            self.settings = self.settings.with_login(username, password)
            opening = self._opening
        if opening is not None and opening.connections is not None:
            opening.connections.log_in_as(username, password)

    @property
    def host(self) -> MemberHost | None:
        """The running machine, None before a broker has answered."""
        return None if self.parts is None else self.parts.host

    @property
    def standing(self) -> Standing | None:
        """The member's, None before a broker has answered."""
        return None if self.parts is None else self.parts.host.standing

    def metrics(self) -> MemberMetrics | None:
        """The member's numbers, None before a broker has answered."""
        return None if self.parts is None else self.parts.metrics()

    @property
    def is_member(self) -> bool:
        """Whether it is in a generation of its group."""
        standing = self.standing
        return standing is not None and standing.identity.generation >= 0

    @property
    def failure(self) -> BaseException | None:
        """What has ended the member, or will never let it in."""
        if self.parts is not None:
            return self.parts.host.failure
        return None if self._opening is None else self._opening.failure

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
        if self.parts is not None:
            said = self.settings.comes_back if returns is None else returns
            self.parts.host.leave(returns=said, process_ends=process_ends)

    def is_over(self) -> bool:
        """Whether the member has left, has failed, or never was a member."""
        return self.is_leaving and (self.parts is None or self.parts.host.over.is_set())

    def close(self) -> None:
        """Release everything; the group is not told. A fork of the process has nothing of it."""
        if not self.process.is_this():
            return
        with self._lock:
            self._has_ended = True
            opening = self._opening
        if self.parts is not None:
            self.parts.close()
        if opening is not None:
            opening.close()

"""One membership, from ``subscribe`` to the end: connecting, joining, leaving, closing.

**Rules.** The member joins in the background. Its connections open on a thread of their own, or in
the call of an application that wants to know at once that no broker answers. A broker that is
unavailable is tried again until it answers or the membership is closed; any other error is final,
and the application's next call raises it. The member joins with the latest subscription made before
it was connected. A membership that has ended connects nothing, and closes what it
has opened by then.

**Strategy.** Between two attempts the connecting thread holds no reference to the membership, so a
forgotten consumer can be collected.

References: Incremental Cooperative Rebalancing, "join group in the background thread"; Kafka's
ConsumerCoordinator, ``ensureCoordinatorReady``; librdkafka, ``rd_kafka_subscribe``.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.cluster.connections import Connections, load_client
from holdfast.cluster.signal_safe import Flag
from holdfast.core.machine.codes import ErrorCode
from holdfast.errors import RemoteProtocolError, SourceError
from holdfast.members.config.settings import Settings
from holdfast.members.runtime.application_calls import MemberProcess
from holdfast.members.runtime.member_status import NAME, NOT_JOINED, MemberSnapshot

if TYPE_CHECKING:
    from holdfast.core.machine.leader.assignor_protocol import Assignor
    from holdfast.members.metrics import MemberMetrics
    from holdfast.members.runtime.member_runtime import MemberRuntime, TopicPredicate
    from holdfast.members.runtime.member_thread import MemberThread, RebalanceHandler


_log = logging.getLogger(NAME)
_RETRY_DELAYS_S = (0.1, 0.2, 0.5, 1.0)  # between attempts to reach a broker; the last one stays


class Membership:
    """A member that is connecting, running, or closed."""

    def __init__(
        self,
        settings: Settings,
        assignors: Sequence[Assignor],
        connect: Callable[[Settings], Connections] | None = None,
        make_runtime: Callable[..., MemberRuntime] | None = None,
    ):
        self.settings = settings
        self.assignors = tuple(assignors)
        self.runtime: MemberRuntime | None = None
        self.rebalance_handler: RebalanceHandler
        self.is_leaving = False
        self.process = MemberProcess()
        self._connect = connect or Connections
        self._make_runtime = make_runtime
        self._lock = threading.Lock()
        self._desired: tuple[tuple[str, ...], TopicPredicate | None] | None = None
        self._has_ended = False
        self._connections: Connections | None = None  # that the thread opens
        self._thread: threading.Thread | None = None  # that opens them
        self._opened, self._closed = Flag(), Flag()  # opened, or never to be opened
        self._failure: BaseException | None = None  # because of which it is never opened

    def subscribe(self, topics: tuple[str, ...], pattern: TopicPredicate | None = None) -> None:
        """Join in the background, or change the subscription."""
        with self._lock:
            self._desired = topics, pattern
            if self.runtime is not None:
                self.runtime.subscribe(topics, pattern)
                return
        if self._thread is None:
            arguments = weakref.ref(self), self._closed, self.settings["group.id"]
            self._thread = threading.Thread(
                target=_connect, args=arguments, name="holdfast-connect", daemon=True
            )
        if self._thread.ident is None:  # else an earlier call was interrupted after this
            self._thread.start()

    def connect_and_subscribe(
        self, topics: tuple[str, ...], pattern: TopicPredicate | None = None
    ) -> None:
        """Connect in this call, which raises if no broker answers; then subscribe and join."""
        if self.runtime is not None:
            self.subscribe(topics, pattern)
            return
        self._desired = topics, pattern
        connections = self._connect(self.settings)
        try:
            self._start_runtime(connections)
        except BaseException:  # maybe an interruption, after which the next call begins again
            if self.runtime is None:
                connections.close()
            raise

    def try_to_connect(self) -> str:
        """Open once; return why no broker answers, "" if there is nothing left to do."""
        try:
            load_client()  # not under the lock, for which the application may wait
            with self._lock:
                if self._has_ended:
                    return ""
                connections = self._connections = self._connect(self.settings)
            self._start_runtime(connections)
        except SourceError as error:
            return str(error)  # a log may keep the error alive, and with it the consumer
        except BaseException as error:
            self._failure = error
        self._opened.set()
        return ""

    def _start_runtime(self, connections: Connections) -> None:
        # The machine and the leader's code are loaded when a member opens, not with the client.
        from holdfast.members.runtime.member_runtime import MemberRuntime

        make = self._make_runtime or MemberRuntime
        runtime = make(self.settings, self.assignors, self.rebalance_handler, connections)
        with self._lock:
            if not self._has_ended:
                assert self._desired is not None
                self.runtime = runtime
                runtime.subscribe(*self._desired)
                return
        runtime.close()

    def wait_until_connected(self, seconds: float) -> bool:
        """Return whether the member is connected within ``seconds``; raise a final error."""
        if self._thread is None or not self._opened.wait(seconds):
            return False
        if self._failure is not None:
            raise self._failure
        return self.runtime is not None

    def log_in_as(self, username: str, password: str) -> None:
        """Log in as ``username`` from the next connection on."""
        with self._lock:
            self.settings = self.settings.with_login(username, password)
            connections = self._connections
        if connections is not None:
            connections.log_in_as(username, password)

    @property
    def member_thread(self) -> MemberThread | None:
        """The running member thread, None before a broker has answered."""
        return None if self.runtime is None else self.runtime.member_thread

    @property
    def snapshot(self) -> MemberSnapshot:
        """The member snapshot."""
        return NOT_JOINED if self.runtime is None else self.runtime.member_thread.snapshot

    def metrics(self) -> MemberMetrics | None:
        """Return the member's metrics, None before a broker has answered."""
        return None if self.runtime is None else self.runtime.metrics()

    @property
    def is_member(self) -> bool:
        """Whether the member belongs to a generation of its group."""
        return self.snapshot.identity.generation >= 0

    @property
    def failure(self) -> BaseException | None:
        """The error that has ended the member, or that keeps it from ever joining."""
        if self.runtime is not None:
            return self.runtime.member_thread.failure
        return self._failure

    @property
    def is_fenced(self) -> bool:
        """Whether another process has taken over this static member.

        If the fenced process joined again, the two would fence each other for ever.
        """
        failure = self.failure
        if not isinstance(failure, RemoteProtocolError):
            return False
        return failure.error_code == ErrorCode.FENCED_INSTANCE_ID

    def leave(self, *, returns: bool | None = None, process_ends: bool = True) -> None:
        """Request that the member revokes everything and leaves; the first request counts.

        Whether it ``returns`` is by default ``holdfast.clean.leave``. The process does not end
        where the application unsubscribes and continues.
        """
        with self._lock:
            self._has_ended = self.is_leaving = True
        if self.runtime is not None:
            will_return = self.settings.returns if returns is None else returns
            self.runtime.member_thread.leave(returns=will_return, process_ends=process_ends)

    def is_finished(self) -> bool:
        """Return whether the member has left, has failed, or never was a member."""
        return self.is_leaving and (
            self.runtime is None or self.runtime.member_thread.finished.is_set()
        )

    def close(self) -> None:
        """Close connections and threads without notice to the group; do nothing in a fork."""
        if not self.process.is_current():
            return
        with self._lock:
            self._has_ended = True
            connections = self._connections
        self._closed.set()
        if self.runtime is not None:
            self.runtime.close()
        elif connections is not None:
            connections.close()  # ends the thread that waits for a broker


def _connect(membership: weakref.ref[Membership], ended: Flag, group: str) -> None:
    """Open a member, and try again while no broker answers, until it is forgotten or ``ended``."""
    reported, attempt = "", 0
    while not ended.wait(
        _RETRY_DELAYS_S[min(attempt, len(_RETRY_DELAYS_S)) - 1] if attempt else 0.0
    ):
        attempt += 1
        if (member := membership()) is None:
            return
        reason = member.try_to_connect()
        del member
        if not reason:
            return
        if reason != reported and not ended.is_set():
            _log.warning("group %s: %s", group, reason)
        reported = reason

"""Connections to a cluster through kafka-python's own network layer.

**Rules.** This module, :mod:`holdfast.members.runtime.coordinator_client`,
:mod:`holdfast.cluster.lookup` and :mod:`holdfast.cluster.kafka_python_repairs` are the only
ones that use ``kafka.net``, which is private: other versions of it than those of
:mod:`holdfast.cluster.client_versions` are refused.
A secret never stands in an error,
nor in a log (:mod:`holdfast.cluster.login_log`).

**Strategy.** Every call is a coroutine on the library's IO thread, so TLS, SASL, version
negotiation and reconnecting are the library's. A call that fails for a passing reason is repeated
until the request time-out is over. The library leaves questions open when its loop ends; a thread
that waits for one would wait for ever. So :meth:`Connections.close` answers them, and later
questions fail at once.

kafka-python is imported by :func:`load_client`, never by an import of this module: the import costs
more than all of ours together. A drop-in calls :func:`load_client` on a thread for which no other
waits, and without a lock.

References: Kafka protocol guide, "Error codes"; KIP-144 (exponential back-off).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import InvalidStateError
from typing import Any, TypeVar

from holdfast.cluster import client_configs
from holdfast.cluster.client_versions import check
from holdfast.cluster.diagnosis import why_no_answer
from holdfast.cluster.settings import Settings
from holdfast.cluster.signal_safe import Flag, SignalSafeFuture
from holdfast.cluster.versions import why_too_old
from holdfast.core.machine.codes import FATAL, ErrorCode, describe
from holdfast.errors import OperationalError, RemoteProtocolError, SourceError

check("kafka-python")
TopicPartition = tuple[str, int]
LARGEST_ANSWER_BYTES = 100_000_000
"""Of an answer. A leader's JoinGroup answer holds the subscriptions of the whole group, and each of
them may have as much as a request (``socket.request.max.bytes``); the library allows 1 MB."""
_CLOSED = "the connections are closed"
_END_MS = 5_000  # for the IO thread to end
_T = TypeVar("_T")

# A host that dies silently is noticed within 25 s, also while it holds a JoinGroup, which may wait
# for as long as the slowest member works.
SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in {
            "TCP_KEEPIDLE": 10,
            "TCP_KEEPINTVL": 5,
            "TCP_KEEPCNT": 3,
            "TCP_USER_TIMEOUT": 25_000,
        }.items()
        if hasattr(socket, name)  # not every system has all of them
    ),
]


def load_client() -> Any:
    """Import kafka-python's network layer, which takes a moment; return its client's class.

    The first :class:`Connections` does it, too.
    """
    from kafka.net.compat import KafkaNetClient

    from holdfast.cluster.kafka_python_repairs import mend_connects

    mend_connects()
    return KafkaNetClient


class Connections:
    """One client's connections.

    Parameters
    ----------
    settings : Settings
        Addresses, security and time-outs.
    options : mapping of str to object, optional
        Keywords of kafka-python that go before those of the settings: of a consumer of kafka-python
        whose member this is.
    tries_logins_again : bool
        Whether a refused login passes, because :meth:`log_in_as` may change it: the next request
        tries again after the reconnect back-off. Otherwise a refusal stands.
    """

    def __init__(
        self,
        settings: Settings,
        options: Mapping[str, Any] | None = None,
        *,
        tries_logins_again: bool = False,
    ):
        make_client = load_client()
        self.settings = settings
        self.tries_logins_again = tries_logins_again
        self.timeout_ms: int = settings["request.timeout.ms"]
        options = {
            **client_configs.kafka_python_connection(settings),
            **(options or {}),
            "socket_options": SOCKET_OPTIONS,
            "receive_message_max_bytes": LARGEST_ANSWER_BYTES,
            **client_configs.KAFKA_PYTHON_LOOP,
        }
        self._client = make_client(**options)
        self._manager = self._client._manager
        self._net = self._manager._net
        self._open_questions: set[SignalSafeFuture[Any]] = set()
        self._is_closed = False
        self._starting = threading.Lock()  # an IO thread is not begun after the end
        self._closing = threading.Lock()  # kafka-python's loop ends on one thread at a time

    @property
    def cluster(self) -> Any:
        """kafka-python's metadata of the cluster; used on the IO thread only."""
        return self._manager.cluster

    def open(self, timeout_ms: int | None = None) -> None:
        """Connect to the cluster; :meth:`close` on another thread ends it.

        Parameters
        ----------
        timeout_ms : int, optional
            Try for so long; ``request.timeout.ms`` by default.

        Raises
        ------
        SourceError
            If no bootstrap server answers, or security settings are refused, or it was closed.
        RemoteProtocolError
            If the broker is too old.
        """
        with self._starting:
            if self._is_closed:
                raise SourceError(_CLOSED)
            self._net.start()
        servers = ", ".join(self.settings["bootstrap.servers"])
        try:
            self._manager.bootstrap(self.timeout_ms if timeout_ms is None else timeout_ms)
        except Exception as error:
            refused = self.refusal()
            self.close()
            raise SourceError(_why_unreachable(servers, self.settings, refused or error)) from None
        known = self._manager.broker_version_data
        too_old = why_too_old(known.api_versions, self.release)
        if too_old is not None:
            self.close()
            raise RemoteProtocolError(
                f"{servers} cannot be used: {too_old}", error_code=ErrorCode.UNSUPPORTED_VERSION
            )

    @property
    def release(self) -> str:
        """The release of Kafka that the broker's requests look like, such as ``3.6``."""
        known = self._manager.broker_version_data
        return "of an unknown release" if known is None else known.broker_version_str

    def close(self) -> None:
        """Close every connection, end the IO thread and fail what is open; safe to call twice.

        Also on two threads at once: the second one waits for the first.
        """
        with self._starting:
            self._is_closed = True
        with self._closing:
            with contextlib.suppress(Exception):  # the loop may be gone already
                self._end_manager()
            self._net.stop(_END_MS)
            with contextlib.suppress(Exception):
                self._net.close()
        for question in list(self._open_questions):
            _fail(question, OperationalError(_CLOSED))

    def _end_manager(self) -> None:
        """Close the library's manager, on its IO thread if there is one.

        The library's own ``run`` waits without an end, and as no signal's handler may interrupt.
        """
        over = Flag()

        async def end() -> None:
            try:
                self._manager.close()
            finally:
                over.set()

        if self._net._io_thread is None:
            self._net.run(end)
        else:
            self._net.call_soon_threadsafe(end)
            over.wait(_END_MS / 1000)

    def refusal(self) -> Exception | None:
        """Return why a broker refused the login, None where none did."""
        failures = list(self._manager._auth_failures.values())
        return failures[0] if failures else None

    def log_in_as(self, username: str, password: str) -> None:
        """Log in as ``username`` in later logins; what is connected stays so. Safe from any thread.

        A connection whose login ends (KIP-368) renews it as ``username`` too.
        """
        self.settings = self.settings.with_login(username, password)
        login = {"sasl_plain_username": username, "sasl_plain_password": password}
        connections = list(self._manager._conns.values())
        for config in (self._manager.config, *(one.config for one in connections)):
            config.update(login)
        self._manager._auth_failures.clear()

    async def send(self, request: Any, node: object = None, timeout_ms: int | None = None) -> Any:
        """Send one request to a node (any node for None) and return the answer.

        The time-out is that of the answer and begins when the connection stands. kafka-python's
        begins earlier: after a slow set-up too little would be left for the answer, and a request
        that times out closes its connection, so the next one begins anew. The wait for the set-up
        has the same limit and closes nothing: a later request may find the connection.
        """
        limit = self.timeout_ms if timeout_ms is None else timeout_ms
        if self.tries_logins_again:
            self._manager._auth_failures.clear()
        self._end_long_waits()
        chosen = self._manager.least_loaded_node() if node is None else node
        if chosen is None:
            # No broker that is known can be reached: all of them may have moved (KIP-899).
            # kafka-python asks the first addresses once and never again.
            self._manager.bootstrap_async(self.timeout_ms)
        connection = self._manager.get_connection(chosen)
        if connection.initializing:
            await self._manager.wait_for(connection.init_future, limit)
        return await self._manager.send(request, node_id=chosen, request_timeout_ms=limit)

    def _end_long_waits(self) -> None:
        """End connections whose broker asked for a wait that is longer than a request may take.

        A broker's quotas ask for some seconds (KIP-219). A damaged answer may ask for weeks, and
        the member would send nothing meanwhile.
        """
        latest = time.monotonic() + self.timeout_ms / 1000
        for connection in list(self._manager._conns.values()):
            if connection._throttle_time > latest:
                connection.close(OperationalError("the broker asks for too long a wait"))

    def address(self, node: int) -> str:
        """A broker for people: its number and, where it is known, its address."""
        found = self.cluster.broker_metadata(node)
        return f"broker {node}" if found is None else f"broker {node} ({found.host}:{found.port})"

    def submit(
        self,
        work: Callable[[], Coroutine[Any, Any, _T]],
        done: Callable[[_T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Run a coroutine on the IO thread; exactly one of the callbacks is called there.

        The coroutine is made there, too: a caller that is interrupted leaves none behind.
        """
        if self._is_closed:
            failed(OperationalError(_CLOSED))
            return

        async def run() -> None:
            try:
                value = await work()
            except BaseException as error:
                failed(error)
            else:
                done(value)

        try:
            self._net.call_soon_threadsafe(run)
        except RuntimeError as error:
            failed(error)

    def future(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> SignalSafeFuture[_T]:
        """Run a coroutine on the IO thread; errors come out as holdfast's own."""
        result: SignalSafeFuture[_T] = SignalSafeFuture()
        self._open_questions.add(result)  # before the look whether we are closed
        result.add_done_callback(self._open_questions.discard)
        self.submit(
            work, lambda value: _answer(result, value), lambda error: _fail(result, as_ours(error))
        )
        return result

    def pause(self, seconds: float) -> SignalSafeFuture[None]:
        """Wait on the IO thread; closing ends it with an error."""
        return self.future(lambda: self.sleep(seconds))

    async def sleep(self, seconds: float) -> None:
        """Wait, in a coroutine on the IO thread."""
        await self._net.sleep(seconds)

    async def again(
        self, attempt: Callable[[], Coroutine[Any, Any, _T]], most_s: float | None = None
    ) -> _T:
        """Repeat an attempt that fails for a passing reason until the request time-out is over.

        ``most_s`` is a shorter time, for what others can do without.
        """
        from kafka.errors import KafkaError

        wait_s = self.timeout_ms / 1000
        deadline = time.monotonic() + (wait_s if most_s is None else min(most_s, wait_s))
        pause_s: float = self.settings["retry.backoff.ms"] / 1000
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if time.monotonic() + pause_s >= deadline or not is_passing(error):
                    raise
            await self._net.sleep(pause_s)
            pause_s = min(2 * pause_s, self.settings["retry.backoff.max.ms"] / 1000)


def _answer(question: SignalSafeFuture[_T], value: _T) -> None:
    with contextlib.suppress(InvalidStateError):  # closing was first
        question.set_result(value)


def _fail(question: SignalSafeFuture[Any], error: BaseException) -> None:
    with contextlib.suppress(InvalidStateError):
        question.set_exception(error)


def raise_code(code: int, about: str = "") -> None:
    """Raise an error for a code that is not 0: kafka-python's, or ours where no retry mends it."""
    if code in FATAL:
        text = f"{about}: {describe(code)}" if about else describe(code)
        raise RemoteProtocolError(text, error_code=code)
    if code:
        from kafka.errors import for_code

        raise for_code(code)(*filter(None, [about]))


def reason(error: BaseException) -> str:
    """One line for people: an error's class once, and words for the number of a system's error."""
    text, name = words_of(error), type(error).__name__
    return f"{name}: {text}" if text and text != name else name


def words_of(error: BaseException) -> str:
    """What an error says behind its class."""
    # kafka-python's errors say their class, and often their number, before what they have to say.
    is_kafkas = type(error).__module__ == "kafka.errors"
    text = " ".join(map(str, error.args)) if is_kafkas else str(error)
    return os.strerror(int(text)) if text.isdecimal() and int(text) in errno.errorcode else text


def as_ours(error: BaseException) -> BaseException:
    """Return the error as one of holdfast's tree."""
    if isinstance(error, (OperationalError, RemoteProtocolError)):
        return error
    code = getattr(error, "errno", None)
    if isinstance(code, int) and code > 0:
        return RemoteProtocolError(reason(error), error_code=code)
    return OperationalError(reason(error))


def ends_member(error: BaseException) -> bool:
    """Whether an error is final for a member: one of Kafka's fatal codes, or a refusal of ours.

    Every other code passes. Where Kafka gives a code without a name (-1), :func:`as_ours` makes an
    OperationalError of it, so a RemoteProtocolError without a code is holdfast's own.
    """
    if not isinstance(error, RemoteProtocolError):
        return False
    return error.error_code < 0 or error.error_code in FATAL


def is_refused_login(error: BaseException) -> bool:
    """Whether a broker refused the login, which no retry mends."""
    return "Authentication" in type(error).__name__ or "Sasl" in type(error).__name__


def is_passing(error: BaseException) -> bool:
    """Whether a repetition may mend an error."""
    code = getattr(error, "errno", None)
    return bool(getattr(error, "retriable", False)) or (code is not None and code not in FATAL)


def _why_unreachable(servers: str, settings: Settings, error: BaseException) -> str:
    why = why_no_answer(settings)
    if why is not None:
        return why
    protocol = settings["security.protocol"]
    return (
        f"no Kafka broker answered at {servers} over {protocol} ({reason(error)}), and a moment "
        "later one did: is it just starting?"
    )

"""Connections to a cluster through kafka-python's own network layer.

**Rules.** This module, :mod:`holdfast.members.runtime.coordinator_client`,
:mod:`holdfast.cluster.lookup` and :mod:`holdfast.cluster.kafka_python_repairs` are the only ones
that use ``kafka.net``, which is private: only the versions of
:mod:`holdfast.cluster.versions` are accepted. A secret never appears in an error or in a log
(:mod:`holdfast.cluster.client_configs`).

**Strategy.** Every call is a coroutine on the library's IO thread, so TLS, SASL, version
negotiation and reconnecting are the library's. A call that fails for a temporary reason is repeated
until the request time-out. The library leaves requests open when its loop ends; a thread that waits
for one would wait for ever. So :meth:`Connections.close` answers them, and later requests fail at
once.

kafka-python is imported by :func:`load_client`, never by an import of this module: the import costs
more than all of holdfast's together. A drop-in calls :func:`load_client` on a thread for which no
other waits, and without a lock.

References: Kafka protocol guide, "Error codes"; KIP-144 (exponential back-off).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import InvalidStateError
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.cluster import client_configs, kerberos
from holdfast.cluster.diagnosis import why_no_answer
from holdfast.cluster.settings import ConnectionSettings
from holdfast.cluster.signal_safe import Flag, SignalSafeFuture
from holdfast.cluster.versions import check, why_too_old
from holdfast.core.machine.codes import FATAL, ErrorCode, describe
from holdfast.errors import ClientError, OperationalError, RemoteProtocolError, SourceError

check("kafka-python")
TopicPartition = tuple[str, int]
LARGEST_ANSWER_BYTES = 100_000_000
"""Limit of an answer. A leader's JoinGroup answer holds the subscriptions of the whole group, each
up to the size of a request (``socket.request.max.bytes``); the library's own limit is 1 MB.
"""
_CLOSED = "the connections are closed"
_END_MS = 5_000  # for the IO thread to end
_T = TypeVar("_T")
_P = ParamSpec("_P")

# A host that dies silently is detected within 25 s, also while it holds a JoinGroup, which may wait
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
    """Import kafka-python's network layer, which is slow; return its client's class.

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
    settings : ConnectionSettings
        Addresses, security and time-outs.
    options : mapping of str to object, optional
        Keywords of kafka-python that override those of the settings, from the consumer of a member.
    tries_logins_again : bool
        Whether a refused login is temporary, because :meth:`log_in_as` may change it: the next
        request retries after the reconnect back-off. Otherwise a refusal is final.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
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
        self._starting = threading.Lock()  # no IO thread is started after the end
        self._closing = threading.Lock()  # kafka-python's loop ends on one thread at a time

    @property
    def cluster(self) -> Any:
        """kafka-python's metadata of the cluster; used on the IO thread only."""
        return self._manager.cluster

    def open(self, timeout_ms: int | None = None) -> None:
        """Connect to the cluster; :meth:`close` on another thread aborts it.

        A broker that is too old is a RemoteProtocolError, and every other failure a SourceError.

        Parameters
        ----------
        timeout_ms : int, optional
            Time limit; ``request.timeout.ms`` by default.
        """
        try:  # the first token or ticket, where an error of its server reaches the caller
            client_configs.check_tokens(self.settings["holdfast.oauth.token.provider"])
            if self.settings["sasl.mechanism"] == kerberos.MECHANISM:
                kerberos.ticket_of(kerberos.service_of(self.settings.values))
        except ClientError as error:
            self.close()
            raise SourceError(str(error)) from None
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
        """Return the Kafka release that matches the broker's requests, such as ``3.6``."""
        known = self._manager.broker_version_data
        return "of an unknown release" if known is None else known.broker_version_str

    def close(self) -> None:
        """Close every connection, end the IO thread and fail open requests; safe to call twice.

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
            _fail(question, ClientError(_CLOSED))

    def _end_manager(self) -> None:
        """Close the library's manager, on its IO thread if there is one.

        The library's own ``run`` waits without a limit, and no signal handler may interrupt it.
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
        """Return the error of a refused login, None without one."""
        failures = list(self._manager._auth_failures.values())
        return failures[0] if failures else None

    def log_in_as(self, username: str, password: str) -> None:
        """Use ``username`` in later logins; connections stay open. Safe from any thread.

        A connection whose login expires (KIP-368) renews it as ``username`` too.
        """
        self.settings = self.settings.with_login(username, password)
        login = {"sasl_plain_username": username, "sasl_plain_password": password}
        connections = list(self._manager._conns.values())
        for config in (self._manager.config, *(one.config for one in connections)):
            config.update(login)
        self._manager._auth_failures.clear()

    async def send(self, request: Any, node: object = None, timeout_ms: int | None = None) -> Any:
        """Send one request to a node (any node for None) and return the answer.

        The time-out is that of the answer and begins when the connection is established.
        kafka-python's begins earlier: after a slow set-up too little would be left for the answer,
        and a request that times out closes its connection, so the next one starts again. The wait
        for the set-up has the same limit and closes nothing: a later request may find the
        connection.
        """
        limit = self.timeout_ms if timeout_ms is None else timeout_ms
        if self.tries_logins_again:
            self._manager._auth_failures.clear()
        self._end_long_waits()
        chosen = self._manager.least_loaded_node() if node is None else node
        if chosen is None:
            # No known broker can be reached: all of them may have moved (KIP-899).
            # kafka-python tries the first addresses once and never again.
            self._manager.bootstrap_async(self.timeout_ms)
        connection = self._manager.get_connection(chosen)
        if connection.initializing:
            await self._manager.wait_for(connection.init_future, limit)
        return await self._manager.send(request, node_id=chosen, request_timeout_ms=limit)

    def _end_long_waits(self) -> None:
        """Close connections whose broker requested a throttle time beyond the request time-out.

        A broker's quotas throttle for some seconds (KIP-219). A damaged answer may request weeks,
        and the member would send nothing meanwhile.
        """
        latest = time.monotonic() + self.timeout_ms / 1000
        for connection in list(self._manager._conns.values()):
            if connection._throttle_time > latest:
                connection.close(ClientError("the broker requests too long a throttle time"))

    def address(self, node: int) -> str:
        """Return a broker's number and, if known, its address, for people."""
        found = self.cluster.broker_metadata(node)
        return f"broker {node}" if found is None else f"broker {node} ({found.host}:{found.port})"

    def submit(
        self,
        work: Callable[[], Coroutine[Any, Any, _T]],
        done: Callable[[_T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Run a coroutine on the IO thread, which calls exactly one of the callbacks.

        The coroutine is made there, too: an interrupted caller leaves none behind.
        """
        if self._is_closed:
            failed(ClientError(_CLOSED))
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
        """Run a coroutine on the IO thread; convert errors to holdfast's own."""
        result: SignalSafeFuture[_T] = SignalSafeFuture()
        self._open_questions.add(result)  # before the check whether the connections are closed
        result.add_done_callback(self._open_questions.discard)
        self.submit(
            work, lambda value: _answer(result, value), lambda error: _fail(result, as_ours(error))
        )
        return result

    def wait(self, seconds: float) -> SignalSafeFuture[None]:
        """Wait on the IO thread; closing ends the wait with an error."""
        return self.future(lambda: self.sleep(seconds))

    async def sleep(self, seconds: float) -> None:
        """Wait, in a coroutine on the IO thread."""
        await self._net.sleep(seconds)

    async def again(
        self, attempt: Callable[[], Coroutine[Any, Any, _T]], most_s: float | None = None
    ) -> _T:
        """Repeat an attempt that fails for a temporary reason until the request time-out.

        ``most_s`` is a shorter time limit, for requests that are not essential.
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


def on_io_thread(
    ask: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Any, _P], SignalSafeFuture[_T]]:
    """Turn a coroutine method into one that runs on the IO thread, and returns a future.

    The object has its :class:`Connections` as ``connections``.
    """

    @functools.wraps(ask)
    def start(self: Any, /, *args: _P.args, **options: _P.kwargs) -> SignalSafeFuture[_T]:
        work = functools.partial(ask, self, *args, **options)
        found: SignalSafeFuture[_T] = self.connections.future(work)
        return found

    return start


def _answer(question: SignalSafeFuture[_T], value: _T) -> None:
    with contextlib.suppress(InvalidStateError):  # closing was first
        question.set_result(value)


def _fail(question: SignalSafeFuture[Any], error: BaseException) -> None:
    with contextlib.suppress(InvalidStateError):
        question.set_exception(error)


def raise_code(code: int, about: str = "") -> None:
    """Raise an error for a non-zero code: kafka-python's, or holdfast's if no retry can fix it."""
    if code in FATAL:
        text = f"{about}: {describe(code)}" if about else describe(code)
        raise RemoteProtocolError(text, error_code=code)
    if code:
        from kafka.errors import for_code

        raise for_code(code)(*filter(None, [about]))


def reason(error: BaseException) -> str:
    """Return one line for people: an error's class once, and a system error's number as text."""
    text, name = words_of(error), type(error).__name__
    return f"{name}: {text}" if text and text != name else name


def words_of(error: BaseException) -> str:
    """Return an error's text without its class."""
    # kafka-python's errors begin with their class, and often their number.
    is_kafkas = type(error).__module__ == "kafka.errors"
    text = " ".join(map(str, error.args)) if is_kafkas else str(error)
    return os.strerror(int(text)) if text.isdecimal() and int(text) in errno.errorcode else text


def as_ours(error: BaseException) -> BaseException:
    """Convert an error to one of holdfast's."""
    if isinstance(error, (OperationalError, RemoteProtocolError)):
        return error
    code = getattr(error, "errno", None)
    if isinstance(code, int) and code > 0:
        return RemoteProtocolError(reason(error), error_code=code)
    return ClientError(reason(error))


def ends_member(error: BaseException) -> bool:
    """Return whether an error is final for a member: a fatal code, or a refusal of holdfast.

    Every other code is temporary. :func:`as_ours` converts Kafka's code without a name (-1) to an
    ClientError, so a RemoteProtocolError without a code is holdfast's own.
    """
    if not isinstance(error, RemoteProtocolError):
        return False
    return error.error_code < 0 or error.error_code in FATAL


def is_refused_login(error: BaseException) -> bool:
    """Return whether a broker refused the login, which no retry can fix."""
    return "Authentication" in type(error).__name__ or "Sasl" in type(error).__name__


def is_passing(error: BaseException) -> bool:
    """Return whether a retry can fix an error."""
    code = getattr(error, "errno", None)
    return bool(getattr(error, "retriable", False)) or (code is not None and code not in FATAL)


def _why_unreachable(servers: str, settings: ConnectionSettings, error: BaseException) -> str:
    why = why_no_answer(settings)
    if why is not None:
        return why
    protocol = settings["security.protocol"]
    return (
        f"no Kafka broker answered at {servers} over {protocol} ({reason(error)}), and a moment "
        "later one did: is it just starting?"
    )

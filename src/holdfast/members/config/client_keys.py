"""Keys of other clients' configurations: passed on, renamed, or refused with a reason.

**Rules.** A configuration that runs a consumer of Java, librdkafka or kafka-python means the same
here, or is refused before anything connects. A key of the fetching client is passed on to it
(:data:`PASSED`). Another spelling of a key means the same key (:data:`ALIASES`). A key with the
member's fixed behaviour as value is accepted without effect (:data:`FIXED_VALUES`); another value
is refused with the reason, as are keys that cannot be honoured (:data:`REFUSED`). Any other key is
unknown, and the text names the key with the same meaning: the one that shares most words, rare
words before common ones.

**Strategy.** Tables, and one function that looks a key up in them. ``docs/configuration.md`` is
written from them.

References: Kafka's consumer configuration; librdkafka, CONFIGURATION.md.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from holdfast.cluster import credentials
from holdfast.cluster.client_configs import ALIASES
from holdfast.cluster.settings import (
    integer,
    milliseconds,
    parse_boolean,
    parse_function,
    parse_name,
)
from holdfast.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PassedKey:
    """A key that is passed on to the client that fetches, with that client's default."""

    key: str
    parse: Callable[[object], object]  # raises ValueError for an invalid value
    text: str  # what it does
    unit: str = ""  # of its value, "" for none
    renamed: str = ""  # librdkafka's name of the key, if it has another

    @property
    def name(self) -> str:
        """The name of the key in librdkafka."""
        return self.renamed or self.key


def _ms(key: str, text: str) -> PassedKey:
    return PassedKey(key, milliseconds(-1), text, "ms")


_PASSED = (
    PassedKey("check.crcs", parse_boolean, "check the checksums of records"),
    _ms(
        "connections.max.idle.ms",
        "idle time after which a connection is closed; the member's own too",
    ),
    PassedKey(
        "allow.auto.create.topics", parse_boolean, "whether a look-up of a topic may create it"
    ),
    PassedKey("client.dns.lookup", parse_name, "how a broker's addresses are resolved"),
    PassedKey(
        "receive.buffer.bytes",
        integer(-1),
        "size of a socket's buffer",
        unit="bytes",
        renamed="socket.receive.buffer.bytes",
    ),
    PassedKey(
        "send.buffer.bytes",
        integer(-1),
        "size of a socket's buffer",
        unit="bytes",
        renamed="socket.send.buffer.bytes",
    ),
    PassedKey(
        "receive.message.max.bytes", integer(1_000), "largest answer of a broker", unit="bytes"
    ),
    PassedKey("max.in.flight.requests.per.connection", integer(1), "requests without an answer"),
    _ms("socket.connection.setup.timeout.ms", "time limit for a new connection"),
    PassedKey("metadata.recovery.strategy", parse_name, "what to do if no known broker answers"),
    _ms("metadata.recovery.rebootstrap.trigger.ms", "time until bootstrap.servers are used again"),
    PassedKey("enable.metrics.push", parse_boolean, "metrics to the broker (KIP-714)"),
    PassedKey("queued.min.messages", integer(1), "records fetched ahead"),
    PassedKey("queued.max.messages.kbytes", integer(1), "records fetched ahead", unit="kB"),
    _ms("fetch.queue.backoff.ms", "wait when the queue is full"),
    _ms("fetch.error.backoff.ms", "wait after a failed fetch"),
    PassedKey("message.max.bytes", integer(1_000), "largest request", unit="bytes"),
    PassedKey("message.copy.max.bytes", integer(0), "largest copied message", unit="bytes"),
    _ms(
        "topic.metadata.refresh.fast.interval.ms",
        "first interval of metadata requests for a topic that has lost its leader",
    ),
    PassedKey("topic.metadata.refresh.sparse", parse_boolean, "request only the topics in use"),
    _ms("topic.metadata.propagation.max.ms", "time until a new topic must be known"),
    PassedKey("socket.keepalive.enable", parse_boolean, "TCP keep-alives"),
    PassedKey("socket.nagle.disable", parse_boolean, "TCP_NODELAY"),
    PassedKey("socket.max.fails", integer(0), "failures until a new connection"),
    _ms("broker.address.ttl", "how long an address is kept"),
    PassedKey("broker.address.family", parse_name, "any, v4 or v6"),
    PassedKey("log.connection.close", parse_boolean, "log closed connections"),
    PassedKey("log_level", integer(0, 7), "librdkafka's level, as in syslog"),
    PassedKey("debug", parse_name, "librdkafka's contexts, to the logger holdfast.librdkafka"),
    _ms("statistics.interval.ms", "interval of calls of stats_cb"),
    PassedKey("stats_cb", parse_function, "called in poll() with librdkafka's statistics"),
    PassedKey("throttle_cb", parse_function, "called in poll() when a broker throttles"),
)
PASSED: Mapping[str, PassedKey] = {row.key: row for row in _PASSED}
"""Keys that librdkafka knows and the member does not."""

RESETS: Mapping[str, str] = {
    "beginning": "earliest",
    "smallest": "earliest",
    "end": "latest",
    "largest": "latest",
    "error": "none",
}
"""librdkafka's other words for ``auto.offset.reset``."""


_STORED = "what poll() returned counts as processed when it is called again"
FIXED_VALUES: Mapping[str, tuple[str, str]] = {
    "group.protocol": (
        "classic",
        "with another protocol the broker assigns (KIP-848), not holdfast; "
        "holdfast.confluent.Consumer takes group.protocol=consumer",
    ),
    "group.protocol.type": ("consumer", "a Consumer is in a consumer group"),
    "enable.partition.eof": ("false", "compare position() with end_offsets() instead"),
    "enable.auto.offset.store": (
        "true",
        f"{_STORED}; commit with enable.auto.commit=false instead",
    ),
    "offset.store.method": ("broker", "offsets are kept by the broker"),
    "exclude.internal.topics": ("true", "a pattern never matches a topic of Kafka's own"),
    "internal.leave.group.on.close": (
        "true",
        "close(returns=...) and holdfast.clean.leave say whether a member comes back",
    ),
    "api.version.request": ("true", "brokers always report their versions"),
}
"""Keys whose one accepted value is the member's fixed behaviour: that value, and the reason."""

_BYTES = "records come as bytes: decode them in your loop, or use holdfast.confluent"
_JAVA = "a class of Java cannot be called here"
_LISTENER = "give a listener to subscribe()"
_METRICS = "a metric of Java's client: metrics() has the numbers of the member"
_OWN_TLS = "TLS is Python's, for the member, and librdkafka's, for records; both choose it"
_PRODUCER = "it is a producer's key"

REFUSED: Mapping[str, str] = {
    "group.remote.assignor": "a broker's own assignor needs group.protocol=consumer, which is for "
    "holdfast.confluent.Consumer; partition.assignment.strategy names an assignor of holdfast",
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "interceptor.classes": _JAVA,
    "metric.reporters": _JAVA,
    "config.providers": _JAVA,
    "security.providers": _JAVA,
    "plugin.library.paths": "librdkafka's plug-ins do not see the member's requests",
    "auto.include.jmx.reporter": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "rebalance_cb": _LISTENER,
    "on_assign": _LISTENER,
    "on_revoke": _LISTENER,
    "on_lost": _LISTENER,
    "on_commit": "commit() returns when the broker has answered, and raises if it refused",
    "offset_commit_cb": "commit() returns when the broker has answered, and raises if it refused",
    "error_cb": "the next call raises an error; retried errors are logged",
    "logger": "logs go to the loggers holdfast.member and holdfast.librdkafka",
    "oauth_cb": "give the function as holdfast.oauth.token.provider",
    "consume.callback.max.messages": "poll(timeout, max_records) sets the number",
    "offset.store.path": "offsets are kept by the broker",
    "offset.store.sync.interval.ms": "offsets are kept by the broker",
    "share.acknowledgement.mode": "holdfast has no consumer of share groups",
    "ssl.cipher.suites": _OWN_TLS,
    "ssl.curves.list": _OWN_TLS,
    "ssl.sigalgs.list": _OWN_TLS,
    "ssl.protocol": _OWN_TLS,
    "ssl.enabled.protocols": _OWN_TLS,
    "ssl.provider": _OWN_TLS,
    "ssl.secure.random.implementation": _OWN_TLS,
    "ssl.crl.location": "the member's connections do not read lists of revoked certificates",
    "socket.connection.setup.timeout.max.ms": "attempts do not get longer; "
    "socket.connection.setup.timeout.ms is the time of each",
    "transactional.id": _PRODUCER,
    "enable.idempotence": _PRODUCER,
    "acks": _PRODUCER,
    "linger.ms": _PRODUCER,
    "batch.size": _PRODUCER,
    "compression.type": _PRODUCER,
    "delivery.timeout.ms": _PRODUCER,
}
"""Keys that cannot be honoured, and what to do instead."""


def is_known(key: str) -> bool:
    """Return whether :func:`checked` has an answer to ``key``."""
    return key in PASSED or key in FIXED_VALUES or key in REFUSED


def checked(key: str, given: str, value: object) -> object | None:
    """Return the value to pass on to the fetching client, None for a key without effect.

    ``key`` is in holdfast's spelling, and ``given`` as it was written.

    Raises
    ------
    ConfigError
        For an impossible value, and for a key that cannot be honoured.
    """
    if key in REFUSED:
        raise ConfigError(f"{given}: {REFUSED[key]}")
    if key in FIXED_VALUES:
        only, why = FIXED_VALUES[key]
        if str(value).lower() != only:
            raise ConfigError(f"{given}: {value!r} is not supported, only {only} is: {why}")
        return None
    try:
        return PASSED[key].parse(value)
    except ValueError as error:
        raise ConfigError(f"{given}: {error}") from None


def handled_keys() -> tuple[str, ...]:
    """Return every key that is handled although it is not a key of the member."""
    return (*PASSED, *ALIASES, *FIXED_VALUES, *REFUSED, *credentials.SPELLINGS)


def suggestion(key: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown key: a known key like it, or nothing.

    Rare words count more than common ones: ``timeout`` is in many keys, ``isolation`` in one.
    """
    words = {name: set(re.split(r"[._\-]", name)) for name in known}
    often: dict[str, int] = {}
    for parts in words.values():
        for word in parts:
            often[word] = often.get(word, 0) + 1
    wanted = {_same_word(word, often) for word in re.split(r"[._\-]", key.lower())}

    def weight(parts: set[str]) -> float:
        return sum(1 / often.get(word, 1) for word in parts)

    def likeness(name: str) -> tuple[float, float]:
        shared = weight(wanted & words[name])
        return shared / weight(wanted), shared / weight(wanted | words[name])

    best = max(sorted(words), key=likeness, default="")
    return f"; did you mean {best!r}?" if best and likeness(best)[0] >= _LIKE_ENOUGH else ""


_LIKE_ENOUGH = 0.5
_SHORT = 3


def _same_word(word: str, known: Iterable[str]) -> str:
    """Return the word of the known keys for which ``word`` is misspelt or short."""
    known = tuple(known)
    if word not in known and len(word) >= _SHORT:
        longer = [other for other in known if other.startswith(word)]
        if len(longer) == 1:
            return longer[0]
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=0.75)), word)

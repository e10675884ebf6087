"""Topics, offsets and groups of a live cluster, for the commands.

**Rules.** Nothing is written and no group is joined. A caller reads the commits before it calls
:meth:`LiveCluster.snapshot`, because a lag could otherwise be negative. A partition without a
leader is left out; nothing waits for it.

**Strategy.** Requests are those of a member (:mod:`~holdfast.cluster.lookup`): offsets take one
request per leader for any number of partitions. Only the records of a small topic are read by a
consumer, one without a group.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.cluster import client_configs, credentials
from holdfast.cluster.diagnosis import NoteStep, failing_step, why_no_answer
from holdfast.cluster.first_unread import FirstUnread, TopicPartition, Wanted, first_unread
from holdfast.cluster.settings import ConnectionSettings
from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.cluster.tokens import AWS_MECHANISM, AWS_REGION, Tokens, aws_region, token_of
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.wire.one.topic_ids import topic_id_text
from holdfast.errors import (
    ClientError,
    ConfigError,
    RemoteProtocolError,
    SourceError,
    UnreadableTopicError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.cluster.lookup import ClusterTopic, Lookup

SendRequest = Callable[[str, Callable[["Lookup"], "concurrent.futures.Future[Any]"]], Any]
"""Takes the name of a request and the function that sends it, and returns the answer."""

TIMEOUT_MS = 30_000
BOOTSTRAP_TIMEOUT_MS = 5_000
_WAITS = ("request.timeout.ms", "default.api.timeout.ms")
"""Java's names of the time-outs of Spark's client."""
SHARE_TOPIC = "__share_group_state"
_NO_RIGHT = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED, 31}
"""31: CLUSTER_AUTHORIZATION_FAILED, which no member meets."""
_NO_LOGIN = "ssl.crl.location"  # librdkafka's key, a letter away from ssl.ca.location


class PartitionEnds(NamedTuple):
    """The begin, last stable and end offset of a partition."""

    begin: int
    stable: int  # the last stable offset: open transactions begin there, or there is none
    end: int  # after the last record that all in-sync replicas have


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """A cluster at an address.

    A query of a cluster that cannot be reached, is too old, or refuses is a SourceError; a
    configuration that cannot be honoured is a ConfigError.
    """

    bootstrap: str  # HOST:PORT, or several with commas
    # Kafka's own client properties (``security.protocol``, ...).
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_ms: int = TIMEOUT_MS  # request timeout

    @property
    def spark_options(self) -> Mapping[str, str]:
        """Return client properties for Spark's Kafka source, in Java's spelling."""
        return self._for_spark(*self._settings())

    @property
    def msk_region(self) -> str | None:
        """Return the region of a cluster of Amazon MSK with logins by IAM; else None."""
        return self._region(self._settings()[0])

    def check(self) -> None:
        """Check that the cluster answers."""
        settings, others = self._settings()
        provider = settings[credentials.PROVIDER]
        if provider is None or getattr(provider, "java", None) is not None:
            self._for_spark(settings, others)  # what Java's client cannot honour is an error here
        with self.connected(settings):
            pass

    def check_steps(self, note: NoteStep) -> None:
        """Check each step of a connection, and call ``note`` after each one that works."""
        from holdfast.cluster.groups import GroupQuestions

        settings, others = self._settings()
        for key, value in settings.shown().items():
            note("setting", f"{key} = {_readable(value)}")
        if others:
            note("setting", f"for Spark's client alone: {', '.join(sorted(others))}")
        if isinstance(provider := settings[credentials.PROVIDER], Tokens):
            note("setting", f"tokens come from {provider.origin}")
        if (failed := failing_step(settings, note)) is not None:
            raise SourceError(failed)
        with self.connected(settings) as send:
            note("login", f"it works: {_principal(settings)}")
            found = send("Metadata", lambda lookup: lookup.topics())
            n_groups = len(send("ListGroups", lambda lookup: GroupQuestions(lookup).ask()).listed)
            seen = f"cluster {found.cluster_id}, topics: {len(found.found)}, groups: {n_groups}"
            if not (found.found or n_groups):
                seen += "; the cluster has none, or this principal needs DESCRIBE on them"
            note("metadata", seen)
        try:
            self._for_spark(settings, others)
        except ConfigError as error:
            note("Spark", f"it cannot log in so: {error}")
        else:
            is_plain = self._region(settings) is None
            jar = "" if is_plain else ", with Amazon's jar, which a session fetches"
            note("Spark", f"its client gets the same login{jar}")

    def partition_ends(
        self, topic: str, only: Callable[[int], Container[int] | None] | None = None
    ) -> Mapping[int, PartitionEnds]:
        """Return the begin, last stable and end offset of each partition of ``topic``.

        Parameters
        ----------
        only : callable, optional
            Takes the number of partitions and returns the wanted ones; None: all. One of them
            without a leader is a SourceError.

        Raises
        ------
        UnreadableTopicError
            If the cluster lacks the topic, or the principal may not read it.
        """
        with self.connected() as send:
            answer = send("Metadata", lambda lookup: lookup.topics([topic], operations=True))
            if not answer.found:
                raise self._not_found(topic, answer.refused.get(topic, 0))
            (found,) = answer.found
            if not found.is_readable:
                raise UnreadableTopicError(str(self._no_right(f"READ on topic {topic!r}")))
            partitions = led(found)
            wanted = None if only is None else only(len(found.leaders))
            if wanted is not None:
                listed = [p for p in range(len(found.leaders)) if p in wanted]
                gone = [p for p in listed if p not in partitions]
                if gone:
                    raise SourceError(
                        f"partition {gone[0]} of {topic}, which has the requested records, has no "
                        "leader"
                    )
                partitions = listed
            return ends_of(send, topic, partitions)

    def _not_found(self, topic: str, code: int) -> SourceError:
        if code in _NO_RIGHT:
            refused = self._no_right(f"topic {topic!r}: {ErrorCode(code).name}")
            return UnreadableTopicError(str(refused))
        return UnreadableTopicError(
            f"{self.bootstrap} has no topic {topic!r}: nothing was committed yet, or commits are "
            "kept elsewhere"
        )

    def group_names(self) -> set[str]:
        """Return the groups that the brokers know."""
        from holdfast.cluster.groups import GroupQuestions

        with self.connected() as send:
            return {*send("ListGroups", lambda lookup: GroupQuestions(lookup).ask()).listed}

    def cluster_id(self) -> str:
        """Return the cluster id."""
        with self.connected() as send:
            found: str = send("Metadata", lambda lookup: lookup.topics([])).cluster_id
            return found

    def snapshot(self, *, share_state: bool = True) -> ClusterSnapshot:
        """Return every topic with its id, and the begin and end offset of each partition.

        With ``share_state`` also the records of ``__share_group_state``, where the cluster has any.
        """
        with self.connected() as send:
            answer = send("Metadata", lambda lookup: lookup.topics())
            offsets = offsets_of(send, {topic.name: led(topic) for topic in answer.found})
        taken_at = datetime.now(UTC).isoformat()
        share = [one for one in answer.found if share_state and one.name == SHARE_TOPIC]
        return ClusterSnapshot(
            share_state=self._records(SHARE_TOPIC, led(share[0])) if share else (),
            cluster_id=answer.cluster_id,
            topics=topic_rows(answer.found),
            offsets=offsets,
            taken_at=taken_at,
        )

    def first_unread(self, wanted: Sequence[Wanted]) -> list[FirstUnread]:
        """Find the first unread record of each partition."""
        if not wanted:
            return []
        with self.connected() as send:
            return first_unread_of(send, wanted, round(datetime.now(UTC).timestamp() * 1000))

    def _records(
        self, topic: str, partitions: Sequence[int]
    ) -> list[tuple[int, int, int, bytes | None, bytes | None]]:
        """Return every record of a small topic, up to its current end."""
        from kafka import KafkaConsumer, TopicPartition

        found = []
        settings, _ = self._settings()
        with self._errors(settings, "Fetch"):
            consumer = KafkaConsumer(
                group_id=None,
                enable_auto_commit=False,
                **client_configs.kafka_python_connection(settings),
            )
            try:
                here = [TopicPartition(topic, p) for p in partitions]
                consumer.assign(here)
                consumer.seek_to_beginning(*here)
                ends = consumer.end_offsets(here, timeout_ms=self.timeout_ms)
                while any(consumer.position(tp) < end for tp, end in ends.items()):
                    for records in consumer.poll(500).values():
                        found += [
                            (r.partition, r.offset, r.timestamp * 1000, r.key, r.value)
                            for r in records
                        ]
            finally:
                consumer.close()
        return sorted(found, key=lambda record: record[:2])

    def _settings(self) -> tuple[ConnectionSettings, dict[str, object]]:
        """Return the settings of connections, and the properties for Spark's client alone.

        Stores are read again, because a long run outlives certificates.
        """
        return client_settings(self.bootstrap, self.config, self.timeout_ms)

    def _for_spark(
        self, settings: ConnectionSettings, others: Mapping[str, object]
    ) -> Mapping[str, str]:
        return {
            **dict.fromkeys(_WAITS, str(self.timeout_ms)),
            **client_configs.for_java(others),
            **credentials.java(settings.values),
        }

    def _region(self, settings: ConnectionSettings) -> str | None:
        made_by = getattr(settings[credentials.PROVIDER], "java", None) or {}
        if made_by.get("sasl.mechanism") != AWS_MECHANISM:
            return None
        return aws_region(self.config.get(AWS_REGION), self.bootstrap)

    @contextmanager
    def connected(self, settings: ConnectionSettings | None = None) -> Iterator[SendRequest]:
        """Connect for several requests: the yielded function takes a name and what sends it."""
        from holdfast.cluster.connections import Connections
        from holdfast.cluster.lookup import Lookup

        known = settings or self._settings()[0]
        connections = Connections(known)
        lookup = Lookup(connections)

        def send(request: str, ask: Callable[[Lookup], concurrent.futures.Future[Any]]) -> Any:
            with self._errors(known, request, connections.release):
                return ask(lookup).result()

        try:
            with self._errors(known, "ApiVersions"):
                connections.open(min(BOOTSTRAP_TIMEOUT_MS, self.timeout_ms))
            yield send
        finally:
            connections.close()

    @contextmanager
    def _errors(
        self, settings: ConnectionSettings, request: str, release: str = ""
    ) -> Iterator[None]:
        """Convert any error of one request to an error of the cluster.

        A client library may fail at an unexpected answer with any exception.
        """
        try:
            yield
        except Exception as error:
            code = getattr(error, "error_code", getattr(error, "errno", 0))
            if code in _NO_RIGHT:
                raise self._no_right(_line(error)) from error
            if isinstance(error, ConfigError):
                raise
            if isinstance(error, RemoteProtocolError):
                why: str | None = _line(error)
            elif isinstance(error, SourceError):
                why = str(error)
            else:
                why = why_no_answer(settings)
            if why is not None:
                raise SourceError(f"cannot read from the cluster: {why}") from error
            of = f", Kafka {release}" if release else ""
            raise SourceError(
                f"cannot read from the cluster at {self.bootstrap} ({request}{of}): {_line(error)}"
            ) from error

    def _no_right(self, what: str) -> SourceError:
        return SourceError(
            f"the principal may not read that from {self.bootstrap}: {what}; "
            'the page "The command line" lists what a principal needs for each command'
        )


def _readable(value: object) -> str:
    """Return the value of a setting in one short line."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    text = str(value)
    return f"PEM of {len(text)} characters" if text.startswith("-----BEGIN") else text


def _line(error: BaseException) -> str:
    """Return one line for people; a ClientError already names a client library's error."""
    text = str(error).splitlines()[0] if str(error) else ""
    if text and type(error) is ClientError:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def offsets_of(
    send: SendRequest,
    partitions: Mapping[str, Sequence[int]],
    unknown: dict[tuple[str, int], str] | None = None,
) -> list[tuple[str, int, int, int]]:
    """Return the begin and end offset of each of the partitions, sorted.

    A partition whose leader does not answer within some seconds is left out; ``unknown`` is filled
    with the reason.
    """
    from holdfast.cluster.lookup import EARLIEST, LATEST

    left = [(topic, p) for topic, ps in sorted(partitions.items()) for p in ps]
    found = list[Mapping[tuple[str, int], int]]()
    for at in (EARLIEST, LATEST):
        known, why = send("ListOffsets", partial(_known_offsets, left, at))
        found.append(known)
        left = [tp for tp in left if tp in known]
        if unknown is not None:
            unknown.update(why)
    begin, end = found
    return [(*tp, begin[tp], end[tp]) for tp in left]


def _known_offsets(tps: Sequence[tuple[str, int]], at: int, lookup: Lookup) -> Any:
    return lookup.known_offsets(tps, at)


def ends_of(send: SendRequest, topic: str, partitions: Sequence[int]) -> dict[int, PartitionEnds]:
    """Return the begin, last stable and end offset of each of the partitions of a topic."""
    from holdfast.cluster.lookup import EARLIEST, LATEST

    tps = [(topic, p) for p in partitions]
    # In this order: a later request can only return a later offset.
    begin = _offset_of_each(send, tps, EARLIEST)
    stable = _offset_of_each(send, tps, LATEST, committed_only=True)
    end = _offset_of_each(send, tps, LATEST)
    return {tp[1]: PartitionEnds(begin[tp], stable[tp], end[tp]) for tp in tps}


def _offset_of_each(
    send: SendRequest, tps: Sequence[tuple[str, int]], at: int, *, committed_only: bool = False
) -> Mapping[tuple[str, int], int]:
    """Return one offset of each partition; a missing one, as its leader moves, is requested again.

    The request for it alone is repeated until the time-out, and then fails.
    """
    found: dict[tuple[str, int], int] = {}

    def ask(lookup: Lookup) -> concurrent.futures.Future[dict[tuple[str, int], int]]:
        missing = [tp for tp in tps if tp not in found]
        return lookup.list_offsets(missing, at, committed_only=committed_only)

    while len(found) < len(tps):
        found |= send("ListOffsets", ask)
    return found


def first_unread_of(send: SendRequest, wanted: Sequence[Wanted], now_ms: int) -> list[FirstUnread]:
    """Find first unread records, as :meth:`LiveCluster.first_unread` does."""

    def fetch(
        offsets: Mapping[TopicPartition, int], n_bytes: int, at_once: int
    ) -> Mapping[TopicPartition, Any]:
        found: Mapping[TopicPartition, Any] = send(
            "Fetch", lambda lookup: lookup.first_batches(offsets, n_bytes, at_once)
        )
        return found

    def ask(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int] | None]:
        found = send("ListOffsets", lambda lookup: lookup.offsets_at(times))
        return {
            tp: None if offset < 0 else (offset, time_ms) for tp, (offset, time_ms) in found.items()
        }

    return first_unread(wanted, fetch, ask, now_ms)


def _principal(settings: ConnectionSettings) -> str:
    """Return how a client logs in, and as whom if it is known here."""
    mechanism = settings["sasl.mechanism"]
    if mechanism == "OAUTHBEARER":
        return f"{mechanism} as {token_of(settings[credentials.PROVIDER]()).principal!r}"
    if mechanism is not None:
        user = settings["sasl.username"]
        return f"{mechanism} as {user!r}" if user is not None else mechanism
    found = credentials.client_certificate(settings.values)
    return "no user (no SASL)" if found is None else f"the certificate of {found[0]}"


def topic_rows(topics: Sequence[ClusterTopic]) -> list[tuple[str, str, int]]:
    """Return id, name and number of partitions of topics."""
    return [(topic_id_text(t.topic_id), t.name, len(t.leaders)) for t in topics]


def led(topic: ClusterTopic) -> list[int]:
    """Return the partitions that have a leader, ascending."""
    return sorted(p for p, leader in topic.leaders.items() if leader >= 0)


def client_settings(
    bootstrap: str, config: Mapping[str, object], timeout_ms: int
) -> tuple[ConnectionSettings, dict[str, object]]:
    """Return the settings of connections, and the other properties, for Spark's client alone."""
    others = credentials.normal({**config, "bootstrap.servers": bootstrap})
    given: dict[str, object] = {"request.timeout.ms": timeout_ms, "bootstrap.servers": bootstrap}
    del others["bootstrap.servers"]
    given |= {key: others.pop(key) for key in [*others] if key in credentials.KEYS}
    for key in others:
        # A misspelt login or TLS key would be dropped, and the connection readable by anybody.
        near = get_close_matches(key, (*credentials.KEYS, *credentials.SPELLINGS), 1, 0.9)
        if near and key != _NO_LOGIN:
            raise ConfigError(f"unknown configuration key {key!r}; did you mean {near[0]!r}?")
    return ConnectionSettings.of(given), others

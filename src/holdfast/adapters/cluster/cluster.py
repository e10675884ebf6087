"""Topics, offsets and groups of a live cluster, for the commands that read one.

**Rules.** Nothing is written and no group is joined. A caller reads the commits before it calls
:meth:`LiveCluster.snapshot`, because a lag could be negative otherwise. A partition without a
leader is left out; nothing waits for it.

**Strategy.** kafka-python's admin client reads metadata. A consumer without a group reads offsets,
with one request per leader for any number of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from holdfast.adapters import client_keys, credentials
from holdfast.adapters.cluster import render
from holdfast.adapters.cluster.diagnosis import why_no_answer
from holdfast.adapters.cluster.record_times import Place, record_times
from holdfast.adapters.settings import Settings
from holdfast.errors import ConfigError, SourceError
from holdfast.wire.one.topic_ids import read_topic_id, topic_id_text

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_MS = 30_000
BOOTSTRAP_TIMEOUT_MS = 5_000
_WAITS = ("request.timeout.ms", "default.api.timeout.ms")
"""Java's names of what Spark's client waits."""
SHARE_TOPIC = "__share_group_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """Topics and offsets of a cluster at one moment.

    Parameters
    ----------
    cluster_id : str
        The cluster's own id.
    topics : sequence of (str, str, int)
        Topic id (22 characters), topic, partitions; sorted by topic.
    offsets : sequence of (str, int, int, int)
        Topic, partition, begin offset, end offset; sorted.
    taken_at : str
        ISO 8601, UTC; when the last offset had been read.
    share_state : sequence of (int, int, int, bytes or None, bytes or None)
        Partition, offset, microseconds, key and value of each record of ``__share_group_state``.
    """

    cluster_id: str
    topics: Sequence[tuple[str, str, int]]
    offsets: Sequence[tuple[str, int, int, int]]
    taken_at: str
    share_state: Sequence[tuple[int, int, int, bytes | None, bytes | None]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """A cluster at an address.

    Parameters
    ----------
    bootstrap : str
        HOST:PORT, or several with commas.
    config : mapping
        Kafka's own client properties (``security.protocol``, ...).
    timeout_ms : int
        Wait so long for an answer.
    """

    bootstrap: str
    config: Mapping[str, str] = field(default_factory=dict)
    timeout_ms: int = TIMEOUT_MS

    @property
    def spark_options(self) -> Mapping[str, str]:
        """Client properties for Spark's Kafka source, in Java's spelling."""
        found = credentials.normal(self.config)
        others = {key: value for key, value in found.items() if key not in credentials.KEYS}
        return {
            **dict.fromkeys(_WAITS, str(self.timeout_ms)),
            **client_keys.for_java(others),
            **credentials.java(client_settings(self.bootstrap, found).values),
        }

    def _client(self) -> dict[str, Any]:
        """Keywords of kafka-python's clients."""
        settings = client_settings(self.bootstrap, self.config)
        return {
            **render.kafka_python_connection(settings),
            "request_timeout_ms": self.timeout_ms,
            "bootstrap_timeout_ms": min(BOOTSTRAP_TIMEOUT_MS, self.timeout_ms),
        }

    def check(self) -> None:
        """Ask the cluster for a sign of life.

        Raises
        ------
        SourceError
            It cannot be reached.
        ConfigError
            The address is not HOST:PORT.
        """
        settings = client_settings(self.bootstrap, self.config)
        _ = self.spark_options  # what Java's client cannot honour is told now
        why = why_no_answer(settings)
        if why is not None:
            raise SourceError(f"cannot read from the cluster: {why}")
        with self._admin() as admin:
            admin.describe_cluster()

    def partition_ends(
        self, topic: str, only: Callable[[int], Container[int] | None] | None = None
    ) -> Mapping[int, tuple[int, int]]:
        """Begin and committed end offset of each partition of ``topic``.

        Parameters
        ----------
        only : callable, optional
            Takes the number of partitions and says which of them are wanted; None: all.

        Raises
        ------
        SourceError
            The cluster cannot be reached, has no such topic, or a partition that is wanted by
            itself has no leader.
        """
        with self._admin() as admin:
            found = [t for t in admin.describe_topics() if t["name"] == topic]
        if not found:
            raise SourceError(
                f"{self.bootstrap} has no topic {topic!r}: nothing was ever committed"
            )
        partitions = _led(found[0])
        wanted = None if only is None else only(len(found[0]["partitions"]))
        if wanted is not None:
            listed = [p for p in range(len(found[0]["partitions"])) if p in wanted]
            gone = [p for p in listed if p not in partitions]
            if gone:
                raise SourceError(
                    f"partition {gone[0]} of {topic}, which holds what was asked for, has no leader"
                )
            partitions = listed
        rows = self._offsets({topic: partitions}, isolation="read_committed")
        return {partition: (begin, end) for _, partition, begin, end in rows}

    def group_names(self) -> set[str]:
        """Groups that the brokers know.

        Raises
        ------
        SourceError
            The cluster cannot be reached.
        """
        with self._admin() as admin:
            return {str(group["group_id"]) for group in admin.list_groups()}

    def snapshot(self) -> ClusterSnapshot:
        """Every topic with its id, and the begin and end offset of each partition.

        Raises
        ------
        SourceError
            The cluster cannot be reached.
        """
        with self._admin() as admin:
            described = sorted(admin.describe_topics(), key=lambda t: str(t["name"]))
            cluster_id = str(admin.describe_cluster().get("cluster_id") or "")
        offsets = self._offsets(
            {t["name"]: _led(t) for t in described}, isolation="read_uncommitted"
        )
        share = [t for t in described if t["name"] == SHARE_TOPIC]
        return ClusterSnapshot(
            share_state=self._records(SHARE_TOPIC, _led(share[0])) if share else (),
            cluster_id=cluster_id,
            topics=topic_rows(described),
            offsets=offsets,
            taken_at=datetime.now(UTC).isoformat(),
        )

    def _offsets(
        self, partitions: Mapping[str, Sequence[int]], *, isolation: str
    ) -> list[tuple[str, int, int, int]]:
        from kafka import KafkaConsumer, TopicPartition

        tps = [TopicPartition(t, p) for t, ps in sorted(partitions.items()) for p in ps]
        if not tps:
            return []
        with self._errors():
            consumer = KafkaConsumer(
                group_id=None,
                enable_auto_commit=False,
                isolation_level=isolation,
                **self._client(),
            )
            try:
                begin = consumer.beginning_offsets(tps, timeout_ms=self.timeout_ms)
                end = consumer.end_offsets(tps, timeout_ms=self.timeout_ms)
            finally:
                consumer.close()
        return [(tp.topic, tp.partition, begin[tp], end[tp]) for tp in tps]

    def times_at(self, wanted: Sequence[tuple[str, int, int, int]]) -> list[int | None]:
        """Times of records in milliseconds since 1970; None where the cluster does not tell.

        Parameters
        ----------
        wanted : sequence of (str, int, int, int)
            Topic, partition, offset, and a time that is likely to be near the record's own.

        Raises
        ------
        SourceError
            The cluster cannot be reached.
        """
        from kafka import KafkaConsumer, TopicPartition

        if not wanted:
            return []
        with self._errors():
            consumer = KafkaConsumer(group_id=None, enable_auto_commit=False, **self._client())

            def ask(times: Mapping[tuple[str, int], int]) -> dict[Place, tuple[int, int] | None]:
                asked = {TopicPartition(*place): time for place, time in times.items()}
                found = consumer.offsets_for_times(asked, timeout_ms=self.timeout_ms)
                return {
                    (tp.topic, tp.partition): None if one is None else (one.offset, one.timestamp)
                    for tp, one in found.items()
                }

            try:
                return record_times(wanted, ask, round(datetime.now(UTC).timestamp() * 1000))
            finally:
                consumer.close()

    def _records(
        self, topic: str, partitions: Sequence[int]
    ) -> list[tuple[int, int, int, bytes | None, bytes | None]]:
        """Every record of a small topic, as far as it goes now."""
        from kafka import KafkaConsumer, TopicPartition

        found = []
        with self._errors():
            consumer = KafkaConsumer(
                group_id=None,
                enable_auto_commit=False,
                **self._client(),
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

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        from kafka import KafkaAdminClient

        with self._errors():
            admin = KafkaAdminClient(**self._client())
            try:
                yield admin
            finally:
                admin.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from kafka.errors import AuthorizationError, KafkaError

        from holdfast.adapters.cluster.refused import mend_connects

        mend_connects()
        try:
            yield
        except AuthorizationError as error:
            raise SourceError(
                f"the principal may not read that from {self.bootstrap}: {_line(error)}; "
                'docs/cli.md, "What a principal needs", lists the ACLs of each command'
            ) from error
        except (KafkaError, OSError, ValueError) as error:
            settings = client_settings(self.bootstrap, self.config)
            why = why_no_answer(settings, client_failed=True)
            raise SourceError(
                f"cannot read from the cluster: {why}"
                if why is not None
                else f"cannot read from the cluster at {self.bootstrap}: {_line(error)}"
            ) from error


def _line(error: BaseException) -> str:
    """One line for people."""
    text = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def topic_rows(described: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """Id, name and number of partitions of topics as kafka-python describes them.

    It gives an id as a UUID or as its text, by the way it was asked.
    """
    return [
        (topic_id_text(read_topic_id(str(t["topic_id"]))), t["name"], len(t["partitions"]))
        for t in described
    ]


def _led(topic: Mapping[str, Any]) -> list[int]:
    """Partitions of a described topic that have a leader, ascending."""
    parts = topic["partitions"]
    return sorted(p["partition_index"] for p in parts if p.get("leader_id", -1) >= 0)


def client_settings(bootstrap: str, config: Mapping[str, object]) -> Settings:
    """The credentials of a client's properties; its other keys are for Spark's client alone.

    Raises
    ------
    ConfigError
        For what cannot be honoured, or an address that is not HOST:PORT.
    """
    found = credentials.normal(config)
    ours = {key: value for key, value in found.items() if key in credentials.KEYS}
    for key in found.keys() - ours.keys():
        # A login or TLS that is misspelt would be left out, and the connection open to read.
        near = get_close_matches(key, (*credentials.KEYS, *credentials.SPELLINGS), 1, 0.9)
        if near and key not in client_keys.others():
            raise ConfigError(f"unknown configuration key {key!r}; did you mean {near[0]!r}?")
    return Settings.parse({**ours, "bootstrap.servers": bootstrap, "group.id": "none"})

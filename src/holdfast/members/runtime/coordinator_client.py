"""The requests of one member to its coordinator: the machine's, commits, and the group's lags.

**Rules.** There are two connections to the coordinator: JoinGroup and SyncGroup go over one, every
other request over the other. A coordinator answers a connection in order and holds a JoinGroup for
as long as the rebalance takes. Each request of the machine has exactly one event, its response or
its failure, which ``post`` gets on the IO thread. ``fail`` gets an error that no retry can fix (a
refused login, no permission for the group). The built-in source of lags joins no group and commits
nothing; if a response is missing it raises an error.

**Strategy.** kafka-python builds and parses the messages; their versions are negotiated within
:data:`~holdfast.cluster.versions.REQUESTS`. Each attempt builds a new request: a request keeps the
version in which it was sent, and the next broker may support another one. Lags take one request per
broker, whatever the number of partitions: begin and end offsets come from the partitions' leaders,
committed offsets from the coordinator.

References: KIP-345, KIP-447 (require_stable), KIP-709 (OffsetFetch v8), KIP-800, KIP-814;
KAFKA-5337 (lags).
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from holdfast.cluster.connections import (
    Connections,
    TopicPartition,
    as_ours,
    is_refused_login,
    raise_code,
    reason,
)
from holdfast.cluster.lookup import EARLIEST, LATEST, Lookup
from holdfast.cluster.versions import REQUESTS
from holdfast.core.machine import actions, events
from holdfast.core.machine.codes import ErrorCode, describe
from holdfast.core.machine.shared_values import OffsetToCommit
from holdfast.errors import RemoteProtocolError
from holdfast.members.config.settings import Settings

if TYPE_CHECKING:
    from holdfast.core.machine.shared_values import Identity
    from holdfast.core.model.columns import I64
    from holdfast.members.runtime.leader_planner import Lags, LagSource


_GROUPS_SINCE = 8  # the version of OffsetFetch with several groups


class CoordinatorClient:
    """The group requests of one member.

    On the IO thread ``post`` gets the machine events that answer requests, and ``fail`` an error
    that ends the member.
    """

    def __init__(
        self,
        connections: Connections,
        post: Callable[[events.Event], None],
        fail: Callable[[BaseException], None],
    ):
        from kafka.protocol import consumer, metadata  # loaded by the connections

        self._requests, self._metadata = consumer, metadata
        self._connections = connections
        self._send = connections.send
        self._group: str = connections.settings["group.id"]
        self._post = post
        self._fail = fail
        self._join_node: object = None
        self._heartbeat_node: object = None

    def perform(self, action: actions.Action) -> None:
        """Send the request of an action; ``post`` gets the event of its response."""
        match action:
            case actions.FindCoordinator():
                self._submit(action.request, partial(self._find, action))
            case actions.SendJoin():
                self._submit(action.request, partial(self._join, action))
            case actions.SendSync():
                self._submit(action.request, partial(self._sync, action))
            case actions.SendHeartbeat():
                self._submit(action.request, partial(self._heartbeat, action))
            case actions.SendLeave():
                self._submit(action.request, partial(self._leave, action))
            case _:
                raise AssertionError(f"{type(action).__name__} is not a request")

    def _submit(self, request: int, work: Callable[[], Coroutine[Any, Any, events.Event]]) -> None:
        def failed(error: BaseException) -> None:
            is_refused = is_refused_login(error) and not self._connections.tries_logins_again
            if isinstance(error, RemoteProtocolError) or is_refused:
                self._fail(as_ours(error))
            self._post(events.RequestFailed(request, reason(error)))

        self._connections.submit(work, self._post, failed)

    def locate(self) -> concurrent.futures.Future[None]:
        """Find the coordinator, for a client without a machine."""
        return self._connections.future(lambda: self._locate(self._connections.timeout_ms))

    async def _find(self, action: actions.FindCoordinator) -> events.Event:
        await self._locate(action.timeout_ms)
        return events.CoordinatorFound(action.request)

    async def _locate(self, timeout_ms: int) -> None:
        request = self._metadata.FindCoordinatorRequest(
            key=self._group,
            key_type=0,
            coordinator_keys=[self._group],
            **REQUESTS["FindCoordinator"].bounds,
        )
        response = await self._send(request, None, timeout_ms)
        coordinator = response.coordinators[0] if response.coordinators else response
        raise_code(coordinator.error_code)
        cluster = self._connections.cluster
        self._join_node = cluster.add_coordinator(
            coordinator, self._metadata.CoordinatorType.GROUP, self._group
        )
        # The broker's ordinary connection is the second one.
        self._heartbeat_node = coordinator.node_id
        if cluster.broker_metadata(coordinator.node_id) is None:
            await cluster.refresh_metadata()

    async def _join(self, action: actions.SendJoin) -> events.Event:
        request = self._requests.JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=action.session_timeout_ms,
            rebalance_timeout_ms=action.rebalance_timeout_ms,
            member_id=action.member_id,
            group_instance_id=action.instance_id,
            protocol_type=action.protocol_type,
            protocols=list(action.protocols),
            reason=action.reason[:255],
            **REQUESTS["JoinGroup"].bounds,
        )
        response = await self._send(request, self._join_node, action.timeout_ms)
        members = tuple(
            events.JoinedMember(
                member_id=m.member_id,
                instance_id=m.group_instance_id,
                metadata=bytes(m.metadata),
            )
            for m in response.members
        )
        return events.JoinAnswered(
            request=action.request,
            error=response.error_code,
            generation=response.generation_id,
            protocol_name=response.protocol_name or "",
            leader_id=response.leader or "",
            member_id=response.member_id or "",
            members=members,
            skip_assignment=bool(getattr(response, "skip_assignment", False)),
        )

    async def _sync(self, action: actions.SendSync) -> events.Event:
        request = self._requests.SyncGroupRequest(
            **self._identity(action),
            protocol_type=action.protocol_type,
            protocol_name=action.protocol_name,
            assignments=list(action.assignments),
            **REQUESTS["SyncGroup"].bounds,
        )
        response = await self._send(request, self._join_node, action.timeout_ms)
        return events.SyncAnswered(
            request=action.request,
            error=response.error_code,
            assignment=bytes(response.assignment or b""),
        )

    async def _heartbeat(self, action: actions.SendHeartbeat) -> events.Event:
        request = self._requests.HeartbeatRequest(
            **self._identity(action), **REQUESTS["Heartbeat"].bounds
        )
        response = await self._send(request, self._heartbeat_node, action.timeout_ms)
        return events.HeartbeatAnswered(action.request, response.error_code)

    def _identity(self, action: actions.SendSync | actions.SendHeartbeat) -> dict[str, Any]:
        return {
            "group_id": self._group,
            "generation_id": action.generation,
            "member_id": action.member_id,
            "group_instance_id": action.instance_id,
        }

    async def _leave(self, action: actions.SendLeave) -> events.Event:
        identity = self._requests.LeaveGroupRequest.MemberIdentity(
            member_id=action.member_id,
            group_instance_id=action.instance_id,
            reason=action.reason[:255],
        )
        request = self._requests.LeaveGroupRequest(
            group_id=self._group, members=[identity], **REQUESTS["LeaveGroup"].bounds
        )
        response = await self._send(request, self._heartbeat_node, action.timeout_ms)
        return events.LeaveAnswered(action.request, response.error_code)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetToCommit], identity: Identity
    ) -> concurrent.futures.Future[int]:
        """Commit with exactly the given identity.

        The future has Kafka's first error code that is not 0, else 0; an error without a response.
        """
        kind = self._requests.OffsetCommitRequest
        request = kind(
            group_id=self._group,
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=_commit_topics(kind.OffsetCommitRequestTopic, offsets),
            **REQUESTS["OffsetCommit"].bounds,
        )

        async def work() -> int:
            response = await self._send(request, self._heartbeat_node)
            refused = [(t.name, p.error_code) for t in response.topics for p in t.partitions]
            topic, code = next((one for one in refused if one[1]), ("", 0))
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                # The caller gets only the code, and does not know the topic.
                text = f"topic {topic!r}: {describe(code)}"
                self._fail(RemoteProtocolError(text, error_code=code))
            return code

        return self._connections.future(work)

    def wait(self, seconds: float) -> concurrent.futures.Future[None]:
        """Wait on the IO thread; fail if the connections are closed."""
        return self._connections.wait(seconds)

    def committed(
        self, partitions: Collection[TopicPartition], *, stable: bool = True
    ) -> concurrent.futures.Future[dict[TopicPartition, int]]:
        """Fetch committed offsets, -1 for none; ``stable``: after open transactions (KIP-447)."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions):
            topics.setdefault(topic, []).append(partition)

        async def work() -> dict[TopicPartition, int]:
            return await self._connections.again(lambda: self._fetch_committed(topics, stable))

        return self._connections.future(work)

    async def _fetch_committed(
        self, topics: Mapping[str, list[int]], stable: bool
    ) -> dict[TopicPartition, int]:
        kind = self._requests.OffsetFetchRequest
        request = _fetch_request(kind, self._group, topics, stable)
        response = await self._send(request, self._heartbeat_node)
        if response.API_VERSION >= _GROUPS_SINCE:
            response = response.groups[0]
        raise_code(response.error_code)
        offsets = {}
        for topic in response.topics:
            for part in topic.partitions:
                raise_code(part.error_code, f"topic {topic.name!r}")
                offsets[(topic.name, part.partition_index)] = part.committed_offset
        return offsets


def _fetch_request(kind: Any, group: str, topics: Mapping[str, list[int]], stable: bool) -> Any:
    """Build a request for one group, in the fields of every version."""
    alone, grouped = kind.OffsetFetchRequestTopic, kind.OffsetFetchRequestGroup
    return kind(
        group_id=group,
        topics=[alone(name=t, partition_indexes=ps) for t, ps in topics.items()],
        groups=[
            grouped(
                group_id=group,
                topics=[
                    grouped.OffsetFetchRequestTopics(name=t, partition_indexes=ps)
                    for t, ps in topics.items()
                ],
            )
        ],
        require_stable=stable,
        **REQUESTS["OffsetFetch"].bounds,
    )


def _commit_topics(kind: Any, offsets: Mapping[TopicPartition, OffsetToCommit]) -> list[Any]:
    topics: dict[str, list[Any]] = {}
    for (topic, partition), at in sorted(offsets.items()):
        topics.setdefault(topic, []).append(
            kind.OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=at.offset,
                committed_leader_epoch=at.epoch,
                committed_metadata=at.metadata,
            )
        )
    return [kind(name=name, partitions=parts) for name, parts in topics.items()]


class BrokerLags:
    """A lag source that queries the brokers: end offset minus the group's committed offset.

    Parameters
    ----------
    coordinator : CoordinatorClient
        For the group's committed offsets; open transactions are not waited for.
    lookup : Lookup
        For begin and end offsets.
    reset : str
        The group's ``auto.offset.reset``: the lag of a partition without a commit.

    References: KAFKA-5337, "lag-based assignor"; a lag is in records.
    """

    def __init__(self, coordinator: CoordinatorClient, lookup: Lookup, reset: str):
        self._coordinator = coordinator
        self._lookup = lookup
        self.reset = reset
        self._connections: Connections | None = None

    @classmethod
    def connect(cls, config: Mapping[str, object]) -> Self:
        """Return a lag source with connections of its own, for the assignors of stock clients.

        Parameters
        ----------
        config : mapping of str to object
            As of :class:`holdfast.Consumer`: ``bootstrap.servers``, ``group.id``, security, and the
            ``auto.offset.reset`` that the group's consumers have.

        Raises
        ------
        ConfigError
            For a key that is unknown or a value that is out of range.
        SourceError
            If no broker answers.
        """
        settings = Settings.parse(config)
        connections = Connections(settings)
        connections.open()
        coordinator = CoordinatorClient(connections, lambda _: None, lambda _: None)
        source = cls(coordinator, Lookup(connections), settings["auto.offset.reset"])
        source._connections = connections
        return source

    def __call__(self, partitions: Mapping[str, int]) -> Lags:
        """Return the lag of each of ``partitions``, in messages; 0 for one without a leader.

        Raises
        ------
        ClientError
            If a broker did not answer.
        RemoteProtocolError
            If a broker refused.
        """
        import numpy as np  # a leader has loaded it by now; nobody else needs it

        from holdfast.core.model.lag import lag_of_columns

        tps = [(topic, p) for topic, n in sorted(partitions.items()) for p in range(n)]
        if not tps:
            return {topic: [] for topic in partitions}
        if self._connections is not None:
            self._coordinator.locate().result()  # the coordinator may have moved
        requests = (
            self._lookup.list_offsets(tps, EARLIEST),
            self._coordinator.committed(tps, stable=False),
            self._lookup.list_offsets(tps, LATEST),
        )
        begin, committed, end = (_column(tps, f.result()) for f in requests)
        lag = lag_of_columns(begin, np.maximum(begin, end), committed, self.reset)
        lag[(begin < 0) | (end < 0)] = 0  # a partition without a leader has no offsets now
        by_topic: dict[str, list[int]] = {topic: [] for topic in partitions}
        for (topic, _), messages in zip(tps, lag.tolist(), strict=True):
            by_topic[topic].append(messages)
        return by_topic

    def close(self) -> None:
        """Close the connections of :meth:`connect`."""
        if self._connections is not None:
            self._connections.close()
            self._connections = None


def lag_source_of(
    settings: Settings, coordinator: CoordinatorClient, lookup: Lookup
) -> LagSource | None:
    """Return the configured lag source, None for ``holdfast.lag.source=none``."""
    given: LagSource | str = settings["holdfast.lag.source"]
    if given == "broker":
        return BrokerLags(coordinator, lookup, settings["auto.offset.reset"])
    return None if isinstance(given, str) else given


def _column(tps: Collection[TopicPartition], offsets: Mapping[TopicPartition, int]) -> I64:
    import numpy as np

    from holdfast.core.model.lag import NO_COMMIT

    return np.array([offsets.get(tp, NO_COMMIT) for tp in tps], dtype=np.int64)

"""The parts of one running member, made and closed in order: connections, machine, watch.

**Rules.** Parts are closed in the opposite order. But no part waits for an answer that a closed
connection cannot bring: threads that ask a broker end after the connections, whose close fails all
open questions. If a part fails to start, the parts made before it are closed.

References: KIP-429.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.cluster.connections import Connections
from holdfast.cluster.lookup import FoundTopics, Lookup
from holdfast.cluster.settings import Settings
from holdfast.core.machine import events
from holdfast.core.machine.leader.designs import Assignor
from holdfast.errors import RemoteProtocolError
from holdfast.members.member.broker_lags import lag_source_of
from holdfast.members.member.host import Duties, MemberHost
from holdfast.members.member.link import GroupLink
from holdfast.members.member.member_log import MemberLog
from holdfast.members.member.membership import Leadership, make_member
from holdfast.members.member.metadata_watch import Matches, MetadataWatch
from holdfast.members.member.metrics import Counters, MemberMetrics
from holdfast.members.member.readiness import ready_file


class ClientDuties(Duties, Protocol):
    """The application's side of a member, which :class:`MemberParts` closes."""

    def end(self) -> None:
        """Start nothing more."""

    def close(self) -> None:
        """Release what was opened; the connections are closed by now."""


class MemberParts:
    """The parts of one running member of a group of topics, whatever fetches its records.

    Parameters
    ----------
    settings : Settings
        The member's configuration.
    assignors : sequence of Assignor
        What it offers, from :func:`~holdfast.members.member.membership.assignors_of`.
    duties : ClientDuties
        The application's side.
    connections : Connections, optional
        What it opens, and closes in the end; somebody else may close it while it is being opened.
    """

    def __init__(
        self,
        settings: Settings,
        assignors: Sequence[Assignor],
        duties: ClientDuties,
        connections: Connections | None = None,
    ):
        self._settings = settings
        self.counters = Counters()
        self.log = log = MemberLog(settings)
        member = make_member(settings, assignors)
        ready = ready_file(settings, log)
        connections = connections or Connections(settings)
        self._closers: list[Callable[[], object]] = [connections.close]
        try:
            connections.open()
            self.lookup = Lookup(connections)
            self.link = GroupLink(connections, self._post, self.fail)
            leadership = Leadership(
                settings,
                assignors,
                self._count_partitions,
                lag_source=lag_source_of(settings, self.link, self.lookup),
                find_racks=lambda topics: self.lookup.racks(topics).result(),
                log=log,
            )
            self._closers = [duties.close, *self._closers, duties.end]
            self.host = MemberHost(
                member,
                duties,
                leadership.compute,
                name=_name(settings),
                log=log,
                ready=ready,
            )
            self._closers.append(self.host.stop)
            self._watch = MetadataWatch(settings, self.lookup, self._post, self.fail, log)
            self._closers = [self._watch.join, *self._closers, self._watch.end]
        except BaseException:
            self.close()
            raise

    def _post(self, event: events.Event) -> None:
        self.host.post(event)

    def fail(self, error: BaseException) -> None:
        """End the member with an error; safe from any thread."""
        self.host.fail(error)

    def _count_partitions(self, topics: frozenset[str]) -> FoundTopics:
        return self._watch.look(topics)

    def subscribe(self, topics: tuple[str, ...], pattern: Matches | None) -> None:
        """Subscribe, and join the group if that has not been done."""
        self.host.start(self.link)
        self._watch.subscribe(topics, pattern)

    def look_again(self) -> None:
        """Ask for the partition counts at once, because they were seen to change."""
        self._watch.look_soon()

    @property
    def subscribed(self) -> tuple[str, ...]:
        """Topics of the subscription; for a pattern, the topics that match."""
        return self._watch.subscribed

    @property
    def missing(self) -> tuple[str, ...]:
        """Topics of the subscription that do not exist."""
        return self._watch.missing

    def metrics(self) -> MemberMetrics:
        """Return what was counted so far."""
        counts, ago_s = self.counters.read()
        standing = self.host.standing
        return MemberMetrics(
            group=self._settings["group.id"],
            client_id=self._settings["client.id"],
            member_id=standing.identity.member_id,
            generation=standing.identity.generation,
            state=standing.state.value,
            is_leader=standing.is_leader,
            assigned_partitions=len(standing.owned),
            rebalance_total=counts["rebalance"],
            partitions_gained_total=counts["gained"],
            partitions_revoked_total=counts["revoked"],
            partitions_lost_total=counts["lost"],
            commit_total=counts["commit"],
            commit_failed_total=counts["commit_failed"],
            records_consumed_total=counts["records"],
            last_rebalance_seconds_ago=ago_s,
            missing_topics=self._watch.missing,
        )

    def note_untold(self, error: RemoteProtocolError) -> None:
        """Log and count a commit by the clock that cannot be: its records were lost."""
        self.counters.add("commit_failed")
        self.log.error("%s", error)

    def close(self) -> None:
        """Close every part; a second call goes on where an exception came into the first."""
        while self._closers:
            closer = self._closers[-1]
            try:
                closer()
            except Exception:
                self._closers.remove(closer)
                raise
            if closer in self._closers:  # a second thread may close beside this one
                self._closers.remove(closer)


def _name(settings: Settings) -> str:
    return f"holdfast-{settings['group.id']}-{settings['client.id']}"

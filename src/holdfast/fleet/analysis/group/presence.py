"""Which process was in a group when: its generations, their members, and who left and came back.

**Rules.** A dynamic member gets a new id at every start, so ids are combined to identities. An
identity is a guess for people. It never decides which member owns a partition, and
the member id is shown beside it. Names come from the cluster.

**Strategy.** The identity is the static name if a member has one. Otherwise it is the first of the
following that differs between the members of most generations: the client id, the client id with
the host. Otherwise it is the member id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from holdfast.core.model.columns import I32, I64, index_in
from holdfast.fleet.columnar import DecodedRows, new_runs, row_starts


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: texts are cached
class Settlements:
    """Moments at which the ownership of some groups was settled, by group and time."""

    rows: DecodedRows  # rows of ``generations``
    row: I64  # int64[n]: the row of each moment
    # ``group``, ``number``, ``at_ms``, ``n_members`` (int64[n]): index of the group, generation,
    # time of its record in UTC milliseconds, members.
    group: I64
    number: I64
    at_ms: I64
    n_members: I64
    era: I64  # int64[n]: life of a group: a deleted group that comes back counts from 1 again

    @cached_property
    def state(self) -> tuple[str, ...]:
        """State, as in the record."""
        return tuple(self.rows.texts("state", "", self.row))

    @cached_property
    def protocol(self) -> tuple[str, ...]:
        """Protocol, as in the record."""
        return tuple(self.rows.texts("protocol", "", self.row))

    def texts(self, name: str, at: I64, missing: str) -> npt.NDArray[np.object_]:
        """Return the values of some moments in a string column; ``missing`` at -1."""
        found = np.full(len(at), missing, object)
        found[at >= 0] = self.rows.texts(name, "", self.row[at[at >= 0]])
        return found

    def first_and_last(self, n: int) -> tuple[I64, I64]:
        """Return the index of the first and the last moment of each of ``n`` groups; else -1."""
        edges = row_starts(self.group, n)
        is_known = edges[1:] > edges[:-1]
        return np.where(is_known, edges[:-1], -1), np.where(is_known, edges[1:] - 1, -1)

    def of_rows(self, rows: DecodedRows, group: I64 | int = 0) -> I64:
        """Return the index of the generation of each row of a table, as :meth:`index_of`."""
        return self.index_of(rows.ints("generation"), rows.times_ms("timestamp"), group)

    def index_of(self, generation: I64, at_ms: I64, group: I64 | int = 0) -> I64:
        """Return the index of each generation of a group; -1 if no record has that generation.

        A time before every life of the group counts as the first one.
        """
        if not len(self.number):
            return np.full(len(generation), -1, dtype=np.int64)
        first = np.flatnonzero(new_runs(self.era))
        begin = _moment(self.group[first], self.at_ms[first])
        era = np.searchsorted(begin, _moment(group, at_ms), side="right") - 1
        era = np.maximum(era, np.searchsorted(self.group[first], group))
        keys = self.era << np.int64(32) | (self.number + 1)
        found = index_in(era.astype(np.int64) << np.int64(32) | (generation + 1), keys)
        return np.where(self.group[found] == group, found, -1)


def _moment(group: I64 | int, at_ms: I64) -> I64:
    """Return one number for a group, of less than 32,768, and a time; in the order of both."""
    return np.asarray(group, np.int64) << np.int64(48) | np.maximum(at_ms, 0)


def read_generations(rows: DecodedRows, group: I64 | None = None) -> Settlements:
    """Read the settlements of one group, or of several, given the index of each row's group.

    Of records that repeat a generation only the first counts.
    """
    at_ms, number = rows.times_ms("timestamp"), rows.ints("generation")
    is_dead, log_offset = rows.equal("state", "Dead"), rows.ints("log_offset")
    group = np.zeros(len(rows), np.int64) if group is None else group
    order = np.lexsort((log_offset, rows.ints("log_partition"), at_ms, group))
    of, number, is_dead = group[order], number[order], is_dead[order]
    begins = np.zeros(len(order), np.bool_)  # a life of a group
    begins[1:] = is_dead[:-1] | ((number[1:] < number[:-1]) & ~is_dead[1:]) | (of[1:] != of[:-1])
    kept = np.flatnonzero(new_runs(of, number, is_dead))
    row = order[kept]
    return Settlements(
        rows=rows,
        row=row,
        group=of[kept],
        number=number[kept],
        at_ms=at_ms[row],
        n_members=rows.ints("n_members")[row],
        era=np.cumsum(begins, dtype=np.int64)[kept],
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Identities:
    """Names of processes and the member ids that belong to them."""

    members: tuple[str, ...]
    names: tuple[str, ...]  # identities, in order of first appearance
    identity: I32
    hosts: tuple[str, ...]  # distinct client hosts; "" where none is known
    host: I32

    def over(self, members: Sequence[str]) -> Identities:
        """Return the identities of ``members`` alone; an unknown one is its own identity."""
        known = {m: i for i, m in enumerate(self.members)}
        names, hosts = list(self.names), list(self.hosts)
        if "" not in hosts:
            hosts.append("")
        identity, host = [], []
        for member in members:
            if member in known:
                identity.append(int(self.identity[known[member]]))
                host.append(int(self.host[known[member]]))
            else:
                identity.append(len(names))
                names.append(member)
                host.append(hosts.index(""))
        return Identities(
            members=tuple(members),
            names=tuple(names),
            identity=np.asarray(identity, dtype=np.int32),
            hosts=tuple(hosts),
            host=np.asarray(host, dtype=np.int32),
        )


def read_identities(rows: DecodedRows) -> Identities:
    """Read identities from the ``members`` rows of one group."""
    member, members = rows.codes("member_id")
    generation = rows.ints("generation")
    static, statics = rows.codes("group_instance_id")
    client, clients = rows.codes("client_id")
    host, hosts = rows.codes("client_host")
    location = host.astype(np.int64) * len(clients) + client
    # Rows of several batches come in the order of their files.
    order = np.lexsort((member, generation, rows.times_ms("timestamp")))
    known, position = np.unique(member[order], return_index=True)
    position = position[known >= 0]
    first = order[position]  # row of each member
    if _distinguishes(generation, client.astype(np.int64)):
        key = client.astype(np.int64)
        labels = {i: clients[client[i]] for i in first}
    elif _distinguishes(generation, location):
        key = location
        labels = {i: f"{clients[client[i]]} {hosts[host[i]]}" for i in first}
    else:
        key = member.astype(np.int64)
        labels = {i: members[member[i]] for i in first}
    seen: dict[tuple[int, int], int] = {}
    names: list[str] = []
    identity = np.zeros(len(members), dtype=np.int32)
    for row in order[np.sort(position)]:
        who = (1, int(static[row])) if static[row] >= 0 else (0, int(key[row]))
        if who not in seen:
            seen[who] = len(names)
            names.append(statics[static[row]] if static[row] >= 0 else labels[row])
        identity[member[row]] = seen[who]
    hosts_of = host[first].astype(np.int32)
    return Identities(
        members=members, names=tuple(names), identity=identity, hosts=hosts, host=hosts_of
    )


def _distinguishes(generation: I64, key: I64) -> bool:
    """Return whether most generations have no two members with the same key."""
    if not len(key):
        return False
    order = np.lexsort((key, generation))
    generation, key = generation[order], key[order]
    new = generation[1:] != generation[:-1]
    clashes = np.unique(generation[1:][~new & (key[1:] == key[:-1])])
    return bool(2 * len(clashes) < 1 + new.sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Presence:
    """Which process was in the group when: one row per generation and member id, by generation."""

    generation: I64  # int64[n]: index into the generations
    # ``member``, ``identity`` (int32[n]): member id and process
    # (:class:`holdfast.fleet.analysis.group.presence.Identities`).
    member: I32
    identity: I32
    n_partitions: I64
    n_copies: I64  # int64[n]: tasks whose state it replicates for others
    # ``session_timeout_ms``, ``rebalance_timeout_ms`` (int64[n]): -1 where unknown.
    session_timeout_ms: I64
    rebalance_timeout_ms: I64
    row: I64  # int64[n]: row of ``rows``, the stored rows of the group
    rows: DecodedRows

    def members_of(self, generation: int) -> I32:
        """Return the member of each row of a generation."""
        low, high = np.searchsorted(self.generation, [generation, generation + 1])
        return self.member[low:high]

    def text(self, name: str, row: int) -> str | None:
        """Return the value of a row in a column of strings."""
        return self.rows.text(name, int(self.row[row]))

    def static_name(self, row: int) -> str | None:
        """Return ``group.instance.id`` of a row."""
        return self.text("group_instance_id", row)

    def topics(self, row: int) -> tuple[str, ...]:
        """Return the subscribed topics of a row, sorted."""
        return tuple(sorted(self.rows.text_list("subscribed_topics", int(self.row[row]))))


def read_presence(rows: DecodedRows, index: I64, identities: Identities) -> Presence:
    """Return the presence in a group, of rows of ``members`` and the generation of each."""
    rank, names = rows.codes("member_id")
    order = np.lexsort((rank, index))
    order = order[index[order] >= 0]
    position = {name: i for i, name in enumerate(identities.members)}
    member = np.asarray([position[name] for name in names], dtype=np.int32)
    members = member[rank[order]] if len(names) else np.zeros(0, dtype=np.int32)
    return Presence(
        generation=index[order],
        member=members,
        identity=identities.identity[members],
        n_partitions=rows.ints("n_partitions")[order],
        n_copies=(rows.ints("n_standby", 0) + rows.ints("n_warmup", 0))[order],
        session_timeout_ms=rows.ints("session_timeout_ms")[order],
        rebalance_timeout_ms=rows.ints("rebalance_timeout_ms")[order],
        row=order,
        rows=rows,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Absence:
    """A process that left and came back: generations by index."""

    identity: int  # index of the process
    # ``last_with``, ``first_without``, ``back``: last generation with it, first one without it,
    # first one with it again. The last two are equal if it came back so fast that no generation was
    # without it.
    last_with: int
    first_without: int
    back: int
    # Seconds from the first record without it (or the last with it) to the one with it again.
    away_s: float


def absences_of(presence: Presence, generations: Settlements, since_ms: int) -> tuple[Absence, ...]:
    """Return absences and restarts that ended since a moment, ordered by their end."""
    found = []
    order = np.lexsort((presence.generation, presence.identity))
    identity, generation = presence.identity[order], presence.generation[order]
    member = presence.member[order]
    n_empty = np.append(0, np.cumsum(generations.n_members == 0))  # before each generation
    same = identity[1:] == identity[:-1]
    step = np.diff(generation)
    other = member[1:] != member[:-1]
    for i in np.flatnonzero(same & ((step > 1) | ((step == 1) & other))) + 1:
        before, back = int(generation[i - 1]), int(generation[i])
        gap = back > before + 1
        first = before + 1
        if generations.at_ms[back] < since_ms:
            continue
        if n_empty[back] > n_empty[first]:
            continue  # the whole group was stopped: no member waited for this one
        since = generations.at_ms[first] if gap else generations.at_ms[before]
        found.append(
            Absence(
                identity=int(identity[i]),
                last_with=before,
                first_without=first,
                back=back,
                away_s=float(generations.at_ms[back] - since) / 1000 if gap else 0.0,
            )
        )
    return tuple(sorted(found, key=lambda a: (a.back, a.identity)))

"""Which member ids are the same process: a dynamic member gets a new id at every start.

**Rules.** An identity is a guess for people. It never decides which member owns a partition, and
the member id is shown beside it. Names come from the cluster.

**Strategy.** The identity is the static name if a member has one. Otherwise it is the first of the
following that differs between the members of most generations: the client id, the client id with
the host. Otherwise it is the member id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.model.columns import I32, I64
from holdfast.fleet.columnar import DecodedRows


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

"""Which process was in a group when, and which processes left and came back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.model.columns import I32, I64
from holdfast.fleet.analysis.group.identity import Identities
from holdfast.fleet.analysis.group.timeline import Settlements
from holdfast.fleet.columnar import DecodedRows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Presence:
    """Which process was in the group when: one row per generation and member id, by generation."""

    generation: I64  # int64[n]: index into the generations
    # ``member``, ``identity`` (int32[n]): member id and process
    # (:class:`holdfast.fleet.analysis.group.identity.Identities`).
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

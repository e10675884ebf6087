"""The present members of a group: where each one runs, what it owns, and how far it is behind.

**Rules.** Members are those of the coordinator's answer, where it has described the group, else
those of the last generation. The lag of a member is that of the partitions that the last generation
gave to it. A member whose id no record has yet owns nothing that is known.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.fleet.analysis.group.client_library import client_of
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.lag import NEVER, lag_sums


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentMember:
    """One member of a group."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    client: str = ""  # client library, as far as the records show it; else empty
    n_partitions: int = 0
    # Time of the first generation with this member id, in UTC milliseconds.
    since_ms: int | None = None
    # Whether that is the oldest generation on record: the member may be older.
    is_since_first: bool = False
    commit_ms: int | None = None  # last commit of one of its partitions, in UTC milliseconds
    lag: int | None = None  # records behind, in its partitions with a known lag
    lag_s: float | None = None  # age of the oldest unread record of its partitions, in seconds
    is_awaited: bool = False  # whether its group's rebalance waits for it, or may wait for it

    @property
    def name(self) -> str:
        """Static name, or client id."""
        return self.instance_id or self.client_id or self.member_id


def present_members(
    history: GroupHistory, awaited: Collection[str] = ()
) -> tuple[PresentMember, ...]:
    """Return the present members: the awaited ones first, then those with the greatest lag."""
    known = {
        history.members[history.presence.member[row]]: _recorded(history, int(row))
        for row in np.flatnonzero(history.members_now)
    }
    seen = None if history.live is None else history.live.seen
    found = list(known.values())
    if seen is not None and seen.members is not None:
        found = [
            replace(
                known.get(one.member_id, PresentMember(member_id=one.member_id)),
                instance_id=one.instance_id,
                client_id=one.client_id,
                host=one.client_host,
                n_partitions=sum(len(numbers) for _, numbers in one.partitions),
            )
            for one in seen.members
        ]
    behind = _behind(history)
    members = [
        replace(one, is_awaited=one.member_id in awaited, **behind.get(one.member_id, {}))
        for one in found
    ]
    return tuple(sorted(members, key=lambda m: (not m.is_awaited, -(m.lag or 0), m.name)))


def _recorded(history: GroupHistory, row: int) -> PresentMember:
    """Return what records say of a member of the last generation, given its row of presence."""
    presence = history.presence
    member = presence.member[row]
    client_id = presence.text("client_id", row) or ""
    protocol, rack = history.generations.protocol[history.last], presence.text("rack", row)
    first = int(presence.generation[np.argmax(presence.member == member)])
    return PresentMember(
        member_id=history.members[member],
        instance_id=presence.static_name(row),
        client_id=client_id,
        host=presence.text("client_host", row) or "",
        client=client_of(history.name, protocol, client_id, rack) or "",
        n_partitions=max(int(presence.n_partitions[row]), 0),
        since_ms=int(history.generations.at_ms[first]),
        is_since_first=first == 0,
    )


def _behind(history: GroupHistory) -> dict[str, dict[str, Any]]:
    """Return last commit and lag by the member that owns the partitions.

    Partitions of topics that no member subscribes to have no owner, so no commit of them counts.
    """
    lag, (owner, names) = history.lag, history.lag.owner_codes
    if history.kind.is_shared:
        return {}
    commit_ms = np.full(len(names), NEVER, np.int64)
    np.maximum.at(commit_ms, owner[owner >= 0], lag.commit_ms[owner >= 0])
    last = dict(zip(names, commit_ms.tolist(), strict=True))
    sums = lag_sums(lag.stored, ["member_id"])
    return {
        row["member_id"]: {
            "commit_ms": last[row["member_id"]] if last[row["member_id"]] >= 0 else None,
            "lag": row["lag"],
            "lag_s": row["lag_seconds"],
        }
        for row in sums.to_pylist()
        if row["member_id"] is not None
    }

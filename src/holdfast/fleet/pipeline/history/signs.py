"""Whether members that went had left or were silent, as far as records of the group tell.

**Rules.** Two generations show that a member went, and not how. Two kinds of signs say that it was
still alive: a commit of a partition that it owned, and the record of the generation before, for
which every member of a classic group had joined. What follows from the last sign:

==================  ==============================================================================
cause               where members went and none came
==================  ==============================================================================
leave               every member that went gave a sign less than a session before the record: its
                    session could not have ended
session_timeout     the last sign of every one of them is a commit, a session to a session and
                    ``AFTER_SESSION_MS`` before the record, and less than its rebalance timeout:
                    clients say goodbye, and brokers remove a member, when it is so long too late
leave_or_timeout    anything else
==================  ==============================================================================

A member that commits rarely, or reads nothing, gives no sign, so a long silence proves nothing by
itself. ``silent_seconds`` has it where it stands out: the member had committed under the generation
before, and most of the group's other partitions were committed within ``LIVELY_MS`` before the
record. The
records of a KIP-848 group do not have its session, so only a sign within ``SHORTEST_SESSION_MS``,
the least session that brokers take by default, tells a leave there.

**Strategy.** The groups step stages a row for each member that went
(:mod:`holdfast.fleet.pipeline.history.departures`). The step that has the commits finds the last
one of the member's partitions, and :func:`how_they_went` sums up the members of each rebalance. The
confidences are those of ``bench/causes.py``: docs/measured/causes.md has the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from holdfast.core.model.columns import F64, I64
from holdfast.fleet.tables.columns.schemas import from_columns
from holdfast.fleet.tables.columns.values import floats, ints, replaced

LEFT: Final = "left"
"""Basis of staged rows about members that went."""

DEPARTURES: Final = "_departures"
"""Staged by the pauses job for ``rebalances``: how the members of a row went."""

UNTOLD: Final = "leave_or_timeout"
TOLD: Final = {"leave": 0.96, "session_timeout": 0.95}
"""Causes that signs tell, and how often they are right."""

AFTER_SESSION_MS: Final = 10_000
"""A member may have died so long after its last commit, or its group may have noticed so late."""
SHORTEST_SESSION_MS: Final = 6_000
"""``group.min.session.timeout.ms`` of a broker that is not configured."""
LIVELY_MS: Final = 120_000
"""A partition whose last commit is no older is read by a member that works."""
JOIN_MS: Final = 2_000
"""A session begins anew when a round is joined, which is before the round's record."""


def how_they_went(rows: pa.Table, row: I64, seen: I64, lively: F64) -> pa.Table:
    """The cause of each rebalance in which members went, by their signs, and their silence.

    Parameters
    ----------
    rows : Table of STAGED
        Of basis ``left``.
    row, seen : int64
        For each partition, its row and its last commit before the record, in microseconds; 0 for
        none.
    lively : float64
        For each row, which part of the group's other partitions was committed shortly before.
    """
    commit = np.zeros(rows.num_rows, np.int64)
    np.maximum.at(commit, row, seen)
    known = rows.select([*_KEY, "member", *_SIGNS]).append_column("commit", pa.array(commit))
    known = known.append_column("lively", pa.array(lively))
    members = known.group_by([*_KEY, "member", *_SIGNS])
    members = members.aggregate([("commit", "max"), ("lively", "max")])
    last = ints(members, "commit_max")
    silent = _silence(members, last, floats(members, "lively_max"))
    went = members.select(list(_KEY)).append_column("told", pa.array(_told(members, last)))
    found = went.append_column("silent", pa.array(silent)).group_by(list(_KEY))
    found = found.aggregate([("told", "min"), ("told", "max"), ("silent", "max")])
    least, longest = ints(found, "told_min"), floats(found, "silent_max")
    agreed = np.where(least == ints(found, "told_max"), least, len(TOLD))
    columns: dict[str, Any] = {name: found[name] for name in _KEY}
    columns["cause"] = pa.array([*TOLD, UNTOLD]).take(pa.array(agreed))
    columns["silent_seconds"] = pa.array(longest, mask=longest < 0)
    return from_columns("departures", columns)


_KEY: Final = ("group", "generation", "timestamp")
_SIGNS: Final = ("last_seen", "session_timeout_ms", "rebalance_timeout_ms")
"""What is the same in every row of a member that went."""


def _silence(members: pa.Table, commit: I64, lively: F64) -> F64:
    """Seconds from a member's last commit to the record without it; -1 where that says nothing."""
    record, joined = ints(members, "timestamp"), ints(members, "last_seen")
    known = (commit > joined) & (joined > 0) & (lively >= 0.5)
    return np.where(known, (record - commit) / 1e6, -1.0)


def _told(members: pa.Table, commit: I64) -> I64:
    """How each member went: an index into TOLD, or one more."""
    record, joined = ints(members, "timestamp"), ints(members, "last_seen")
    known = members["session_timeout_ms"].is_valid().to_numpy()
    session = np.where(known, ints(members, "session_timeout_ms"), SHORTEST_SESSION_MS) * 1000
    spoke = (record - commit < session) & (commit > 0)
    spoke |= (record - joined < session - JOIN_MS * 1000) & (joined > 0)
    silent = known & (commit > joined) & (record - commit <= session + AFTER_SESSION_MS * 1000)
    patient = members["rebalance_timeout_ms"].is_valid().to_numpy()
    silent &= ~patient | (record - commit < ints(members, "rebalance_timeout_ms") * 1000)
    return np.select([spoke, silent], [0, 1], len(TOLD)).astype(np.int64)


def with_departures(rebalances: pa.Table, departures: Sequence[pa.Table]) -> pa.Table:
    """Rebalances with the silence of those who went, and ``leave_or_timeout`` as signs tell it."""
    told = {_key(row): row for table in departures for row in table.to_pylist()}
    rows = rebalances.select([*_KEY, "cause", "confidence", "silent_seconds"]).to_pylist()
    for row in rows if told else ():
        if (found := told.get(_key(row))) is None:
            continue
        row["silent_seconds"] = found["silent_seconds"]
        if row["cause"] == UNTOLD and found["cause"] in TOLD:
            row |= {"cause": found["cause"], "confidence": TOLD[found["cause"]]}
    changed = ("cause", "confidence", "silent_seconds")
    return replaced(rebalances, **{name: [row[name] for row in rows] for name in changed})


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)

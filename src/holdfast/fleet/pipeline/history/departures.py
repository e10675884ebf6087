"""Members that joined and departed, and whether they left or timed out, by the records.

**Rules.** A member departed if it is in a generation and not in the next one of its group, which
is not context. That proves the departure, and not its reason. Two kinds of evidence prove that it
was still alive: a commit of a partition that it owned, and the record of the generation before,
for which every member of a classic group had joined. Conclusions from the last evidence:

==================  ==============================================================================
cause               condition, if members departed and none joined
==================  ==============================================================================
leave               the last evidence of every departed member is less than a session before the
                    record: its session could not have ended
session_timeout     the last evidence of each of them is a commit, a session to a session and
                    ``AFTER_SESSION_MS`` before the record, and less than its rebalance timeout:
                    clients leave, and brokers remove a member, when it is that late
poll_timeout        the last evidence of each of them is about its rebalance timeout before the
                    record (:func:`near_poll_timeout`), and no session could have ended then
leave_or_timeout    anything else
==================  ==============================================================================

A member that commits rarely, or reads nothing, gives no evidence, so a long silence alone proves
nothing. ``silent_seconds`` has the silence if it is exceptional: the member had committed under
the generation before, and most of the group's other partitions were committed within ``LIVELY_MS``
before the record. The records of a KIP-848 group do not have its session, so only evidence within
``SHORTEST_SESSION_MS``, the least session that brokers accept by default, proves a leave there.

**Strategy.** Joined and departed members are set differences on (row, identity) numbers. A joined
member counts as restarted if a member with the same client id and host departed at most
``RESTART_WINDOW_SECONDS`` before. Each departed member is matched once, the newest first.

The groups step stages a row for each departed member (:func:`departure_rows`). The
step that has the commits finds the last one of the member's partitions, and :func:`how_they_went`
summarizes the members of each rebalance. The confidences are those of ``bench/causes.py``:
docs/measured/causes.md has the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds import GroupType
from holdfast.core.model.columns import F64, I64, Mask
from holdfast.fleet.analysis.group.client_library import near_poll_timeout
from holdfast.fleet.columnar import floats, gather, ints, numbered, replaced, row_starts
from holdfast.fleet.pipeline.history.movements import RESTART_WINDOW_SECONDS, Events
from holdfast.fleet.pipeline.history.ownership_gaps import (
    COMMIT,
    LEFT,
    ReadBy,
    keys_of,
    last_commits,
    read_by,
    read_of,
    staged,
    times_of,
)
from holdfast.fleet.tables.columns.schemas import (
    TIMESTAMP,
    arrow_schema,
    from_columns,
)

DEPARTURES: Final = "_departures"
"""Staged by the gaps job for ``rebalances``: departures of the members of a row."""

UNRESOLVED: Final = "leave_or_timeout"
RESOLVED: Final = {"leave": 0.96, "session_timeout": 0.95, "poll_timeout": 0.98}
"""Causes that the evidence determines, and the fraction of correct ones."""

AFTER_SESSION_MS: Final = 10_000
"""Longest time from a member's last commit to its death, or to its group's notice of that."""
SHORTEST_SESSION_MS: Final = 6_000
"""``group.min.session.timeout.ms`` of a broker that is not configured."""
LONGEST_SESSION_MS: Final = 60_000
"""``group.consumer.max.session.timeout.ms`` of a broker that is not configured."""
LIVELY_MS: Final = 120_000
"""A partition with a commit within this time is read by a working member."""
JOIN_MS: Final = 2_000
"""A session restarts when a round is joined, which is before the round's record."""

_KEY: Final = ("group", "generation", "timestamp")
_EVIDENCE: Final = ("last_seen", "session_timeout_ms", "rebalance_timeout_ms")
"""Columns that are equal in every row of a departed member."""
_CHANGED: Final = ("cause", "confidence", "silent_seconds", "unseen_ms")
"""Columns of rebalances that departures determine."""


def members_that_went(events: Events) -> I64:
    """Return rows of members that are not in the next generation of their group."""
    gens, layout = events.gens, events.layout
    row, key = ints(gens.members, "row"), layout.member_key
    follows = np.append(~events.fresh[1:], False) if gens.n_rows else events.fresh
    return np.flatnonzero(follows[row] & ~np.isin(key + layout.width, key))


def turnover(events: Events) -> dict[str, I64]:
    """Count joined, departed and returned members of each row, int64[n_rows] each.

    In addition to the columns of ``rebalances``: ``announced``, members that announce for the
    first time that they stop, and ``left_as_announced``, those of ``n_left`` that had announced
    it.
    """
    gens, n = events.gens, events.gens.n_rows
    row = ints(gens.members, "row")
    key, width = events.layout.member_key, events.layout.width
    came = np.flatnonzero(~events.fresh[row] & ~np.isin(key - width, key))
    went = members_that_went(events)
    stops = np.asarray(gens.members["leaving"].is_valid())
    new = stops & ~events.fresh[row] & np.isin(key - width, key[~stops])

    def per_row(of: I64) -> I64:
        return np.bincount(of, minlength=n + 1)[:n].astype(np.int64)

    return {
        "n_joined": per_row(row[came]),
        "n_left": per_row(row[went] + 1),
        "n_restarted": _restarts(events, came, went),
        "announced": per_row(row[new]),
        "left_as_announced": per_row(row[went[stops[went]]] + 1),
    }


def _restarts(events: Events, came: I64, went: I64) -> I64:
    """Count, per row, the joined members that had departed a short while before."""
    gens = events.gens
    row = ints(gens.members, "row")
    group = events.layout.group_of[row]
    client = pc.binary_join_element_wise(
        pc.fill_null(gens.members["client_id"], ""),
        pc.fill_null(gens.members["client_host"], ""),
        "\0",
    )
    who = numbered(client)
    time = ints(gens.head, "timestamp")
    restarted = np.zeros(gens.n_rows, np.int64)
    gone: dict[tuple[int, int], list[int]] = {}
    # A departed member is absent from the next row on, and may be back in that very row.
    moves = [(int(row[m]) + 1, 0, int(group[m]), int(who[m])) for m in went]
    moves += [(int(row[m]), 1, int(group[m]), int(who[m])) for m in came]
    for at, is_back, of_group, client_code in sorted(moves):
        waiting = gone.setdefault((of_group, client_code), [])
        if not is_back:
            waiting.append(int(time[at]))
        elif waiting and time[at] - waiting.pop() <= RESTART_WINDOW_SECONDS * 1_000_000:
            restarted[at] += 1
    return restarted


def departure_rows(events: Events) -> pa.Table:
    """Return a row of STAGED for each departed member and its partitions, except of context.

    Its ``last_seen`` is the record of the generation before, if that is evidence.
    """
    gens, member = events.gens, members_that_went(events)
    before = ints(gens.members, "row")[member]
    new = ~gens.head["context"].to_numpy()[before + 1]
    member, before = member[new], before[new]
    # Members that went are numbered in the order of their ids.
    by_id = pc.rank(gens.members["member_id"].take(pa.array(member)), tiebreaker="dense").to_numpy()
    owned, which = gather(row_starts(ints(gens.owned, "member"), gens.members.num_rows), member)
    nothing = np.flatnonzero(np.bincount(which, minlength=len(member)) == 0)
    position = np.concatenate([which, nothing])
    topic = gens.owned["topic"].take(pa.array(owned)).combine_chunks()
    topic = pa.concat_arrays([topic, pa.nulls(len(nothing), topic.type)])
    lists = gens.owned["partitions"].take(pa.array(owned)).combine_chunks()
    none = pa.array([[]] * len(nothing), lists.type)
    before = before[position]
    classic = pc.equal(gens.head["group_type"], GroupType.CLASSIC).to_numpy()[before]
    joined = np.where(classic, ints(gens.head, "timestamp")[before], 0)
    return staged(
        events,
        before + 1,
        before + 1,
        topic=topic,
        reads=read_by(events, before, topic),
        partitions=pa.concat_arrays([lists, none]),
        basis=pa.repeat(LEFT, len(position)),
        last_seen=pa.array(joined).cast(TIMESTAMP),
        member=pa.array(by_id[position].astype(np.int32)),
        **{name: gens.members[name].take(pa.array(member[position])) for name in _EVIDENCE[1:]},
    )


def how_they_went(rows: pa.Table) -> pa.Table:
    """Return the cause of each rebalance with departed members, and their silence.

    ``rows`` are STAGED: departed members of whole groups, and commits in any order.
    """
    left = rows.filter(pc.equal(rows["basis"], LEFT))
    commits = rows.filter(pc.equal(rows["basis"], COMMIT))
    if left.num_rows == 0:
        return arrow_schema("departures").empty_table()
    _, _, _, read = read_of(left)
    seen = times_of(commits, last_commits(left, read, commits))
    commit = np.zeros(left.num_rows, np.int64)
    np.maximum.at(commit, read.row, seen)
    known = left.select([*_KEY, "member", *_EVIDENCE]).append_column("commit", pa.array(commit))
    known = known.append_column("lively", pa.array(_lively(left, read, commits, seen)))
    members = known.group_by([*_KEY, "member", *_EVIDENCE])
    members = members.aggregate([("commit", "max"), ("lively", "max")])
    last = ints(members, "commit_max")
    silent = _silent_seconds(members, last, floats(members, "lively_max"))
    went = members.select(list(_KEY)).append_column(
        "cause_code", pa.array(_cause_codes(members, last))
    )
    unseen = pa.array(_unseen_ms(members, last))
    went = went.append_column("unseen", unseen).append_column("silent", pa.array(silent))
    went = went.take(pa.array(np.argsort(ints(members, "member"), kind="stable")))
    sums = [("cause_code", "min"), ("cause_code", "max"), ("silent", "max"), ("unseen", "list")]
    found = went.group_by(list(_KEY), use_threads=False).aggregate(sums)
    least, longest = ints(found, "cause_code_min"), floats(found, "silent_max")
    agreed = np.where(least == ints(found, "cause_code_max"), least, len(RESOLVED))
    columns: dict[str, Any] = {name: found[name] for name in _KEY}
    columns["cause"] = pa.array([*RESOLVED, UNRESOLVED]).take(pa.array(agreed))
    columns["silent_seconds"] = pa.array(longest, mask=longest < 0)
    columns["unseen_ms"] = found["unseen_list"]
    return from_columns("departures", columns)


def _lively(left: pa.Table, read: ReadBy, commits: pa.Table, seen: I64) -> F64:
    """Return, per row of a departed member, the working fraction of the group's other partitions.

    A partition works if it was committed within ``LIVELY_MS`` before the record without the member.
    -1 without other partitions, and if none of the member's own was silent that long.
    """
    row, found = read.row, np.full(left.num_rows, -1.0)
    window, record = LIVELY_MS * 1000, ints(left, "timestamp")
    wanted = np.unique(row[(seen > 0) & (record[row] - seen > window)])
    if not len(wanted):
        return found
    key, group = keys_of(left, read, commits)
    own, there = key[: len(row)], key[len(row) :]
    at, position = ints(commits, "timestamp"), ints(commits, "log_offset")
    order = np.lexsort((at, group[len(row) :]))
    grouped, at, position, there = (
        group[len(row) :][order],
        at[order],
        position[order],
        there[order],
    )
    of_group = {g: len(np.unique(there[grouped == g])) for g in np.unique(group[: len(row)])}
    for one in wanted:
        mine = int(group[np.argmax(row == one)])
        low, high = np.searchsorted(grouped, (mine, mine + 1))
        first, last = low + np.searchsorted(at[low:high], (record[one] - window, record[one]))
        recent = there[first:last][position[first:last] < ints(left, "log_offset")[one]]
        others = of_group[mine] - len(np.unique(own[row == one]))
        recent = np.unique(recent[~np.isin(recent, own[row == one])])
        found[one] = len(recent) / others if others > 0 else -1.0
    return found


def _silent_seconds(members: pa.Table, commit: I64, lively: F64) -> F64:
    """Return seconds from a member's last commit to the record without it; -1 if inconclusive."""
    record, joined = ints(members, "timestamp"), ints(members, "last_seen")
    known = (commit > joined) & (joined > 0) & (lively >= 0.5)
    return np.where(known, (record - commit) / 1e6, -1.0)


def _cause_codes(members: pa.Table, commit: I64) -> I64:
    """Return how each member departed: an index into RESOLVED, or one more."""
    record, joined = ints(members, "timestamp"), ints(members, "last_seen")
    known = members["session_timeout_ms"].is_valid().to_numpy()
    session = np.where(known, ints(members, "session_timeout_ms"), SHORTEST_SESSION_MS) * 1000
    spoke = (record - commit < session) & (commit > 0)
    spoke |= (record - joined < session - JOIN_MS * 1000) & (joined > 0)
    silent = known & (commit > joined) & (record - commit <= session + AFTER_SESSION_MS * 1000)
    patient = members["rebalance_timeout_ms"].is_valid().to_numpy()
    poll_ms = np.where(patient, ints(members, "rebalance_timeout_ms"), 0)
    silent &= ~patient | (record - commit < poll_ms * 1000)
    late, ended = _late_for_poll(members, commit, poll_ms)
    either = late & ended
    causes = np.select([either, late, spoke, silent], [len(RESOLVED), 2, 0, 1], len(RESOLVED))
    return causes.astype(np.int64)


def _unseen_ms(members: pa.Table, commit: I64) -> I64:
    """Return milliseconds from a member's last evidence to the record without it; -1 for none."""
    last = np.maximum(commit, ints(members, "last_seen"))
    return np.where(last > 0, (ints(members, "timestamp") - last) // 1000, -1).astype(np.int64)


def _late_for_poll(members: pa.Table, commit: I64, poll_ms: I64) -> tuple[Mask, Mask]:
    """Return who left at the end of the poll interval; and whose session may have ended."""
    joined = ints(members, "last_seen")
    unseen_ms = _unseen_ms(members, commit).astype(np.float64)
    known = members["session_timeout_ms"].is_valid().to_numpy()
    session_ms = ints(members, "session_timeout_ms")
    soonest = np.where(known, session_ms, SHORTEST_SESSION_MS) - JOIN_MS
    latest = np.where(known, session_ms, LONGEST_SESSION_MS) + AFTER_SESSION_MS
    ended = (unseen_ms >= soonest) & (unseen_ms <= latest)
    return near_poll_timeout(unseen_ms, poll_ms, commit > joined), ended


def with_departures(rebalances: pa.Table, departures: Sequence[pa.Table]) -> pa.Table:
    """Return rebalances with departed members' silence, and ``leave_or_timeout`` resolved."""
    causes = {_key(row): row for table in departures for row in table.to_pylist()}
    rows = rebalances.select([*_KEY, *_CHANGED]).to_pylist()
    for row in rows if causes else ():
        if (found := causes.get(_key(row))) is None:
            continue
        row |= {name: found[name] for name in ("silent_seconds", "unseen_ms")}
        if row["cause"] == UNRESOLVED and found["cause"] in RESOLVED:
            row |= {"cause": found["cause"], "confidence": RESOLVED[found["cause"]]}
    return replaced(rebalances, **{name: [row[name] for row in rows] for name in _CHANGED})


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)

"""Rules about members: stuck, idle, silent, doubled, stale, mixed.

**Rules.** As :mod:`holdfast.fleet.analysis.findings.rules_rebalances`. Cost is partition-seconds in
which a partition had an owner that did nothing for it.

**Strategy.** The last generation's members are joined with the lag rows by member id.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from holdfast.core.kinds import GroupType
from holdfast.core.model.columns import I64, Mask
from holdfast.core.wire.layouts.record_size import MESSAGE_MAX_BYTES
from holdfast.fleet.analysis.findings.finding import (
    Basis,
    Evidence,
    Lasts,
    Limits,
    Severity,
    Symptom,
    count,
    describe,
    few,
    few_names,
    last_evidence,
    marker_doubt,
    on_group,
    rule,
    to_cooperative,
)
from holdfast.fleet.analysis.findings.rules_anomalies import unreadable_members
from holdfast.fleet.analysis.findings.rules_pollers import batches_s
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.lag import NEVER

_BATCHES = 2
"""A slow poller that is silent for so many of its longest batches is stuck."""

ALMOST = 0.9  # of the limit: the next member that joins may be the one too many


def _stalled(history: GroupHistory) -> tuple[Mask, Mask, I64]:
    """Return lag rows whose owner has work but no progress, those with progress, and times.

    The times say since when each row has made no progress, in ms.
    """
    lag = history.lag
    owned, work = lag.owner_codes[0] >= 0, lag.waits_for_owner
    settled = history.generations.at_ms[history.last] if history.last >= 0 else history.end_ms
    committed = np.maximum(lag.commit_ms, settled)
    since = np.maximum(lag.waiting_since(history.end_ms), settled)
    # Five minutes are also Kafka's max.poll.interval.ms: then the member is removed. If other
    # members
    # of the group commit, two minutes without a commit suffice.
    fresh = owned & (history.end_ms - lag.commit_ms <= Limits.lively_s * 1000)
    lively = bool((fresh & (lag.commit_ms != NEVER)).any())
    limit_s = min(Limits.stuck_s, Limits.hesitant_s) if lively else Limits.stuck_s
    quiet, waits = (history.end_ms - at > limit_s * 1000 for at in (committed, since))
    stalled = work & (lag.committed >= 0) & waits & (lag.commit_ms != NEVER)
    # A record that came a moment ago proves nothing about its owner.
    return stalled, work & ~(quiet & (lag.committed >= 0) & (lag.commit_ms != NEVER)), since


def _static_names(history: GroupHistory) -> dict[str, str]:
    """Return the static name of each member of the last generation that has one."""
    p = history.presence
    rows = np.flatnonzero(history.members_now)
    names = history.members
    return {names[p.member[i]]: name for i in rows if (name := p.static_name(int(i))) is not None}


def _stalled_members(history: GroupHistory, *, static: bool) -> Iterator[Symptom]:
    """Yield members that make no progress on any partition with work.

    ``static``: members with a static name, by that name; otherwise the other members, by member
    id.
    """
    lag = history.lag
    if not lag.waits_for_owner.any():
        return
    stalled, working, since = _stalled(history)
    names = _static_names(history)
    moving = {m for i, m in enumerate(lag.member) if m and working[i]}
    if not stalled.any():
        return
    # A member that polls too rarely (HF127) is at work for as long as its batches take.
    busy_s = batches_s(history)
    silent = {
        i: m
        for i, m in enumerate(lag.member)
        if m and stalled[i] and m not in moving and (m in names) is static
        if history.end_ms - lag.commit_ms[i] > _BATCHES * 1000 * busy_s.get(m, 0)
    }
    if not silent:
        return
    stalled_rows: I64 = np.asarray([*silent], dtype=np.int64)
    stuck = set(silent.values())
    # With the partitions that it has never committed: their records wait for the same member.
    never = (lag.committed < 0) & (lag.begin >= 0) & (lag.begin < lag.end)
    of_stuck = np.asarray([m in stuck for m in lag.member], dtype=np.bool_)
    rows: I64 = np.flatnonzero(of_stuck & (never | lag.waits))
    members = dict.fromkeys(names.get(m, m) for m in silent.values())
    who = count(len(members), "static member" if static else "member")
    silence_s = float((history.end_ms - lag.commit_ms[stalled_rows]).min()) / 1000
    severity, doubt = marker_doubt(history, rows)
    yield Symptom(
        severity=severity,
        text=f"{who}: {count(len(rows), 'partition')} with unread records, and no commit for "
        f"{silence_s / 60:.0f} minutes or more{': has it ended?' if static else ''}{doubt}",
        evidence=last_evidence(history, members, rows),
        cost_upper_s=float((history.end_ms - since[rows]).sum()) / 1000,
        command=describe(history, *(("--members", "--verbose") if static else ())),
    )


@rule(
    "HF105",
    name="stuck member",
    severity=Severity.ERROR,
    of_lag=partial(_stalled_members, static=False),
    what="A member owns partitions with unread records, and committed none of them for five "
    "minutes; or for two, while other members committed within one. Or a member left that had "
    "not committed for four minutes, while most others had: most likely it was removed.",
    why="Heartbeats come from another thread: a member that hangs keeps its partitions.",
    how="Commit times of the partitions of the last generation's members, against log ends. For "
    "members that left, their last commits, if other members then continued to read their "
    "partitions. Control records of transactions (markers) do not count, if a live cluster "
    "reports them. If none did (a dump, an unreadable topic) and no partition is more than ten "
    "records behind, the finding is a warning.",
    mend="Take a thread dump of it, even after the group has removed it: the process often still "
    "hangs. Lower max.poll.interval.ms so that the group notices earlier.",
)
def _stuck(history: GroupHistory) -> Iterator[Symptom]:
    yield from _stalled_members(history, static=False)
    yield from _thrown_out(history)


def _thrown_out(history: GroupHistory) -> Iterator[Symptom]:
    """Yield members that had not committed for long when removed, and whose work continued."""
    r, members = history.rebalances, history.members
    for i in np.flatnonzero(np.nan_to_num(r.silent_s) >= Limits.evicted_s):
        after = int(history.rebalance_index[i])
        if after < 1:
            continue
        present = [set(history.presence.members_of(g)) for g in (after - 1, after)]
        gone = sorted(present[0] - present[1])
        owner = history.owner_at(after - 1)
        rows = np.flatnonzero(np.isin(owner, gone))
        if not history.had_work(rows, int(r.at_ms[i])):
            continue
        yield Symptom(
            severity=Severity.WARN,
            text=f"{count(len(gone), 'member')} left after {r.silent_s[i] / 60:.0f} minutes "
            "without a commit, while others committed: removed, probably for exceeding "
            "max.poll.interval.ms",
            evidence=Evidence(
                generations=few([int(r.generation[i])]),
                from_ms=int(r.at_ms[i] - 1000 * r.silent_s[i]),
                to_ms=int(r.at_ms[i]),
                members=few_names(members[m] for m in gone),
                partitions=few_names(history.partition_name(int(row)) for row in rows),
                figures={"silent_s": float(r.silent_s[i])},
            ),
            rebalances=frozenset({int(i)}),
            cost_upper_s=float(r.silent_s[i]) * len(rows),
            command=on_group(history, "history", "--table", "rebalances"),
        )


@rule(
    "HF109",
    name="stale static member",
    severity=Severity.ERROR,
    of_lag=True,
    what="A static member (group.instance.id) holds partitions with unread records and has "
    "committed nothing for five minutes.",
    why="A static member that has ended keeps its partitions until its session times out, and no "
    "other member may read them.",
    how="Detected as HF105, for members with a static name.",
    mend="Start that member again, or remove its id with an admin client "
    "(removeMembersFromConsumerGroup in Java's).",
)
def _stale_static(history: GroupHistory) -> Iterator[Symptom]:
    return _stalled_members(history, static=True)


@rule(
    "HF106",
    name="idle member",
    severity=Severity.WARN,
    what="A member of a stable group has no partition, and no task or connector.",
    why="It costs a process and takes part in every rebalance. More members than partitions are "
    "often intended (standby): then this is only information.",
    how="The last generation's assignment.",
    mend="Run fewer members, or give the topics more partitions.",
)
def _idle(history: GroupHistory) -> Iterator[Symptom]:
    p = history.presence
    empty = (p.n_partitions == 0) & (p.n_copies == 0)
    rows = np.flatnonzero(history.members_now & empty & ~unreadable_members(history))
    if not len(rows) or history.state != "Stable" or _is_undescribed(history):
        return
    names = [history.identities.names[i] for i in p.identity[rows]]
    total = int(history.members_now.sum())
    partitions = history.n_partitions
    noun = history.kind.words.thing
    yield Symptom(
        severity=Severity.INFO if total > partitions else Severity.WARN,
        text=f"{len(rows)} of {count(total, 'member')} without a {noun} "
        f"({count(partitions, noun)} ever assigned)",
        evidence=last_evidence(history, names),
        command=describe(history, "--members"),
    )


def _is_undescribed(history: GroupHistory) -> bool:
    """Return whether the coordinator of a stable group describes no assignments.

    Kafka names the protocol of such a group. Tansu 0.6.0 returns ids of members and nothing else.
    """
    is_classic = history.kind.group_type is GroupType.CLASSIC
    return is_classic and not history.generations.protocol[history.last]


@rule(
    "HF107",
    name="member never commits",
    severity=Severity.WARN,
    of_lag=True,
    what="No partition of a member has a committed offset, though the topics hold records.",
    why="After a restart or a rebalance everything is read again from auto.offset.reset, or "
    "skipped.",
    how="Owners of the last generation, against the offset commits of the whole window.",
    mend="Turn enable.auto.commit on, or commit. Ignore this if offsets are stored elsewhere.",
)
def _silent(history: GroupHistory) -> Iterator[Symptom]:
    lag = history.lag
    settled = history.generations.at_ms[history.last] if history.last >= 0 else history.end_ms
    if history.end_ms - settled < Limits.stuck_s * 1000 or history.kind.is_shared:
        return
    owner, owners = lag.owner_codes
    is_silent = np.zeros(len(owners) + 1, np.bool_)
    is_silent[owner[(lag.committed < 0) & (lag.end > lag.begin)]] = True
    is_silent[owner[lag.committed >= 0]] = False
    is_silent[-1] = False  # of partitions without an owner
    rows = np.flatnonzero(is_silent[owner])
    if not len(rows):
        return
    # Members in the order of their first partitions, each with all of its own.
    silent = list(dict.fromkeys(owner[rows].tolist()))
    rank = np.zeros(len(owners), np.int64)
    rank[silent] = np.arange(len(silent))
    rows = rows[np.argsort(rank[owner[rows]], kind="stable")]
    silent_members = [owners[one] for one in silent]
    yield Symptom(
        text=f"{count(len(silent_members), 'member')} never committed any of "
        f"{count(len(rows), 'partition')}: a restart reads from auto.offset.reset",
        evidence=last_evidence(history, silent_members, rows),
        command=describe(history, "--offsets"),
    )


@rule(
    "HF110",
    name="protocol mix",
    severity=Severity.WARN,
    what="The chosen assignor, or the group's protocol, changed back and forth.",
    why="If members have different lists of assignors, the choice depends on which are present; "
    "an eager and a cooperative one together lose the benefit of both.",
    how="Stated by the group's records. One change in one direction is an upgrade, and no "
    "finding. So is one migration to the protocol of KIP-848 and back.",
    mend="Finish the upgrade: KIP-726 needs two rolling restarts. `upgrade-check` prints them "
    "for the client in `--client`: what one client accepts, another refuses.",
)
def _protocol_mix(history: GroupHistory) -> Iterator[Symptom]:
    g = history.generations
    named = [i for i in range(len(g.number)) if g.protocol[i]]
    changed = [b for a, b in pairwise(named) if g.protocol[a] != g.protocol[b]]
    seen = sorted({g.protocol[i] for i in named})
    # A group that migrated to KIP-848's protocol may have gone back once.
    ways = 2 if len(history.group_type) > 1 else 1
    if len(changed) <= ways * max(len(seen) - 1, 1):
        return
    what = f"assignors {', '.join(seen)}" if len(seen) > 1 else ", ".join(history.group_type)
    yield Symptom(
        text="the group changed back and forth between protocols, "
        f"{count(len(changed), 'time')} ({what})",
        evidence=Evidence(
            generations=few(int(g.number[i]) for i in changed),
            from_ms=int(g.at_ms[changed[0]]) if changed else -1,
            to_ms=int(g.at_ms[changed[-1]]) if changed else -1,
            figures={"changes": float(len(changed))},
        ),
        command=to_cooperative(history, seen),
        basis=Basis.STATED,
    )


@rule(
    "HF117",
    name="uneven loads",
    severity=Severity.WARN,
    what="Members with the same subscription have numbers of partitions that differ by two or "
    "more.",
    why="The member with most partitions decides how far the group is behind.",
    how="The last generation's assignment.",
    mend="Use an assignor that balances over all topics (cooperative-sticky); range does so per "
    "topic.",
)
def _uneven(history: GroupHistory) -> Iterator[Symptom]:
    p = history.presence
    rows = np.flatnonzero(history.members_now & ~unreadable_members(history))
    if not history.kind.takes_assignors:
        return  # tasks differ, and a share group's members read together
    if len(rows) < 2 or len({p.topics(int(i)) for i in rows}) > 1:
        return
    loads = p.n_partitions[rows]
    spread = int(loads.max() - loads.min())
    if spread < Limits.load_spread or loads.min() < 0:
        return
    most = [history.identities.names[p.identity[i]] for i in rows[loads == loads.max()]]
    yield Symptom(
        severity=Severity.WARN if spread >= 2 * Limits.load_spread else Severity.INFO,
        text=f"members with the same topics have {loads.min()} to {loads.max()} partitions",
        evidence=last_evidence(history, most, spread_partitions=float(spread)),
        command=on_group(history, "plan", "--assignor", "cooperative-sticky"),
    )


@rule(
    "HF122",
    name="large group record",
    severity=Severity.WARN,
    lasts=Lasts.GENERATION,
    what="The group's record, with every member's subscription and assignment, is larger than half "
    f"of the {MESSAGE_MAX_BYTES:,} bytes that a broker writes by default.",
    why="A broker does not write a record above message.max.bytes: every SyncGroup of the round "
    "ends in error -1, the group keeps rebalancing, and no member gets an assignment. A record "
    "grows with the members, and with the topics and partitions of each.",
    how="Stated by the sizes of the group's records, as a broker compares them with its limit.",
    mend="Subscribe members to fewer topics, split the group, or raise message.max.bytes on the "
    "brokers and max.message.bytes of __consumer_offsets. KIP-848 groups have a record a member.",
)
def _large_record(history: GroupHistory) -> Iterator[Symptom]:
    sizes, g = history.record_bytes, history.generations
    rows = np.flatnonzero(sizes > Limits.record_share * MESSAGE_MAX_BYTES)
    if not len(rows):
        return
    largest = int(rows[np.argmax(sizes[rows])])
    n_bytes = int(sizes[largest])
    yield Symptom(
        severity=Severity.ERROR if n_bytes > ALMOST * MESSAGE_MAX_BYTES else Severity.WARN,
        text=f"the group's record has {n_bytes:,} bytes with {g.n_members[largest]:,} members, "
        f"{100 * n_bytes / MESSAGE_MAX_BYTES:.0f} % of the {MESSAGE_MAX_BYTES:,} that a broker "
        "writes by default",
        evidence=Evidence(
            generations=few(int(g.number[i]) for i in rows),
            from_ms=int(g.at_ms[rows[0]]),
            to_ms=int(g.at_ms[rows[-1]]),
            figures={
                "record_bytes": float(n_bytes),
                "limit_bytes": float(MESSAGE_MAX_BYTES),
                "members": float(g.n_members[largest]),
            },
        ),
        command=on_group(history, "history", "--table", "generations"),
        basis=Basis.STATED,
    )

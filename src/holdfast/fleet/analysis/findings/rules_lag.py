"""Rules about lag and ownership at the end of the window: skew, empty groups, lost records.

**Rules.** As :mod:`holdfast.fleet.analysis.findings.rules_rebalances`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from holdfast.core.command_lines import FOLDER, SERVERS, holdfast_line, kafka_line, option
from holdfast.core.model.columns import Mask, distinct
from holdfast.fleet.analysis.findings.finding import (
    Basis,
    Evidence,
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
)
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.lag import NEVER, LagRows

STALE: Final = "HF123"
"""Code of the finding about old tables."""


def may_ail(lag: LagRows, end_ms: int) -> Mask:
    """Return which rows of the lag, of any groups, are a reason to run the rules of the lag.

    A group without such a row, and with fewer than ``Limits.lag_records`` records of lag, has no
    finding of a rule that is marked ``of_lag``.
    """
    waits = lag.work > 0
    never = (lag.committed < 0) & (lag.end > lag.begin)
    still_ms = end_ms - np.minimum(lag.position_ms, lag.commit_ms)
    found: Mask = waits & (still_ms >= min(Limits.hesitant_s, Limits.stuck_s) * 1000)
    found |= never | lag.not_subscribed
    for where in ("before_begin", "beyond_end"):
        found[lag.clamped(where)] = True
    return found


@rule(
    "HF104",
    name="lag skew",
    severity=Severity.WARN,
    of_lag=True,
    what="One member has three times the mean lag of the group's members or more.",
    why="The group is as late as its latest member; the others have capacity.",
    how="Log end minus commit, summed over the partitions of each owner in the last generation.",
    mend="Balance by lag: the assignors lag and lag-sticky, which only holdfast's clients have. "
    "If one partition has all the lag, which the finding then states, the keys are skewed and no "
    "assignor helps: choose other keys, or reduce the work per record.",
)
def _skew(history: GroupHistory) -> Iterator[Symptom]:
    lag = history.lag
    counted = lag.waits_for_owner
    if int(lag.work[counted].sum()) < Limits.lag_records:
        return
    if history.kind.is_shared:
        return  # many members read one partition
    now = [history.members[m] for m in history.presence.member[history.members_now]]
    owner, owners = lag.owner_codes
    summed = np.zeros(len(owners), np.int64)
    np.add.at(summed, owner[counted], lag.work[counted])
    records_of = dict(zip(owners, summed.tolist(), strict=True))
    totals = {member: records_of.get(member, 0) for member in now}
    total = sum(totals.values())
    if len(totals) < 2 or total < Limits.lag_records:
        return
    worst = max(sorted(totals), key=totals.__getitem__)
    factor = totals[worst] * len(totals) / total
    # With two members the worst has at most twice the mean: the limit is capped accordingly.
    if factor < min(Limits.lag_skew, 0.9 * len(totals)):
        return
    rows = np.flatnonzero(np.asarray([m == worst for m in lag.member], dtype=bool))
    rows = rows[np.argsort(-lag.lag[rows], kind="stable")]
    # A partition with nearly all the lag makes each of its owners late.
    hot = int(lag.lag[rows[0]]) >= Limits.hot_share * totals[worst]
    name = lag.partition_name(int(rows[0]))
    yield Symptom(
        text=f"one of {len(totals)} members has {totals[worst]:,} of {total:,} records of lag, "
        f"{factor:.1f} times the mean"
        + (f"; one partition, {name}, has {lag.lag[rows[0]]:,} of them" if hot else ""),
        evidence=last_evidence(
            history, [worst], rows[:1] if hot else rows, lag_records=float(total), times_mean=factor
        ),
        command=on_group(history, "plan", "--assignor", "lag-sticky")
        if history.kind.takes_assignors and not hot
        else on_group(history, "lag"),
    )


@rule(
    "HF126",
    name="group too slow",
    severity=Severity.WARN,
    of_lag=True,
    what="Every member makes progress, and the oldest unread record of each is at least five "
    "minutes old.",
    why="The group reads slower than producers write, or did until a moment ago: balancing "
    "partitions does not help.",
    how="Age of the oldest unread record by its own time, which only a live cluster reports; "
    "commits of the last two minutes. For a group without a record of members (assign(), Flink), "
    "commits of the last hour, and records that are at least an hour old.",
    mend="Add members, up to one a partition, or reduce the work per record. If lag shrinks, wait.",
)
def _too_slow(history: GroupHistory) -> Iterator[Symptom]:
    if history.last < 0:
        yield from _behind(history)
        return
    lag = history.lag
    known = (lag.owner_codes[0] >= 0) & ~np.isnan(lag.age_s)
    if int(np.maximum(lag.lag[known], 0).sum()) < Limits.lag_records:
        return
    if history.kind.is_shared or history.state != "Stable":
        return
    now = {history.members[m] for m in history.presence.member[history.members_now]}
    oldest, newest, records = dict.fromkeys(now, 0.0), dict.fromkeys(now, NEVER), 0
    for i, member in enumerate(lag.member):
        if member in now and not np.isnan(lag.age_s[i]):
            oldest[member] = max(oldest[member], float(lag.age_s[i]))
            newest[member] = max(newest[member], int(lag.position_ms[i]))
            records += max(int(lag.lag[i]), 0)
    working = history.end_ms - Limits.hesitant_s * 1000
    if not now or records < Limits.lag_records or min(newest.values()) < working:
        return
    least = min(oldest.values())
    if least < Limits.behind_s:
        return
    yield Symptom(
        text=f"all of {count(len(now), 'member')} read, and all are behind: unread records are "
        f"{least / 60:,.0f} to {max(oldest.values()) / 60:,.0f} minutes old",
        evidence=last_evidence(
            history,
            [],
            np.flatnonzero(lag.lag > 0),
            lag_records=float(records),
            oldest_s=max(oldest.values()),
        ),
        command=on_group(history, "lag"),
    )


def _behind(history: GroupHistory) -> Iterator[Symptom]:
    """Yield partitions that a group without a record of members commits, and reads late.

    Such a group may commit at checkpoints minutes apart, so the limit is longer.
    """
    lag = history.lag
    fresh = history.end_ms - lag.commit_ms < Limits.forgotten_s * 1000
    rows = np.flatnonzero(fresh & lag.waits & (lag.age_s >= Limits.forgotten_s))
    behind = int(lag.work[rows].sum())
    if behind < Limits.lag_records:
        return
    oldest_s = float(lag.age_s[rows].max())
    yield Symptom(
        text=f"{count(len(rows), 'partition')} committed within the last hour, and their unread "
        f"records are up to {oldest_s / 60:,.0f} minutes old",
        evidence=last_evidence(history, [], rows, lag_records=float(behind), oldest_s=oldest_s),
        command=on_group(history, "lag"),
    )


@rule(
    "HF125",
    name="no progress",
    severity=Severity.ERROR,
    of_lag=True,
    what="A partition with unread records is repeatedly committed at the same offset, for two "
    "minutes or more.",
    why="Usually one record cannot be processed (a poison pill), and all records behind it wait. "
    "The member seems healthy: it polls and commits.",
    how="First and last of the successive commits at one offset, and the age of the record "
    "behind it. If no cluster reported that age (a dump), the finding is only information: the "
    "records may be new. Control records of transactions do not count, as for HF105.",
    mend="Inspect the record at the committed offset; skip it, or send it to a dead letter topic.",
)
def _no_progress(history: GroupHistory) -> Iterator[Symptom]:
    lag = history.lag
    repeated = (lag.position_ms >= 0) & (
        lag.commit_ms - lag.position_ms >= Limits.hesitant_s * 1000
    )
    alive = history.end_ms - lag.commit_ms <= Limits.hesitant_s * 1000
    unknown = np.isnan(lag.age_s)
    waits = unknown | (lag.age_s >= Limits.hesitant_s)
    rows = np.flatnonzero(repeated & alive & waits & lag.waits)
    if not len(rows):
        return
    elapsed_s = (history.end_ms - lag.position_ms[rows]) / 1000
    known = bool((~unknown[rows]).any())
    severity, doubt = marker_doubt(history, rows)
    yield Symptom(
        severity=severity if known else Severity.INFO,
        text=f"{count(len(rows), 'partition')} repeatedly committed at one offset, for up to "
        f"{elapsed_s.max() / 60:,.0f} minutes, with records unread behind it{doubt}",
        evidence=last_evidence(
            history,
            [m for i in rows if (m := lag.member[int(i)])],
            rows,
            total_downtime_s=float(elapsed_s.max()),
        ),
        cost_upper_s=float(elapsed_s.sum()),
        command=on_group(history, "lag"),
    )


@rule(
    "HF114",
    name="partitions without an owner",
    severity=Severity.ERROR,
    what="The group is stable, its members subscribe to the topic, and a partition that had an "
    "owner has none.",
    why="No member reads it, and that will not change until the next rebalance.",
    how="The last generation's assignment against every partition ever assigned.",
    mend="With a delay this ends after the delay; otherwise restart the leader, or change its "
    "assignor.",
)
def _unowned(history: GroupHistory) -> Iterator[Symptom]:
    if history.is_always_owned or history.state != "Stable" or history.last < 0:
        return
    t = history.timeline
    owner = history.owner_at(history.last)
    subscribed = {
        topic
        for i in np.flatnonzero(history.members_now)
        for topic in history.presence.topics(int(i))
    }
    rows = [
        r
        for r in np.flatnonzero(owner == -1)
        if not subscribed or t.topics[t.row_topic[r]] in subscribed
    ]
    if not rows:
        return
    starts = t.from_ms[t.start[1:][rows] - 1]
    cost = float((history.end_ms - starts).sum()) / 1000
    yield Symptom(
        text=f"{count(len(rows), 'partition')} lost the owner, though the group is stable",
        evidence=Evidence(
            generations=few([int(history.generations.number[history.last])]),
            from_ms=int(starts.min()),
            to_ms=history.end_ms,
            partitions=few_names(history.partition_name(int(r)) for r in rows),
        ),
        cost_lower_s=cost,
        cost_upper_s=cost,
        command=on_group(history, "lag"),
    )


@rule(
    "HF115",
    name="no active members",
    severity=Severity.WARN,
    of_lag=True,
    what="A thousand records or more wait for a group that is empty, or that has committed "
    "nothing for an hour and has no record of members.",
    why="Lag grows until a member comes back; offsets of an empty group expire.",
    how="Stated by the group's last record. A group whose consumers take their partitions by "
    "assign() (Flink, a program of your own) has no such record: its last commits show it, and "
    "the age of the records behind them, if a live cluster reported it. If the group still "
    "commits other partitions, the finding is information.",
    mend="Start the consumers, or delete the group if it is not needed.",
)
def _nobody(history: GroupHistory) -> Iterator[Symptom]:
    if history.last < 0:
        yield from _forgotten(history)
        return
    lag = history.lag
    behind = int(lag.work[lag.waits].sum())
    if history.state not in ("Empty", "Dead") or behind < Limits.lag_records:
        return
    rows = np.flatnonzero(lag.waits)
    since = int(history.generations.at_ms[history.last])
    cost = len(rows) * (history.end_ms - since) / 1000
    yield Symptom(
        text=f"the group has no member, and {behind:,} records wait in "
        f"{count(len(rows), 'partition')}",
        evidence=last_evidence(history, [], rows, lag_records=float(behind)),
        cost_lower_s=cost,
        cost_upper_s=cost,
        command=describe(history),
        basis=Basis.STATED,
    )


def _forgotten(history: GroupHistory) -> Iterator[Symptom]:
    """Yield partitions that a group without a record of members has not committed for long."""
    lag, since = history.lag, history.lag.waiting_since(history.end_ms)
    long_ago = history.end_ms - since >= Limits.forgotten_s * 1000
    rows = np.flatnonzero(lag.waits & (lag.commit_ms != NEVER) & long_ago)
    behind = int(lag.work[rows].sum())
    if behind < Limits.lag_records:
        return
    silence_s = float((history.end_ms - lag.commit_ms[rows]).min()) / 1000
    still = bool((history.end_ms - lag.commit_ms < Limits.forgotten_s * 1000).any())
    yield Symptom(
        severity=Severity.INFO if still else None,
        text=f"no commit for {silence_s / 3600:,.1f} hours or more, and {behind:,} records wait in "
        f"{count(len(rows), 'partition')}; the group has no record of members"
        + (", which still commits others" if still else ""),
        evidence=last_evidence(history, [], rows, lag_records=float(behind), silence_s=silence_s),
        cost_upper_s=float((history.end_ms - since[rows]).sum()) / 1000,
        command=describe(history),
    )


@rule(
    "HF129",
    name="topics not subscribed to",
    severity=Severity.INFO,
    of_lag=True,
    what="The group has commits of a topic that none of its members subscribes to.",
    why="No member reads the topic, and its lag grows in every tool that adds up commits, until "
    "they expire: by default a week after the commit (offsets.retention.minutes).",
    how="Subscriptions of the last generation's members, if all can be read, against the group's "
    "commits. `not_subscribed` of the table lag marks the partitions, and they do not count in "
    "holdfast_group_lag_seconds.",
    mend="If the topic was removed for good, delete its commits with Kafka's tool for groups "
    "(--delete-offsets). Otherwise subscribe to it again.",
)
def _abandoned(history: GroupHistory) -> Iterator[Symptom]:
    lag = history.lag
    rows = np.flatnonzero(lag.not_subscribed)
    if not len(rows):
        return
    topic, names = lag.topic_codes
    topics = [names[i] for i in distinct(topic[rows]).tolist()]
    behind = int(lag.work[rows][lag.waits[rows]].sum())
    yield Symptom(
        text=f"commits in {count(len(rows), 'partition')} of {count(len(topics), 'topic')} that no "
        f"member subscribes to, {behind:,} records behind",
        evidence=last_evidence(history, [], rows, lag_records=float(behind)),
        command=on_group(history, "lag", *option("--topic", topics[0])),
    )


@rule(
    "HF116",
    name="records lost to retention",
    severity=Severity.ERROR,
    of_lag=True,
    what="A committed offset is before the first record that the broker still has.",
    why="The records between were deleted unread.",
    how="Stated: commit and log start offset.",
    mend="Raise retention.ms of the topic, or add consumers before the lag reaches it.",
)
def _lost(history: GroupHistory) -> Iterator[Symptom]:
    rows = history.lag.clamped("before_begin")
    if not len(rows):
        return
    gap = history.lag.begin[rows] - history.lag.committed[rows]
    records = int(gap[(history.lag.begin[rows] >= 0) & (history.lag.committed[rows] >= 0)].sum())
    yield Symptom(
        text=f"deleted unread: {count(records, 'record')} of {count(len(rows), 'partition')}",
        evidence=last_evidence(history, [], rows, lost_records=float(records)),
        command=kafka_line(
            "kafka-configs.sh",
            history.source,
            *("--entity-type", "topics", "--describe"),
            *option("--entity-name", history.lag.topic[int(rows[0])]),
        ),
        basis=Basis.STATED,
    )


@rule(
    "HF120",
    name="commit beyond the end",
    severity=Severity.WARN,
    of_lag=True,
    what="A committed offset is beyond the end of the log.",
    why="The topic was deleted and recreated, or an unclean leader took over: consumers fall "
    "back to auto.offset.reset and may skip or repeat records.",
    how="Stated: commit and log end offset.",
    mend="Reset the group's offsets for that topic.",
)
def _beyond(history: GroupHistory) -> Iterator[Symptom]:
    rows = history.lag.clamped("beyond_end")
    if not len(rows):
        return
    yield Symptom(
        text=f"the committed offset of {count(len(rows), 'partition')} is beyond the end of the "
        "log: was the topic recreated?",
        evidence=last_evidence(history, [], rows),
        command=on_group(history, "lag"),
        basis=Basis.STATED,
    )


@rule(
    STALE,
    name="stale tables",
    severity=Severity.WARN,
    what="Watch updates the tables, and log ends have not been read for five minutes and three "
    "poll intervals (for a day, if watch ran once).",
    why="Lag and everything else dates from an earlier moment: a group that has stopped since "
    "looks healthy.",
    how="Stated by the tables: when log ends were last read, against the clock of the doctor.",
    mend="Check whether watch runs, and start it again: it continues where it ended. An alert on "
    "holdfast_tables_timestamp_seconds reports it earlier.",
)
def _stale(history: GroupHistory) -> Iterator[Symptom]:
    if not history.age.is_stale():
        return
    folder = history.source.path or FOLDER
    words = history.age.started_with or option("-b", SERVERS)
    every = f"{history.age.look_every_s or 30:g}s"
    yield Symptom(
        text=f"log ends were read {history.age.seconds / 60:,.0f} minutes ago: findings are of "
        "that moment",
        evidence=Evidence(to_ms=history.end_ms, figures={"age_s": history.age.seconds}),
        command=holdfast_line("watch", *words, *option("-o", folder), "--every", every),
        basis=Basis.STATED,
    )

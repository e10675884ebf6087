"""The fault scenarios by number: what happens, and by which rule it must end well.

**Rules.** Every number from 1 to 75 has an entry. Each is a scene (:mod:`tests.sim.faults.scenes`)
or a test that has the number in its name (``test_faults_*.py``), with the real machines, the real
assignors and the real readers of the log.
"""

from __future__ import annotations

from collections.abc import Mapping

TITLES: Mapping[int, str] = {
    1: "one member joins an idle group",
    2: "two members join in one round",
    3: "a join during the revoking round of a transfer",
    4: "a join between the revoking and the assigning round",
    5: "a clean leave",
    6: "a crash, found by the session timeout",
    7: "a member without partitions leaves: no deferral",
    8: "all leave, one joins: immediate",
    9: "a bounce faster than the session timeout, with a new id",
    10: "a bounce with a static id",
    11: "a static id twice: one is fenced and stops",
    12: "a rolling bounce within the delay: no partition visits a third member",
    13: "a rolling bounce slower than the delay",
    14: "a flapping member",
    15: "half the group dies at once",
    16: "three members more under Design III with batch 1",
    17: "the leader crashes before its sync",
    18: "the leader crashes after its sync, before some have it",
    19: "the leader leaves in a delay, an old member leads: deadline kept",
    20: "the leader leaves in a delay, a newcomer leads",
    21: "the leader changes between revoke and assign: no loss",
    22: "the leader changes in the middle of Design III's batches",
    23: "an old leader leads again: stale memory is dropped by generation",
    24: "a newer subscription version than the leader knows",
    25: "a leader with stale metadata",
    26: "the plan throws",
    27: "two members believe to lead",
    28: "a JoinGroup response is lost, an id is a ghost",
    29: "SyncGroup says REBALANCE_IN_PROGRESS: claims kept",
    30: "ILLEGAL_GENERATION: lost, empty claims, id kept",
    31: "UNKNOWN_MEMBER_ID: lost, new id",
    32: "an error of an older generation is ignored",
    33: "the coordinator moves in the middle of a round",
    34: "the coordinator loses the group record",
    35: "a response after the session timeout is ignored",
    36: "a JoinGroup comes twice",
    37: "two members claim a partition, same generation",
    38: "three claim it, two alike, one newer",
    39: "claims of what does not exist",
    40: "a claim outside the subscription",
    41: "unreadable user data",
    42: "a member with an empty subscription",
    43: "subscriptions v0 to v3 together",
    44: "eager and cooperative members together",
    45: "a generation from the far future",
    46: "a topic grows during a delay",
    47: "a topic is deleted while its partition waits",
    48: "a topic is recreated smaller",
    49: "the subscription changes while revoking",
    50: "a pattern begins to match a new topic",
    51: "a broker's rack is unknown for a moment",
    52: "the revoke callback throws",
    53: "revoking takes longer than allowed",
    54: "a commit fails retriably while revoking",
    55: "a commit after the revocation",
    56: "the poll loop stalls",
    57: "the process pauses longer than its session",
    58: "clocks jump",
    59: "all timers fire together: one round",
    60: "unrelated rounds during a delay",
    61: "a second loss during a delay",
    62: "a member returns in the round of the deadline",
    63: "delay 0 is now",
    64: "a delay from the wire that cannot be",
    65: "lags cannot be read",
    66: "a committed offset outside the log",
    67: "no commit, reset latest or earliest",
    68: "all lags equal",
    69: "a tombstone of an unknown group",
    70: "records out of order after compaction",
    71: "an unknown record type or version",
    72: "a group migrates to KIP-848 and back",
    73: "the coordinator answers with a code that passes",
    74: "the coordinator answers with a code that is fatal",
    75: "the group's record is too large until one member has gone",
}
"""Number -> what happens."""


def slug(number: int) -> str:
    """A scenario's name where only words are allowed."""
    text = TITLES[number].lower()
    return "_".join("".join(c if c.isalnum() else " " for c in text).split())

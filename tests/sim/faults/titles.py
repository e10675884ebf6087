"""The fault scenarios by number: their events, and the rule by which they must end well.

**Rules.** Every number from 1 to 75 is a fault case (:mod:`tests.sim.faults.cases`), whose
docstring is its title, or a test that has the number in its name (``test_faults_*.py``), with the
real machines, the real assignors and the real readers of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.sim.faults.cases import CASES

OF_TESTS: Mapping[int, str] = {
    1: "one member joins an idle group",
    2: "two members join in one round",
    3: "a join during the revoking round of a transfer",
    4: "a join between the revoking and the assigning round",
    5: "a clean leave",
    6: "a crash, found by the session timeout",
    8: "all leave, one joins: immediate",
    9: "a bounce faster than the session timeout, with a new id",
    10: "a bounce with a static id",
    12: "a rolling bounce within the delay: no partition visits a third member",
    13: "a rolling bounce slower than the delay",
    14: "a flapping member",
    15: "half the group dies at once",
    16: "three members more under Design III with batch 1",
    19: "the leader leaves in a delay, an old member leads: deadline kept",
    22: "the leader changes in the middle of Design III's batches",
    33: "the coordinator moves in the middle of a round",
    34: "the coordinator loses the group record",
    46: "a topic grows during a delay",
    48: "a topic is recreated smaller",
    57: "the process pauses longer than its session",
    58: "clocks jump",
    59: "all timers fire together: one round",
    60: "unrelated rounds during a delay",
    61: "a second loss during a delay",
    62: "a member returns in the round of the deadline",
    63: "delay 0 is now",
    65: "lags cannot be read",
    69: "a tombstone of an unknown group",
    70: "records out of order after compaction",
    71: "an unknown record type or version",
    72: "a group migrates to KIP-848 and back",
}


def title_of(case: Callable[..., object]) -> str:
    """Return the docstring of a fault case, as the titles of tests are written."""
    first, _, rest = (case.__doc__ or "").removesuffix(".").partition(" ")
    return f"{first.lower() if first.istitle() else first} {rest}"


TITLES = dict(sorted({**OF_TESTS, **{n: title_of(case) for n, case in CASES.items()}}.items()))
"""Number -> what happens."""


def slug(number: int) -> str:
    """A scenario's name where only words are allowed."""
    text = TITLES[number].lower()
    return "_".join("".join(c if c.isalnum() else " " for c in text).split())

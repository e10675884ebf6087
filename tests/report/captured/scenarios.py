"""The groups of ``dump`` and ``ages.json`` beside this file: what happened to each on a broker.

They lived beside each other for 345 s; readers were librdkafka's, members of a policy holdfast's,
and what no client does a raw member did. ``ages.json`` has the times of the oldest unread records,
as the broker told them. ``capture.py`` of commit ``be0fb68d`` played them.

**Rules.** What is wrong with a group was written down before it lived, and is what its members did,
never what a table says. A sound group did nearly the same as an ill one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One group; ``beside`` are codes that come with the problem by its nature."""

    name: str
    what: str
    planted: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()


ILL = {
    "avoidable": ("range: a fourth member joins three of 24 partitions", "HF103", "HF119"),
    "idle": ("range: three members, four topics of one partition", "HF106", "HF117"),
    "two-owners": ("the leader gives partition 2 to both members", "HF108", ""),
    "mixed": ("a roundrobin member twice joins one of range,roundrobin", "HF110", "HF111 HF119"),
    "waits-long": ("deferred by 150 s: one is away for 4 s, one does not return", "HF112", ""),
    "for-nothing": ("the leader joins again five times, and nothing changes", "HF113", "HF119"),
    "left-out": ("from its third round on the leader gives partition 3 to nobody", "HF114", ""),
    "deleted": ("records behind the committed offsets are deleted", "HF116", ""),
    "uneven": ("range: two members, four topics of three partitions", "HF117", ""),
    "interrupted": ("ten members come 4 s apart, and the leader plans for 6 s", "HF118", ""),
    "beyond": ("offset 500 is committed where the log ends at 100", "HF120", ""),
    "unreadable": ("the second member's assignment is no layout", "HF121", "HF114"),
    "large": ("subscriptions of 300,000 bytes", "HF122", ""),
    "stuck": ("one of three members stops to poll after 30 s", "HF105", ""),
    "evicted": ("the same for longer than its poll interval of 260 s", "HF105 HF127", ""),
    "poison": ("the record at 20 of partition 0 is read again and again", "HF125", ""),
    "too-slow": ("two members read a record in half a second, 12,000 wait", "HF126", ""),
    "hot": ("partition 0 has 8,000 records, the other five 50", "HF104", ""),
    "skewed": ("one of four members reads a record in half a second", "HF104", ""),
    "crash-loop": ("one of three members lives for 9 s, eight times", "HF124", "HF101 HF103 HF111"),
    "silent": ("one of two members reads and never commits", "HF107", ""),
    "nobody": ("the only member leaves with a thousand records unread", "HF115", ""),
    "deployed": ("four members restart one after the other", "HF102 HF111", "HF101 HF103"),
}
"""What happened, the codes that are planted, and those beside them."""

SOUND = {
    "cooperative": "three members of cooperative-sticky, six partitions",
    "cooperative-many": "five members of cooperative-sticky, twenty partitions",
    "range": "two members of range, six partitions",
    "roundrobin": "three members of roundrobin, nine partitions",
    "alone": "one member, three partitions",
    "grows": "a fourth member joins three of cooperative-sticky",
    "standby": "three members, two partitions",
    "raw": "subscriptions of 100,000 bytes",
    "upgraded": "two static members change from range to cooperative-sticky in two bounces",
    "bounced": "deferred: three members restart one after the other, each for 4 s",
    "deferred": "three members of deferred",
    "incremental": "three members of incremental",
    "simple": "three members of simple",
    "rejoins-once": "the leader joins again once",
    "trimmed": "records before the committed offsets are deleted",
    "rests": "nothing comes, and the same offset is committed again and again",
    "read-to-the-end": "the only member leaves with nothing unread",
    "next-protocol": "three members of KIP-848",
    "restarts-once": "one of two static members is away for 4 s",
    "backlog-read": "two members read 12,000 records that are half an hour old",
    "nothing-to-read": "the partitions of one of two members are empty",
}

SCENARIOS = (
    *(
        Scenario(
            name=f"ill-{name}",
            what=what,
            planted=frozenset(codes.split()),
            beside=frozenset(beside.split()),
        )
        for name, (what, codes, beside) in ILL.items()
    ),
    *(Scenario(name=f"sound-{name}", what=what) for name, what in SOUND.items()),
)
"""Every group that lived, in the order of its beginning."""

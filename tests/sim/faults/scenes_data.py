"""Fault scenarios 66 to 72 as scenes: lags that cannot be known, and logs that are not in order.

**Rules.** A name is its number; titles stand in :mod:`tests.sim.faults.titles`. Here the
coordinator replays the records. `test_faults_around.py` gives the same records to the pipeline.

**Strategy.** The real assignors on counts by hand, the real coordinator's replay on real bytes.

References: KIP-848, "Online migration".
"""

from __future__ import annotations

from typing import Any

from tests.sim.faults.scene import Scene

from holdfast.core.assignors.registry import assign
from holdfast.core.machine.coordinator.group_log import (
    Append,
    Durable,
    StoredGroup,
    StoredMember,
    commit_record,
    group_record,
)
from holdfast.core.model.group import Group
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.layouts.offsets_records import Record, decode_record, encode_record
from holdfast.core.wire.layouts.offsets_schemas import RECORD_SCHEMAS, RecordType
from holdfast.errors import WireError


def lags(
    s: Scene, *offsets: tuple[int, int, int | None], reset: str = "latest"
) -> list[int] | None:
    """Lags of one topic from (begin, end, committed), as the lag assignor is given them."""
    rows = [{"begin": b, "end": e, "committed": c} for b, e, c in offsets]
    group = Group.from_dict(
        {
            "partitions": {"t": len(rows)},
            "offsets": {"t": rows},
            "auto_offset_reset": reset,
            "members": [{"id": "a", "topics": ["t"]}, {"id": "b", "topics": ["t"]}],
        }
    )
    own = assign(group, "lag").to_dict()
    loads = sorted(sum(map(len, own[m].values())) for m in own)
    s.expect(loads == [len(rows) // 2] * 2, "both members get equally many")
    return None if group.lags is None else [int(n) for n in group.lags]


def scene_66(s: Scene) -> None:
    """A committed offset outside the log."""
    found = lags(s, (10, 50, 60), (10, 50, 3), (10, 50, 0), (10, 50, 20))
    s.expect(found == [0, 40, 40, 30], "beyond the end no lag, before the beginning the whole log")


def scene_67(s: Scene) -> None:
    """No commit, reset latest or earliest."""
    s.expect(lags(s, (10, 50, None), (0, 5, 5)) == [0, 0], "reset latest: no commit is no lag")
    found = lags(s, (10, 50, None), (0, 5, None), reset="earliest")
    s.expect(found == [40, 5], "reset earliest: no commit is the whole log")


def scene_68(s: Scene) -> None:
    """All lags equal."""
    topics = {f"t{n}": 4 for n in range(6)}  # three members: one extra partition in each topic
    for assignor in ("lag", "lag-sticky"):
        for lag in (0, 7):
            group = Group.from_dict(
                {
                    "partitions": topics,
                    "lags": {topic: [lag] * 4 for topic in topics},
                    "members": [{"id": m, "topics": list(topics)} for m in "abc"],
                }
            )
            own = assign(group, assignor).to_dict()
            even = [sum(len(ps) for ps in own[m].values()) for m in "abc"] == [8, 8, 8]
            s.expect(even, f"{assignor}, every lag {lag}: spread by count over all topics")


# Logs


def generation(number: int, *, owned: tuple[int, ...] = (0,), at_ms: int = 0) -> Append:
    """Group g with one member of topic t, as its coordinator writes it."""
    asked = Subscription(version=1, topics=("t",), user_data=None, owned=())
    given = AssignmentMessage(version=1, partitions=(("t", owned),), user_data=None)
    member = StoredMember(
        member_id="a-1",
        instance_id=None,
        client_id="a",
        client_host="/10.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        subscription=encode_subscription(asked),
        assignment=encode_assignment(given),
    )
    group = StoredGroup(
        protocol_type="consumer",
        generation=number,
        protocol="range",
        leader="a-1",
        timestamp_ms=at_ms,
        members=(member,),
    )
    return group_record("g", group)


def replayed(*records: Append) -> Durable:
    """What a coordinator knows after the records."""
    durable = Durable()
    for record in records:
        durable.replay(record.key, record.value)
    return durable


def of_kip_848(number: int, key: dict[str, Any], value: dict[str, Any] | None) -> Append:
    """A record of the newer protocol, or its tombstone."""
    version = None if value is None else 0
    name = RECORD_SCHEMAS[number].name
    record = Record(record_type=number, name=name, value_version=version, key=key, value=value)
    return Append(*encode_record(record))


def group_tombstone(group_id: str) -> Append:
    """The end of a group."""
    key = {"group": group_id}
    record = Record(record_type=RecordType.GROUP_METADATA, name="GroupMetadata", key=key)
    return Append(*encode_record(record))


def scene_69(s: Scene) -> None:
    """A tombstone of an unknown group."""
    s.expect(replayed(group_tombstone("nobody")).group is None, "a tombstone leaves no group")
    s.expect(replayed(generation(1), group_tombstone("g")).group is None, "one it names is gone")


def scene_70(s: Scene) -> None:
    """Records out of order after compaction."""
    numbers = (9, 3, 12)  # what compaction and another log's tail may leave
    durable = replayed(*(generation(n, at_ms=n) for n in numbers))
    stored = durable.group
    s.expect(stored is not None and stored.generation == 12, "the last record is the state")
    back = replayed(*(generation(n, at_ms=n) for n in (12, 3)))
    stored = back.group
    s.expect(stored is not None and stored.generation == 3, "whatever its number")
    kept = durable.group is not None and len(durable.group.members) == 1
    s.expect(kept, "a gap in numbers is nobody's departure")


def scene_71(s: Scene) -> None:
    """An unknown record type or version."""
    right = generation(4)
    newer = Append(right.key, b"\x00\x63" + (right.value or b"")[2:])
    unknown = Append(b"\x7f\xff\x00\x05group", b"\x00\x00")
    for record, what in ((newer, "a group record of version 99"), (unknown, "type 32767")):
        try:
            decode_record(record.key, record.value)
            reason = ""
        except WireError as error:
            reason = str(error)
        s.expect(reason, f"{what} is refused with a reason: {reason}")


def scene_72(s: Scene) -> None:
    """A group migrates to KIP-848 and back."""
    member = {
        "instanceId": None,
        "rackId": None,
        "clientId": "a",
        "clientHost": "/10.0.0.1",
        "subscribedTopicNames": ("t",),
        "subscribedTopicRegex": None,
        "rebalanceTimeoutMs": 45_000,
        "serverAssignor": None,
        "classicMemberMetadata": None,
    }
    group, both = {"groupId": "g"}, {"groupId": "g", "memberId": "a-1"}
    there = (
        generation(4),
        group_tombstone("g"),
        of_kip_848(5, both, member),
        of_kip_848(3, group, {"epoch": 5, "metadataHash": 0}),
    )
    s.expect(replayed(*there).group is None, "while it is migrated there is no classic group")
    back = (
        *(of_kip_848(n, both, None) for n in (5,)),
        *(of_kip_848(n, group, None) for n in (3,)),
        generation(6),
        commit_record("g", "t", 0, 7, 30),
    )
    durable = replayed(*there, *back)
    stored = durable.group
    s.expect(stored is not None and stored.generation == 6, "then generation 6 is the group again")
    s.expect(durable.offsets == {("t", 0): 7}, "and its commits count")

"""Slow and obvious twins: what the fast code must agree with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

from holdfast import Group


def owner_by_claims(group: Group) -> dict[int, int]:
    """Owner of each tp by the written rule: the one claimant of the highest generation."""
    claimed_by: dict[int, list[tuple[int, int]]] = {}
    for member in range(group.n_members):
        row = group.claim_tp[group.claim_start[member] : group.claim_start[member + 1]]
        for tp in row.tolist():
            claimed_by.setdefault(tp, []).append((int(group.generation[member]), member))
    owners = {}
    for tp, found in claimed_by.items():
        newest = max(generation for generation, _ in found)
        alone = [member for generation, member in found if generation == newest]
        if len(alone) == 1:
            owners[tp] = alone[0]
    return owners


def subscribers(group: Group) -> list[list[int]]:
    """Members that may read each tp."""
    result = []
    for topic, count in enumerate(group.topics.n_partitions.tolist()):
        may = [
            m
            for m in range(group.n_members)
            if topic in group.sub_topic[group.sub_start[m] : group.sub_start[m + 1]]
        ]
        result += [may] * count
    return result


def lag_of_offsets(begin: int, end: int, committed: int | None, reset: str) -> int:
    """Messages behind by KAFKA-5337: a commit is clamped, without one ``reset`` decides."""
    if committed is None:
        return 0 if reset.lower() == "latest" else end - begin
    return end - min(max(committed, begin), end)


def is_rack_match(group: Group, tp: int, member: int) -> bool:
    """Whether the tp has a replica in the member's rack, both racks being known."""
    rack = int(group.rack[member])
    return rack >= 0 and group.topics.rack_names[rack] in group.topics.racks_of(tp)


def is_cross_rack(group: Group, tp: int, member: int) -> bool:
    """Whether the member would read the tp from another rack, both racks being known."""
    racks = group.topics.racks_of(tp)
    rack = int(group.rack[member])
    return bool(racks) and rack >= 0 and group.topics.rack_names[rack] not in racks


def assignments(group: Group) -> Iterator[dict[int, int]]:
    """Every complete assignment of a small group."""
    may = subscribers(group)
    tps = [tp for tp, members in enumerate(may) if members]
    for choice in product(*(may[tp] for tp in tps)):
        yield dict(zip(tps, choice, strict=True))


def goals(group: Group, assignment: dict[int, int]) -> tuple[tuple[int, ...], int, int]:
    """What is minimised, in order: loads from the highest down, racks crossed, claims not kept."""
    count = Counter(assignment.values())
    loads = tuple(sorted((count[m] for m in range(group.n_members)), reverse=True))
    owners = owner_by_claims(group)
    crossed = sum(is_cross_rack(group, tp, member) for tp, member in assignment.items())
    kept = sum(owners.get(tp) == member for tp, member in assignment.items())
    return loads, crossed, -kept


def best(group: Group) -> tuple[tuple[int, ...], int, int]:
    """The least goals that any assignment reaches, by looking at all of them."""
    return min(goals(group, assignment) for assignment in assignments(group))


def as_assignment(group: Group, owner: list[int]) -> dict[int, int]:
    """An owner column as a dict without the unowned."""
    return {tp: member for tp, member in enumerate(owner) if member >= 0}

"""An assignment, which is one column of owners, and every reported number about it, each once.

**Rules.** One column of owners cannot express two owners of one partition. A load is a count of
topic-partitions. Columns named ``before`` and ``after`` are owner columns of the same group:
int32[n_tps] of member indices, or NO_OWNER.

An *agreement* compares a replay with its recording, in either order: 0 is nothing, 1 the same. The
fidelity of a replay is its lowest agreement, so that a good number cannot hide a bad one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.core.model.columns import F64, I32, I64, NO_OWNER, Mask, row_of, row_sizes
from holdfast.core.model.group import Group
from holdfast.core.model.reported import partitions_by_owner
from holdfast.errors import ModelError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignment:
    """Owner of every topic-partition of a group.

    Parameters
    ----------
    owner : int32[n_tps]
        Member index, or -1 for none.

    Raises
    ------
    ModelError
        A wrong length, an index out of range, or an owner not subscribed to the topic.

    References: KIP-54, "Proposed Changes": what an assignor computes.
    """

    group: Group
    owner: I32

    def __post_init__(self) -> None:
        """Check the column against the group."""
        check_owner(self.group, self.owner)

    def to_dict(self) -> dict[str, dict[str, list[int]]]:
        """Return ``{member id: {topic: [partitions]}}``, every member present, all sorted."""
        return owner_to_dict(self.group, self.owner)


def check_owner(group: Group, owner: I32) -> None:
    """Raise ModelError unless ``owner`` is a valid (maybe incomplete) assignment of ``group``."""
    if owner.shape != (group.topics.n_tps,):
        raise ModelError(f"shape {owner.shape}, expected ({group.topics.n_tps},)", column="owner")
    outside = np.flatnonzero((owner < NO_OWNER) | (owner >= group.n_members))
    if len(outside):
        tp = int(outside[0])
        raise ModelError(f"member index {owner[tp]} is out of range", column="owner", index=tp)
    owned = np.flatnonzero(owner != NO_OWNER)
    foreign = owned[~group.is_subscribed(owner[owned], group.topics.topic_of[owned])]
    if len(foreign):
        tp = int(foreign[0])
        topic, partition = group.topics.name_of(tp)
        member_id = group.member_ids[owner[tp]]
        text = f"{topic}-{partition} is owned by {member_id!r}, which is not subscribed to it"
        raise ModelError(text, column="owner", index=tp)


def owner_to_dict(group: Group, owner: I32) -> dict[str, dict[str, list[int]]]:
    """Return the owner column as ``{member id: {topic: [partitions]}}``, complete and sorted."""
    own = partitions_by_owner(group.topics, owner)
    return {
        member_id: {topic: list(numbers) for topic, numbers in own.get(member, ())}
        for member, member_id in enumerate(group.member_ids)
    }


def loads(owner: I32, n_members: int) -> I64:
    """Return the topic-partitions of each member, int64[n_members]."""
    return np.bincount(owner[owner != NO_OWNER], minlength=n_members).astype(np.int64)


def balance_score(load: I64) -> int:
    """Return the sum of ``abs(a - b)`` over all pairs of members; 0 is perfect, lower is better.

    References: KIP-54, "The Algorithm": overall balance score.
    """
    return int(balance_scores(load, np.zeros(len(load), np.int64), 1)[0])


def spread(values: I64) -> int:
    """Return the largest value minus the smallest; 0 of none."""
    return int(values.max() - values.min()) if len(values) else 0


def count_kept(before: I32, after: I32) -> int:
    """Count the topic-partitions that have the same owner before and after.

    Raises
    ------
    ModelError
        If the columns differ in length.
    """
    _same_length(before, after)
    return int(np.count_nonzero((before == after) & (before != NO_OWNER)))


def count_moved(before: I32, after: I32) -> int:
    """Count the topic-partitions whose owner changed from one member to another.

    Raises
    ------
    ModelError
        If the columns differ in length.

    References: KIP-54, "Stickiness".
    """
    _same_length(before, after)
    return int(np.count_nonzero((before != after) & (before != NO_OWNER) & (after != NO_OWNER)))


def topic_excess(group: Group, owner: I32) -> int:
    """Return how uneven topics are: the sum over topics and members of count squared.

    The smallest value is reached where every topic is cut into equal parts over its members.

    References: KAFKA-16277.
    """
    owned = np.flatnonzero(owner != NO_OWNER)
    key = group.topics.topic_of[owned] * np.int64(max(group.n_members, 1)) + owner[owned]
    counts = np.unique(key, return_counts=True)[1].astype(np.int64)
    return int((counts * counts).sum())


def topic_floor(group: Group) -> int:
    """Return the least possible ``topic_excess``: every topic in even quotas over its subscribers.

    A lower bound whatever the other goals are; they may keep any assignment from reaching it.

    References: KAFKA-16277.
    """
    readers = group.n_readers[group.has_subscriber]
    quota, rest = np.divmod(
        group.topics.n_partitions[group.has_subscriber].astype(np.int64), readers
    )
    return int((quota * quota * (readers - rest) + (quota + 1) ** 2 * rest).sum())


def crosses_rack(group: Group, tps: I32, members: I32) -> Mask:
    """Return whether ``members[i]`` would read ``tps[i]`` across racks, bool[n].

    False where the rack of the member or of the partition is not known.

    References: KIP-881.
    """
    known, there = _racks_of(group, tps, members)
    return known & ~there


def count_cross_rack(group: Group, owner: I32) -> int | None:
    """Count the topic-partitions read across racks; None where no racks are known."""
    if group.topics.rack_start is None:
        return None
    owned = np.flatnonzero(owner != NO_OWNER).astype(np.int32)
    return int(np.count_nonzero(crosses_rack(group, owned, owner[owned])))


def count_rack_matches(group: Group, owner: I32) -> int | None:
    """Count the topic-partitions read inside their member's rack; None where no racks are known.

    References: KIP-881.
    """
    if group.topics.rack_start is None:
        return None
    owned = np.flatnonzero(owner != NO_OWNER).astype(np.int32)
    return int(np.count_nonzero(_racks_of(group, owned, owner[owned])[1]))


def _racks_of(group: Group, tps: I32, members: I32) -> tuple[Mask, Mask]:
    """Return whether both racks are known, and whether the member's is one of the tp's."""
    topics = group.topics
    known, there = np.zeros(len(tps), np.bool_), np.zeros(len(tps), np.bool_)
    if topics.rack_start is None or topics.rack is None:
        return known, there
    width = len(topics.rack_names)
    owned = row_of(topics.rack_start) * np.int64(width) + topics.rack
    wanted = tps * np.int64(width) + group.rack[members]
    known = (row_sizes(topics.rack_start)[tps] > 0) & (group.rack[members] >= 0)
    there[known] = np.isin(wanted[known], owned)
    return known, there


def lag_per_member(owner: I32, lags: I64, n_members: int) -> I64:
    """Return the total lag of each member in messages, int64[n_members]."""
    total = np.zeros(n_members, np.int64)
    owned = owner != NO_OWNER
    np.add.at(total, owner[owned], lags[owned])
    return total


def _same_length(before: I32, after: I32) -> None:
    if before.shape != after.shape:
        raise ModelError(f"{len(after)} entries, expected {len(before)}", column="after")


# Numbers about many generations at once, as columns
#
# A generation is a row; the members of all rows are in one column, sorted by row.


def balance_scores(load: I64, row: I64, n_rows: int) -> I64:
    """Return the sum over all pairs of members of the difference of their loads, for each row.

    Parameters
    ----------
    load : int64[n_member_rows]
        Topic-partitions of each member.
    row : int64[n_member_rows]
        Row of each member, ascending.

    Returns
    -------
    int64[n_rows]
        Topic-partitions; 0 is perfect.

    Notes
    -----
    Cost: one sort. With the loads of a row sorted ascending, member ``i`` of ``n`` is the larger of
    ``i`` pairs and the smaller of ``n - 1 - i``.

    References: KIP-54, "The Algorithm": overall balance score.
    """
    ordered = load[np.lexsort((load, row))]
    size = np.bincount(row, minlength=n_rows)
    rank = np.arange(len(row)) - (np.cumsum(size) - size)[row]
    score = np.zeros(n_rows, np.int64)
    np.add.at(score, row, ordered * (2 * rank - (size[row] - 1)))
    return score


def kept_portion(kept: I64, moved: I64) -> F64:
    """Return kept / (kept + moved) of each row, 0 to 1: stickiness. NaN without owners before."""
    total = kept + moved
    return np.where(total > 0, kept / np.maximum(total, 1), np.nan)


def needed_moves(load: I64, before: I64, row: I64, n_moved_or_kept: I64) -> I64:
    """Return the least moves at the most even loads, if all members read the same topics.

    Parameters
    ----------
    load : int64[n_member_rows]
        Topic-partitions of each member.
    before : int64[n_member_rows]
        How many of the partitions that have an owner in this row the member owned last.
    row : int64[n_member_rows]
        Row of each member, ascending.
    n_moved_or_kept : int64[n_rows]
        Partitions of the row that have an owner in it and had one before.

    Returns
    -------
    int64[n_rows]
        Moves: partitions of departed members, and what members hold beyond their even quota.

    Notes
    -----
    With ``T`` partitions over ``m`` members the even quota is ``T // m``, and one more for
    ``T % m`` of them; most partitions stay if the members that owned most get the extra one.
    """
    n_rows = len(n_moved_or_kept)
    size = np.bincount(row, minlength=n_rows)
    total = np.bincount(row, load, n_rows).astype(np.int64)
    quota, extra = total // np.maximum(size, 1), total % np.maximum(size, 1)
    order = np.lexsort((-before, row))
    rank = np.arange(len(row)) - (np.cumsum(size) - size)[row]
    capacity = quota[row] + (rank < extra[row])
    kept = np.bincount(row, np.minimum(before[order], capacity), n_rows).astype(np.int64)
    return n_moved_or_kept - kept


LOW_FIDELITY: Final = 0.8
"""Agreement below which the numbers of a replay are not to be trusted."""


def agreement_of_counts(left: float, right: float) -> float:
    """Return how near two counts are: (1 + the smaller) / (1 + the larger).

    Without the 1 that is added, 0 against 1 would count like 0 against 1000.
    """
    return (1 + min(left, right)) / (1 + max(left, right))


def agreement_of_sequences(left: Sequence[Hashable], right: Sequence[Hashable]) -> float:
    """Return twice the longest common subsequence over the summed lengths (Dice); 1 if empty.

    Notes
    -----
    Cost: O(len(left) * len(right) / 64).
    """
    total = len(left) + len(right)
    return 2 * common_subsequence(left, right) / total if total else 1.0


def common_subsequence(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """Return the length of the longest common subsequence.

    References: H. Hyyrö, "Bit-parallel LCS-length computation revisited" (2004): a column of the
    table of the textbook method is one integer, a bit clear where the length grows.
    """
    lists_with: dict[Hashable, int] = {}
    for i, item in enumerate(left):
        lists_with[item] = lists_with.get(item, 0) | 1 << i
    full = (1 << len(left)) - 1
    row = full
    for item in right:
        found = row & lists_with.get(item, 0)
        row = ((row + found) | (row - found)) & full
    return len(left) - row.bit_count()


def fidelity(agreements: Sequence[float | None]) -> float | None:
    """Return the lowest of the agreements that are not None; None if all are None."""
    known = [a for a in agreements if a is not None]
    return min(known) if known else None

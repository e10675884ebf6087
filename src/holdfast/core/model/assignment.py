"""An assignment: one column of owners, so two owners of one partition cannot be expressed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.model.columns import I32, NO_OWNER
from holdfast.core.model.group import Group
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
    topics = group.topics
    result: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in group.member_ids}
    owned = np.flatnonzero(owner != NO_OWNER)
    columns = (owner[owned], topics.topic_of[owned], topics.partition_of[owned])
    for member, topic, partition in zip(*(column.tolist() for column in columns), strict=True):
        own = result[group.member_ids[member]]
        own.setdefault(topics.names[topic], []).append(partition)
    return result

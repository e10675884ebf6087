"""Values of a session and its member: callbacks, the offsets and the identity of a commit.

This module is apart from ``events``: a program that has imported a consumer, and has not subscribed
yet, loads no protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.model.partitions import Resource


class ListenerCall(StrEnum):
    """A callback of a listener (KIP-429)."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity under which a member commits: OffsetCommit's fields (KIP-345)."""

    generation: int
    member_id: str
    instance_id: str | None


class OffsetToCommit(NamedTuple):
    """The committed offset of one partition.

    The metadata and the epoch go to the broker with the offset, or not at all.

    Attributes
    ----------
    offset : int
        The next offset to read.
    metadata : str
        Metadata of the application, stored with the offset.
    epoch : int
        Epoch of the leader that gave the record, -1 for none (KIP-320).
    """

    offset: int
    metadata: str = ""
    epoch: int = -1


Offsets = Mapping[Resource, OffsetToCommit]
"""The offsets of a commit, by partition."""

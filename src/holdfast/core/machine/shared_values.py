"""Values that a consumer's session shares with the machine: callbacks, the identity of a commit.

This module is apart from ``events``: a program that has imported a consumer, and has not subscribed
yet, loads no protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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

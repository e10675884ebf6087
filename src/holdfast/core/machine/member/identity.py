"""The identity under which a member commits.

References: OffsetCommit; KIP-345 (the instance id).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The member id, instance id and generation of a commit."""

    generation: int
    member_id: str
    instance_id: str | None

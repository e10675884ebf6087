"""Quiescence of a group: no member has begun anything that is still in progress.

**Rules.** A member is quiescent when it is STABLE, has no time to rejoin at, revokes nothing and
waits for no callback. Some callers check more: that everything is processed, that no round was
stored for a while, that the coordinator has the same members.

Example: a member of Design II during a delay is STABLE, but has a time to rejoin at. It is not
quiescent.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.machine.member.member_data import MemberData
from holdfast.core.machine.states import MemberState
from holdfast.sim.world.process import Process


def is_quiescent(member: MemberData) -> bool:
    """Return whether nothing is in progress at a member."""
    holdings = member.holdings
    return (
        member.state is MemberState.STABLE
        and member.rejoin_at_ms is None
        and not holdings.revoking
        and holdings.calling is None
    )


def all_quiescent(processes: Iterable[Process]) -> bool:
    """Return whether nothing is in progress at any of ``processes``, and none was asked to stop."""
    return all(not p.exiting and is_quiescent(p.member.data) for p in processes)

"""When a group is calm: no member has begun anything that is still under way.

**Rules.** A member is calm when it is STABLE, has no time to rejoin at, hands over nothing and
waits for no callback. Some callers check more: that everything is processed, that no round was
stored for a while, that the coordinator knows the same members.

Example: a member of Design II that waits out a delay is STABLE, but has a time to rejoin at. It is
not calm.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.machine.member.member_data import MemberData
from holdfast.core.machine.states import MemberState
from holdfast.sim.world.process import Process


def is_quiescent(member: MemberData) -> bool:
    """Whether nothing is under way at a member."""
    holdings = member.holdings
    return (
        member.state is MemberState.STABLE
        and member.rejoin_at_ms is None
        and not holdings.revoking
        and holdings.calling is None
    )


def all_quiescent(processes: Iterable[Process]) -> bool:
    """Whether nothing is under way at any of ``processes``, and none was asked to stop."""
    return all(not p.exiting and is_quiescent(p.member.data) for p in processes)

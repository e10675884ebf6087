"""Groups as coordinators describe them, for tests: states, members, answers one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.report.fleet import START_MS

from holdfast.cluster.snapshot import SeenGroup, SeenGroups, SeenMember
from holdfast.core.kinds import GroupType
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroups


def member(member_id: str, host: str = "", **more: Any) -> SeenMember:
    """A member whose client id is its id without the end, on a host of its own."""
    client = member_id.rsplit("-", 1)[0]
    given = {"instance_id": None, "client_id": client, "client_host": host or f"/host-{client}"}
    return SeenMember(member_id=member_id, **{**given, **more})


def seen(
    group: str,
    state: str,
    members: Iterable[str | SeenMember] | None = (),
    kind: GroupType = GroupType.CLASSIC,
    **more: Any,
) -> SeenGroup:
    told = None
    if members is not None:
        told = tuple(member(one) if isinstance(one, str) else one for one in members)
    return SeenGroup(group=group, kind=kind, state=state, members=told, **more)


def answers(*moments: tuple[float, Iterable[SeenGroup]], gone: Iterable[str] = ()) -> LiveGroups:
    """What is known after answers so many seconds after the start."""
    live = NOT_QUERIED
    for at_s, groups in moments:
        queried_ms = START_MS + round(1000 * at_s)
        told = {one.group: one for one in groups}
        live = live.after(SeenGroups(queried_ms=queried_ms, groups=told, gone=frozenset(gone)))
    return live

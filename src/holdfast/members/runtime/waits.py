"""Partitions that wait for departed members, as a leader plans: for the log and for metrics.

**Rules.** The log has one line when a wait begins, one when it ends, and none in between. A new
leader logs the waits that it finds as if they had just begun. A failed plan changes nothing.

References: Incremental Cooperative Rebalancing, Designs II and III.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from holdfast.core.machine.actions import ComputeAssignment
from holdfast.core.machine.events import AssignmentComputed, JoinedMember
from holdfast.members.metrics import Wait
from holdfast.members.runtime.member_log import Log

_SHOWN, _SOON_S = 5, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A wait that has begun and not ended."""

    name: str
    partitions: Mapping[str, tuple[int, ...]]
    until_s: float  # by the monotonic clock


class PlannedWaits:
    """The waits of a group, for its leader; written on one thread, read on any."""

    def __init__(self, log: Log):
        self._log = log
        self.n_reassigned = 0  # partitions that others have until their members are back
        self._open: dict[str, _Open] = {}
        self._members: tuple[JoinedMember, ...] = ()  # of the last round that was planned

    def read(self) -> tuple[Wait, ...]:
        """Return the current waits."""
        now_s = time.monotonic()
        return tuple(
            Wait(departed=o.name, partitions=o.partitions, seconds_left=max(0.0, o.until_s - now_s))
            for o in self._open.values()
        )

    def note(self, request: ComputeAssignment, done: AssignmentComputed) -> None:
        """Record a planned round."""
        if done.failure is not None:
            return
        self.n_reassigned = sum(len(own) for who in done.reassigned for _, own in who.owned or ())
        if request.led is None:  # other members may have led since
            self._open, self._members = {}, ()
        if done.waiting or self._open:
            self._compare(request, done)
        self._members = request.members

    def _compare(self, request: ComputeAssignment, done: AssignmentComputed) -> None:
        now_s, before = time.monotonic(), self._open
        keys = [_key(wait.identity, before) for wait in done.waiting]
        names = _names(self._members) if {*keys} - before.keys() else {}
        now: dict[str, _Open] = {}
        for key, wait in zip(keys, done.waiting, strict=True):
            old = now.get(key)
            name = before[key].name if key in before else _name(key, names, wait.static)
            own = dict(wait.owned or ())
            until_s = now_s + wait.delay_ms / 1000
            if old is not None:  # kinds with delays of their own
                own, until_s = {**old.partitions, **own}, max(until_s, old.until_s)
            now[key] = _Open(name=name, partitions=own, until_s=until_s)
        self._open = now
        for key, begun in now.items():
            if key not in before:
                left_s = begun.until_s - now_s
                end = datetime.now(UTC) + timedelta(seconds=left_s)
                self._log.info(
                    "waiting for %s until %s UTC (%.0f s): %s",
                    begun.name,
                    f"{end:%H:%M:%S}",
                    left_s,
                    _shown(begun.partitions),
                )
        if ended := before.keys() - now.keys():
            present = _names(request.members)
            for key in sorted(ended):
                self._log.info("%s", _end_of(before[key], key, present, now_s))


def _key(identity: str, before: Iterable[str]) -> str:
    """Return the key of a known wait: rounds cut one identity to different lengths."""
    from holdfast.core.machine.leader.successors import alike

    return next((key for key in before if key == identity or alike(key, identity)), identity)


def _end_of(wait: _Open, identity: str, present: Mapping[str, str], now_s: float) -> str:
    if identity and any(each.startswith(identity) for each in present):
        why = "it is back"
    elif wait.until_s - now_s < _SOON_S:
        why = "its time is up"
    else:
        why = "others have taken what waited"
    return f"the wait for {wait.name} is over: {why}"


def _names(members: Iterable[JoinedMember]) -> dict[str, str]:
    """Return names of members by their identities in the leader state."""
    from holdfast.core.machine.leader.ring import identities_of
    from holdfast.core.machine.leader.subscriptions import subscribed_members

    found = subscribed_members(tuple(members), "", 0)
    return {whole: m.instance_id or m.member_id for m in found for whole in identities_of(m)}


def _name(identity: str, names: Mapping[str, str], static: bool) -> str:
    if not identity:
        return "the first members" if static else "an unknown member"
    from holdfast.core.machine.leader.ring import shown

    found = (name for whole, name in names.items() if whole.startswith(identity))
    return next(found, f"member {shown(identity)}")


def _shown(partitions: Mapping[str, tuple[int, ...]]) -> str:
    every = [f"{topic}-{number}" for topic, own in sorted(partitions.items()) for number in own]
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return f"{', '.join(every[:_SHOWN])}{more}"

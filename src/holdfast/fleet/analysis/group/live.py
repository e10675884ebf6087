"""Coordinators' answers about groups over time: since when a group rebalances.

**Rules.** A coordinator reports that a group rebalances and not since when. The first answer of an
unbroken series that reports it bounds the begin from one side, the last answer before it from the
other. A generation that was settled in between ends a rebalance: a caller that knows its time
passes it (:meth:`LiveGroup.known_s`). Values are immutable: each answer makes new ones.

Examples
--------
A group was Stable at 06:00:00, and PreparingRebalance at 06:00:10 and 06:00:20. At 06:00:20 it
rebalances for at least 10 s and at most 20 s (``tests/report/test_now.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.cluster.snapshot import GONE, SeenGroup, SeenGroups


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGroup:
    """A group as of the last answer."""

    queried_ms: int
    # The coordinator's answer; None if no coordinator lists the group.
    seen: SeenGroup | None = None
    is_gone: bool = False  # whether no coordinator has it
    # ``since_ms``, ``quiescent_ms``: first answer by which it rebalances, and the last one before
    # that; milliseconds since 1970.
    since_ms: int | None = None
    quiescent_ms: int | None = None

    @property
    def is_rebalancing(self) -> bool:
        """Whether its members wait for their assignments."""
        return self.seen is not None and self.seen.is_rebalancing

    def state_after(self, recorded: str) -> str:
        """Return the group's state, given that of its last generation."""
        if self.is_gone:
            return GONE
        return recorded if self.seen is None else self.seen.state

    def known_s(self, settled_ms: int | None = None) -> float:
        """Return the least seconds of its rebalance, given the time of its last generation."""
        since = [ms for ms in (self.since_ms, settled_ms) if ms is not None]
        return max(self.queried_ms - max(since, default=self.queried_ms), 0) / 1000

    def most_s(self, settled_ms: int | None = None) -> float | None:
        """Return the most seconds of its rebalance; None without a bound."""
        settled = [ms for ms in (self.quiescent_ms, settled_ms) if ms is not None]
        return max(self.queried_ms - max(settled), 0) / 1000 if settled else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGroups:
    """All groups as of the last answers; by default without an answer."""

    seen: SeenGroups | None = None
    spans: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)

    def after(self, seen: SeenGroups, *, retains_members: bool = False) -> LiveGroups:
        """Return the groups with newer answers.

        ``retains_members`` keeps the members of a group whose state has not changed, and that was
        not described again.
        """
        before = {} if self.seen is None else self.seen.groups
        spans: dict[str, tuple[int, int | None]] = {}
        for name, one in seen.groups.items():
            if one.is_rebalancing:
                quiescent_ms = self.seen.queried_ms if self.seen and name in before else None
                spans[name] = self.spans.get(name, (seen.queried_ms, quiescent_ms))
        if retains_members:
            kept = {name: _with_members(one, before.get(name)) for name, one in seen.groups.items()}
            seen = replace(seen, groups=kept)
        return LiveGroups(seen=seen, spans=spans)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the groups that brokers list, sorted."""
        return () if self.seen is None else tuple(sorted(self.seen.groups))

    def of(self, group: str) -> LiveGroup | None:
        """Return what is known of a group; None without an answer."""
        if self.seen is None:
            return None
        since_ms, quiescent_ms = self.spans.get(group, (None, None))
        return LiveGroup(
            queried_ms=self.seen.queried_ms,
            seen=self.seen.groups.get(group),
            is_gone=group in self.seen.gone,
            since_ms=since_ms,
            quiescent_ms=quiescent_ms,
        )

    @property
    def rebalancing(self) -> tuple[str, ...]:
        """Names of the groups that rebalance, sorted."""
        return tuple(sorted(self.spans))


def _with_members(one: SeenGroup, before: SeenGroup | None) -> SeenGroup:
    if before is None or one.members is not None or one.refused or one.state != before.state:
        return one
    return replace(one, members=before.members)


NOT_QUERIED: Final = LiveGroups()
"""No coordinator was queried."""

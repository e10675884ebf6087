"""Present states of groups from their coordinators, for commands with a live cluster.

**Rules.** A failed query is noted, and the command continues without the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.cli.live_lag import chosen_groups
from holdfast.cluster.groups_now import states_now
from holdfast.core.names import visible
from holdfast.errors import HoldfastError
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroups

if TYPE_CHECKING:
    from holdfast.cluster.cluster import LiveCluster
    from holdfast.cluster.snapshot import SeenGroup, SeenGroups

EMPTY: Final = frozenset({"Empty", "Dead"})
"""States of groups without members."""
AGAIN_S: Final = 2.0
"""Seconds until a group that was first seen rebalancing is queried once more."""


class GroupStatePoller:
    """Queries coordinators repeatedly, and knows since when groups rebalance.

    Parameters
    ----------
    groups : sequence of str
        Names or patterns; empty: all.
    all_groups : bool
        Include the groups of Spark's connector.
    note : callable
        Called with each failure, once.
    """

    def __init__(
        self,
        cluster: LiveCluster,
        groups: Sequence[str],
        *,
        all_groups: bool,
        note: Callable[[str], None],
    ):
        self._cluster, self._groups, self._all = cluster, groups, all_groups
        self._note = note
        self._noted: set[str] = set()
        self.live: LiveGroups = NOT_QUERIED

    def query(
        self,
        describe: Callable[[SeenGroup], bool],
        known: Collection[str] = (),
        *,
        retains_members: bool = False,
    ) -> LiveGroups:
        """Query all states, and the members of some groups; keep what was known before.

        Parameters
        ----------
        known : collection of str
            Groups to check for deletion.
        """
        try:
            seen = states_now(self._cluster, self._chosen, describe=describe, known=known)
            self.live = self.live.after(seen, retains_members=retains_members)
        except HoldfastError as error:
            self._note_once(f"states of groups could not be read: {error}")
        if self.live.seen is not None:
            self._report_missing(self.live.seen)
        return self.live

    def query_states(self) -> LiveGroups:
        """Query states alone: one request a broker."""
        return self.query(lambda _: False)

    def query_all(
        self, known: Collection[str], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Query states and members of all groups.

        A group that is first seen rebalancing is queried once more: most rebalances have ended by
        then.
        """
        live = self.query(has_members, known)
        first_seen = {since_ms for since_ms, _ in live.spans.values()}
        if live.seen is not None and live.seen.queried_ms in first_seen:
            sleep(AGAIN_S)
            self.query(lambda group: group.is_rebalancing, known, retains_members=True)

    def _chosen(self, known: Collection[str]) -> list[str]:
        return chosen_groups(known, self._groups, all_groups=self._all)

    def _report_missing(self, seen: SeenGroups) -> None:
        for text in seen.unanswered:
            self._note_once(f"states of its groups could not be read: {text}")
        refused: dict[str, list[str]] = {}
        for one in seen.groups.values():
            if one.refused:
                refused.setdefault(one.refused, []).append(one.group)
        for why, groups in sorted(refused.items()):
            of = f"{len(groups)} groups (such as {visible(min(groups))})"
            what = of if len(groups) > 1 else f"group {visible(groups[0])}"
            self._note_once(f"the members of {what} could not be read: {why}")

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)


def has_members(group: SeenGroup) -> bool:
    """Return whether a group can have members to query."""
    return group.state not in EMPTY

"""What coordinators say of groups now, for commands that are given a cluster.

**Rules.** What cannot be asked is noted, and the command goes on without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.cli.live_lag import chosen_groups
from holdfast.cluster.states_now import states_now
from holdfast.core.names import visible
from holdfast.errors import HoldfastError
from holdfast.fleet.report.columns.live import NOT_QUERIED, LiveGroups

if TYPE_CHECKING:
    from holdfast.cluster.cluster import LiveCluster
    from holdfast.cluster.seen_groups import SeenGroup, SeenGroups

EMPTY: Final = frozenset({"Empty", "Dead"})
"""States of groups without members."""
AGAIN_S: Final = 2.0
"""A group that was not seen to rebalance before is asked about once more after so long."""


class GroupStatePoller:
    """Asks coordinators again and again, and knows since when groups rebalance.

    Parameters
    ----------
    groups : sequence of str
        Names or patterns; empty: all.
    all_groups : bool
        Of all groups: those of Spark's connector too.
    note : callable
        Is told what cannot be asked, each thing once.
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
        """Ask for all states, and for the members of some groups; what was known before stays.

        Parameters
        ----------
        known : collection of str
            Groups of which is asked whether they are gone.
        """
        try:
            seen = states_now(self._cluster, self._chosen, describe=describe, known=known)
            self.live = self.live.after(seen, retains_members=retains_members)
        except HoldfastError as error:
            self._note_once(f"what groups do now could not be asked: {error}")
        if self.live.seen is not None:
            self._report_missing(self.live.seen)
        return self.live

    def query_states(self) -> LiveGroups:
        """Ask for states alone: a request a broker."""
        return self.query(lambda _: False)

    def query_all(
        self, known: Collection[str], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Ask for states and members of all groups.

        A group that is seen to rebalance for the first time is asked about once more: most
        rebalances are over by then.
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
            self._note_once(f"what its groups do now could not be asked: {text}")
        refused: dict[str, list[str]] = {}
        for one in seen.groups.values():
            if one.refused:
                refused.setdefault(one.refused, []).append(one.group)
        for why, groups in sorted(refused.items()):
            of = f"{len(groups)} groups (such as {visible(min(groups))})"
            what = of if len(groups) > 1 else f"group {visible(groups[0])}"
            self._note_once(f"the members of {what} could not be asked: {why}")

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)


def has_members(group: SeenGroup) -> bool:
    """Whether it is worth asking who its members are."""
    return group.state not in EMPTY

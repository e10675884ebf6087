"""The current states of some groups of a cluster, by their coordinators.

**Rules.** One request a broker lists its groups with their states, and one request for up to
:data:`~holdfast.cluster.groups.AT_ONCE` groups describes those that the caller has chosen. The
refusal of a group or a broker is reported, and does not affect the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from holdfast.cluster.cluster import LiveCluster
from holdfast.cluster.groups import GroupQuestions
from holdfast.cluster.seen_groups import SeenGroup, SeenGroups
from holdfast.errors import SourceError

Choose = Callable[[Collection[str]], Collection[str]]
"""Takes the names of all groups, and returns the wanted ones."""


def states_now(
    cluster: LiveCluster,
    choose: Choose,
    *,
    describe: Callable[[SeenGroup], bool],
    known: Collection[str] = (),
) -> SeenGroups:
    """Query the states of the chosen groups, and the members of some of them.

    Parameters
    ----------
    describe : callable
        Takes a group with its state alone, and returns whether its members are wanted. A broker
        before Kafka 2.6 lists no states: there every chosen group is described.
    known : collection of str
        Groups to check for deletion, if no broker lists them.

    Raises
    ------
    SourceError
        If no broker answers, or the principal may not list groups.
    """
    with cluster.asking() as asked:
        questions: GroupQuestions = asked("ListGroups", GroupQuestions.ask_each)
        queried_ms = time.time_ns() // 1_000_000
        listed = questions.listed
        groups = {
            name: SeenGroup(group=name, kind=listed[name].kind, state=listed[name].state)
            for name in choose(listed)
        }
        wanted = [name for name, one in groups.items() if not one.state or describe(one)]
        if wanted:
            described = asked("DescribeGroups", lambda _: questions.states(wanted))
            groups |= {one.group: one for one in described}
        missing = sorted({*known} - listed.keys())
        gone: list[str] = []
        if missing and not questions.unanswered:
            try:
                gone = asked("DescribeGroups", lambda _: questions.absent(missing))
            except SourceError:
                gone = []  # not known to be deleted
    return SeenGroups(
        queried_ms=queried_ms,
        groups=groups,
        gone=frozenset(gone),
        unanswered=tuple(
            f"{questions.address(node)}: {why}" for node, why in questions.unanswered.items()
        ),
    )

"""Cooperative rounds of one group, one after the other, until nothing is withheld.

**Rules.** Between two rounds every member revokes the partitions that are not in its assignment. It
claims the partitions of its assignment, at the next generation. Nothing else changes.

References: KIP-429: a partition that moves is withheld for one round.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.core.assignors.registry import Named, assign, find
from holdfast.core.assignors.result import Result
from holdfast.core.model.group import Group
from holdfast.core.model.limits import INT32_MAX
from holdfast.core.model.reported import ReportedClaims
from holdfast.errors import ModelError

MAX_ROUNDS = 8
"""Bound on rounds: two are enough for any group, unless claims contradict each other."""


def follow(group: Group, name: Named, /, **options: Any) -> list[Result]:
    """Run an assignor until nothing is withheld.

    Parameters
    ----------
    group : Group
        The group before the first round.
    name : str or assignor
        A name of docs/assignors.md, or what :func:`holdfast.assignor` returned.
    **options
        Of the assignor.

    Returns
    -------
    list of Result
        One a round; the last one withholds nothing.

    Raises
    ------
    ConfigError, InfeasibleError, PlanError
        As of :func:`holdfast.assign`.
    ModelError
        Something is withheld after every one of 8 rounds: a user's own assignor gives partitions
        to other members in each round.

    References: KIP-429: a partition that moves is withheld for one round.
    """
    results = [assign(group, name, **options)]
    while len(results[-1].pending_tp):
        if len(results) == MAX_ROUNDS:
            raise ModelError(f"{find(name).name} still withholds after {MAX_ROUNDS} rounds")
        results.append(assign(next_round(results[-1]), name, **options))
    return results


def next_round(result: Result) -> Group:
    """Return the group after every member carried out ``result``.

    Returns
    -------
    Group
        Members claim their assignments, one generation after the newest one before.
    """
    group = result.group
    newest = int(group.generation.max(initial=0))
    return Group.build(
        topics=group.topics,
        member_ids=group.member_ids,
        instance_ids=group.instance_ids,
        subscriptions=group.subscriptions,
        claims=ReportedClaims.from_owner(group.topics, result.owner),
        generation=np.full(group.n_members, min(newest + 1, INT32_MAX), dtype=np.int32),
        rack=group.rack,
        lags=group.lags,
    )

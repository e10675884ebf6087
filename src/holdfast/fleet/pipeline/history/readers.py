"""What rebalances do to share groups, where many members read one partition at once.

**Rules.** What is counted is a pair of a member and a partition: a pair is kept, gained or lost.
Nothing moves, for no member takes anything away from another. A partition counts once, however many
members read it.

References: KIP-932.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.kinds.kind import SHARED
from holdfast.core.model.columns import I64, Mask
from holdfast.core.model.measure_history import balance_scores
from holdfast.fleet.pipeline.history.dense import identities
from holdfast.fleet.pipeline.ingest.generations import Generations, list_parts, shared_partitions
from holdfast.fleet.tables.columns.values import ints, numbered


def reader_numbers(gens: Generations, fresh: Mask) -> dict[str, I64]:
    """Compare every generation of a share group with the one before it.

    Returns
    -------
    dict of str to int64[n_rows]
        Numbers of :class:`~holdfast.fleet.pipeline.history.rebalances.RebalanceNumbers`: ``owned``,
        partitions that have a reader; ``kept``, ``gained`` and ``lost`` pairs of a member and a
        partition; ``balance``, the sum of pairwise differences of the members' loads.
    """
    n = gens.n_rows
    row, pair, load = _pairs(gens)
    width = int(pair.max(initial=0)) + 1
    key = np.unique(row * width + pair)
    row = key // width
    stays = ~fresh[row] & np.isin(key - width, key, assume_unique=True)
    now = np.bincount(row, minlength=n)
    kept = np.bincount(row[stays], minlength=n)
    before = np.where(fresh, 0, np.concatenate([[0], now[:-1]])[:n])
    return {
        "owned": shared_partitions(gens),
        "kept": kept.astype(np.int64),
        "gained": np.where(fresh, 0, now - kept).astype(np.int64),
        "lost": (before - kept).astype(np.int64),
        "balance": balance_scores(load, ints(gens.members, "row"), n),
    }


def _pairs(gens: Generations) -> tuple[I64, I64, I64]:
    """Row and number of each pair of a member and a partition; partitions of each member row."""
    shared = gens.roles == SHARED
    starts, partition = list_parts(gens.owned["partitions"])
    size = np.where(shared, np.diff(starts), 0)
    at = np.repeat(np.arange(len(size)), np.diff(starts))
    at, partition = at[shared[at]], partition[shared[at]]
    member = ints(gens.owned, "member")
    who = identities(gens.members)[member[at]]
    topic = numbered(gens.owned["topic"])[at]
    found = np.stack([who.astype(np.int64), topic, partition.astype(np.int64)])
    _, pair = np.unique(found, axis=1, return_inverse=True)
    load = np.bincount(member, size, gens.members.num_rows).astype(np.int64)
    return ints(gens.members, "row")[member[at]], pair.reshape(-1).astype(np.int64), load

"""Members that went, and what each of them owned: the question that commits may answer.

**Rules.** A member went if it is in a generation and not in the next one of its group, which is not
context. :mod:`holdfast.fleet.pipeline.history.signs` says how it went.

**Strategy.** Set differences on (row, identity) numbers, as columns.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds.kind import GroupType
from holdfast.core.model.columns import I64
from holdfast.fleet.pipeline.arrow_types import Arrays
from holdfast.fleet.pipeline.history.dense import Dense
from holdfast.fleet.pipeline.history.movements import Events, read_by
from holdfast.fleet.pipeline.history.pauses import STAGED
from holdfast.fleet.pipeline.history.signs import LEFT
from holdfast.fleet.pipeline.ingest.generations import Generations, TaskTopics, gather, row_starts
from holdfast.fleet.tables.columns.schemas import TIMESTAMP, filled_table
from holdfast.fleet.tables.columns.values import ints

TIMEOUTS: Final = ("session_timeout_ms", "rebalance_timeout_ms")


def members_that_went(gens: Generations, layout: Dense, events: Events) -> I64:
    """Rows of members that are not in the next generation of their group."""
    row, key = ints(gens.members, "row"), layout.member_key
    follows = np.append(~events.fresh[1:], False) if gens.n_rows else events.fresh
    return np.flatnonzero(follows[row] & ~np.isin(key + layout.width, key))


def departure_rows(
    gens: Generations, layout: Dense, events: Events, reads: TaskTopics | None = None
) -> pa.Table:
    """A row of STAGED for each member that went and what it owned, in rows that are not context.

    Its ``last_seen`` is the record of the generation before, where that is a sign. ``reads`` as in
    :func:`~holdfast.fleet.pipeline.history.movements.pause_candidates`.
    """
    member = members_that_went(gens, layout, events)
    before = ints(gens.members, "row")[member]
    new = ~gens.head["context"].to_numpy()[before + 1]
    member, before = member[new], before[new]
    owned, which = gather(row_starts(ints(gens.owned, "member"), gens.members.num_rows), member)
    nothing = np.flatnonzero(np.bincount(which, minlength=len(member)) == 0)
    place = np.concatenate([which, nothing])
    topic = gens.owned["topic"].take(pa.array(owned)).combine_chunks()
    topic = pa.concat_arrays([topic, pa.nulls(len(nothing), topic.type)])
    lists = gens.owned["partitions"].take(pa.array(owned)).combine_chunks()
    none = pa.array([[]] * len(nothing), lists.type)
    picked = pa.array(before[place] + 1)
    classic = pc.equal(gens.head["group_type"], GroupType.CLASSIC).to_numpy()[before[place]]
    time = ints(gens.head, "timestamp")
    columns: Arrays = {
        **{name: gens.head[name].take(picked) for name in ("group", "generation", "log_offset")},
        "timestamp": gens.head["timestamp"].take(picked),
        "topic": topic,
        "reads": read_by(reads or {}, before[place], topic),
        "partitions": pa.concat_arrays([lists, none]),
        "basis": pa.repeat(LEFT, len(place)),
        "last_seen": pa.array(np.where(classic, time[before[place]], 0)).cast(TIMESTAMP),
        "member": pa.array(member[place].astype(np.int32)),
        **{name: gens.members[name].take(pa.array(member[place])) for name in TIMEOUTS},
    }
    return filled_table(columns, STAGED, len(place))

"""Sums of ``pauses`` in ``rebalances``: partition-seconds of each rebalance.

**Rules.** A pause belongs to the rebalance of its group and generation. Sums do not depend on the
order in which pauses are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.tables.columns.rows import conform
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.columns.stored import TABLES

_SUMS: Final = {
    f"{kind}_{bound}_seconds": (f"pause_{bound}_seconds", kind == "idle")
    for kind in ("pause", "idle")
    for bound in ("lower", "upper")
}
"""Columns of ``rebalances``: which column of ``pauses`` they sum up, and if of idle ones alone."""
_KEYS: Final = ["group", "generation"]


def late_pauses(pauses: Sequence[pa.Table], rebalances: Sequence[pa.Table]) -> pa.Table:
    """Return the pauses that belong to none of these rebalances."""
    rows = pa.concat_tables([arrow_schema("pauses").empty_table(), *pauses])
    own = pa.concat_tables([arrow_schema("rebalances").empty_table(), *rebalances])
    wanted = rows.append_column("_row", pa.array(range(rows.num_rows), pa.int64()))
    kept = wanted.select([*_KEYS, "_row"]).join(own.select(_KEYS), _KEYS, join_type="left anti")
    return rows.take(kept["_row"].sort())


def add_pauses(rebalances: pa.Table, pauses: pa.Table) -> pa.Table:
    """Rebalances with the partition-seconds of these pauses added, rows in their order."""
    rebalances = conform(rebalances, TABLES["rebalances"], "rebalances")
    size = pc.list_value_length(pauses["partitions"]).cast(pa.float64())
    idle = pc.if_else(pc.fill_null(pauses["is_idle"], False), size, 0.0)
    weighted = pa.table(
        {
            **{name: pauses[name] for name in _KEYS},
            **{
                name: pc.multiply(pauses[of], idle if only_idle else size)
                for name, (of, only_idle) in _SUMS.items()
            },
        }
    )
    sums = weighted.group_by(_KEYS).aggregate([(name, "sum") for name in _SUMS])
    numbered = rebalances.append_column("_row", pa.array(range(rebalances.num_rows), pa.int64()))
    joined = numbered.join(sums, _KEYS, join_type="left outer").sort_by("_row")
    # A group that was converted has its last generation twice: pauses belong to the first of them.
    again = pc.fill_null(pc.equal(joined["generation"], joined["previous_generation"]), False)
    for name in _SUMS:
        late = pc.if_else(again, 0.0, pc.fill_null(joined[f"{name}_sum"], 0.0))
        more = pc.add(pc.fill_null(joined[name], 0.0), late)
        more = pc.round(more, 6)  # to the microsecond, so in whatever order they were added
        joined = joined.set_column(joined.schema.get_field_index(name), name, more)
    result: pa.Table = joined.select(rebalances.column_names)
    return result

"""Where share groups are: records of ``__share_group_state`` as positions, one per partition.

**Rules.** The newest snapshot of a partition counts, and every update behind it. A group without a
start offset has no position. A record that does not parse, or has a time or a partition that no
table holds, is counted, and changes nothing.

**Strategy.** The topic is compacted and small (a snapshot now and then, a few hundred updates
between two), so a loop reads it where the driver is.

References: KIP-932, KIP-1226.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from holdfast.core.wire.layouts.share_state import ShareState, decode_share_state
from holdfast.errors import WireError
from holdfast.fleet.pipeline.ingest.selection import Selection
from holdfast.fleet.pipeline.ingest.split import POSITION
from holdfast.fleet.tables.columns.holdable import holdable_times
from holdfast.fleet.tables.columns.schemas import filled_table
from holdfast.fleet.tables.columns.values import ints

NOT_KNOWN = -1


@dataclass(slots=True)
class _Place:
    """State of one partition of a group, and the record that it stands in."""

    start: int
    delivered: int
    since_us: int
    at_us: int
    row: int


def share_positions(
    records: pa.Table, topic_names: Mapping[str, str], selection: Selection
) -> tuple[pa.Table, int]:
    """Positions of share groups, and the number of records that do not parse.

    Parameters
    ----------
    records : Table of RECORDS
        Of ``__share_group_state``, each partition in the order of its log.
    topic_names : mapping
        Topic id to topic; a topic that is not there keeps its id for a name.

    Returns
    -------
    (Table of POSITION, int)
        ``delivered`` is the number of records behind the offset that are done; -1 not known.
    """
    found: dict[tuple[str, str, int], _Place] = {}
    n_bad = 0
    times, in_time = ints(records, "timestamp"), holdable_times(records["timestamp"])
    pairs = zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True)
    for row, (key, value) in enumerate(pairs):
        try:
            state = decode_share_state(key or b"", value)
        except WireError:
            n_bad += 1
            continue
        if state.partition < 0 or not in_time[row]:
            n_bad += 1
            continue
        _apply(found, state, row, int(times[row]))
    return _table(found, records, topic_names, selection), n_bad


def _apply(
    found: dict[tuple[str, str, int], _Place], state: ShareState, row: int, at_us: int
) -> None:
    place = (state.group, state.topic_id, state.partition)
    before = found.get(place)
    if state.start_offset is None:
        if not state.is_update:
            found.pop(place, None)
        return
    start = state.start_offset
    if state.is_update and start == NOT_KNOWN and before is not None:
        start = before.start
    same = before is not None and before.start == start
    since = before.since_us if before is not None and same else at_us
    found[place] = _Place(start, state.n_delivered, since, at_us, row)


def _table(
    found: Mapping[tuple[str, str, int], _Place],
    records: pa.Table,
    topic_names: Mapping[str, str],
    selection: Selection,
) -> pa.Table:
    known = [(place, state) for place, state in sorted(found.items()) if state.start >= 0]
    names = pa.array([group.encode() for (group, _, _), _ in known], pa.binary())
    keep = selection.keep_groups(names)
    if keep is not None:
        known = [one for one, kept in zip(known, keep.tolist(), strict=True) if kept]
    log = records.take(pa.array([state.row for _, state in known], pa.int64()))
    columns = {
        "group": pa.array([group for (group, _, _), _ in known], pa.string()),
        "topic": pa.array([topic_names.get(t, t) for (_, t, _), _ in known], pa.string()),
        "partition": pa.array([partition for (_, _, partition), _ in known], pa.int32()),
        "offset": pa.array([state.start for _, state in known], pa.int64()),
        "commit_timestamp": pa.array([state.at_us for _, state in known], pa.int64()),
        "since": pa.array([state.since_us for _, state in known], pa.int64()),
        "goes_back": pa.repeat(False, len(known)),
        "log_partition": log["partition"],
        "log_offset": log["offset"],
        "delivered": pa.array([state.delivered for _, state in known], pa.int64()),
    }
    return filled_table(columns, POSITION, len(known))

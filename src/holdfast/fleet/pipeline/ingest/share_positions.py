"""Positions of share groups: records of ``__share_group_state``, one position per partition.

**Rules.** The newest snapshot of a partition counts, and every update behind it. A group without a
start offset has no position. A record that does not parse, or has a time or a partition that no
table accepts, is counted, and changes nothing.

**Strategy.** The topic is compacted and small (a snapshot now and then, a few hundred updates
between two), so a loop reads it on the driver.

References: KIP-932, KIP-1226.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from holdfast.core.wire.layouts.share_state import (
    ShareState,
    decode_share_state,
    encode_share_snapshot,
)
from holdfast.errors import WireError
from holdfast.fleet.columnar import ints
from holdfast.fleet.pipeline.ingest.selection import Selection
from holdfast.fleet.pipeline.ingest.split import POSITION
from holdfast.fleet.tables.columns.schemas import holdable_times, to_us

if TYPE_CHECKING:
    from holdfast.cluster.group_messages import Position
    from holdfast.cluster.snapshot import ClusterSnapshot, ShareRecord

NOT_KNOWN = -1
ShareKey: TypeAlias = tuple[str, str, int]
"""Group, topic id and partition."""


def share_positions(
    records: pa.Table, topic_names: Mapping[str, str], selection: Selection
) -> tuple[pa.Table, int]:
    """Return positions of share groups, as POSITION, and the number of records that do not parse.

    ``records`` of ``__share_group_state`` have each partition in the order of its log. An unknown
    topic keeps its id as a name. ``delivered`` is the number of processed records behind the
    offset; -1 if unknown.
    """
    found: dict[ShareKey, dict[str, Any]] = {}
    n_bad = 0
    times, in_time = ints(records, "timestamp").tolist(), holdable_times(records["timestamp"])
    columns = (records[name].to_pylist() for name in ("key", "value", "partition", "offset"))
    for at, (key, value, partition, offset) in enumerate(zip(*columns, strict=True)):
        try:
            state = decode_share_state(key or b"", value)
        except WireError:
            n_bad += 1
            continue
        if state.partition < 0 or not in_time[at]:
            n_bad += 1
            continue
        _apply(found, state, times[at], {"log_partition": partition, "log_offset": offset})
    rows = [
        {"group": group, "topic": topic_names.get(topic_id, topic_id), "partition": number, **row}
        for (group, topic_id, number), row in sorted(found.items())
        if row["offset"] >= 0
    ]
    table = pa.Table.from_pylist(rows, schema=POSITION)
    keep = selection.keep_groups(pa.array([row["group"].encode() for row in rows], pa.binary()))
    return (table if keep is None else table.filter(pa.array(keep))), n_bad


def records_of(starts: Sequence[Position], snapshot: ClusterSnapshot) -> list[ShareRecord]:
    """Return positions that coordinators answered, as records of ``__share_group_state``."""
    ids = {topic: topic_id for topic_id, topic, _ in snapshot.topics}
    ends = {(topic, partition): end for topic, partition, _, end in snapshot.offsets}
    at_us = to_us(snapshot.taken_at) or 0
    found: list[ShareRecord] = []
    for offset, one in enumerate(starts):
        end = ends.get((one.topic, one.partition), -1)
        is_known = end >= 0 and one.share_lag is not None and one.share_lag >= 0
        state = ShareState(
            group=one.group,
            topic_id=ids.get(one.topic, ""),
            partition=one.partition,
            is_update=False,
            start_offset=one.offset,
            n_delivered=max(end - one.offset - (one.share_lag or 0), 0) if is_known else NOT_KNOWN,
        )
        if state.topic_id:  # a topic that was deleted meanwhile has no position
            found.append((0, offset, at_us, *encode_share_snapshot(state)))
    return found


def _apply(
    found: dict[ShareKey, dict[str, Any]], state: ShareState, at_us: int, log: Mapping[str, int]
) -> None:
    """Apply a record: a position dates from the first record in a row that names its offset."""
    tp_key = (state.group, state.topic_id, state.partition)
    before = found.get(tp_key)
    start, since = state.start_offset, at_us
    if start is None:
        if not state.is_update:
            found.pop(tp_key, None)
        return
    if before is not None:
        if state.is_update and start == NOT_KNOWN:
            start = before["offset"]
        if start == before["offset"]:
            since = before["since"]
    times = {"commit_timestamp": at_us, "since": since}
    said = {"offset": start, "delivered": state.n_delivered, "goes_back": False}
    found[tp_key] = {**said, **times, **log}

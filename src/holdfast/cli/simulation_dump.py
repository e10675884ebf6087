"""``holdfast simulate --dump``: writes the records of a simulated coordinator as a dump.

**Rules.** The records are the coordinator's own bytes, in the order and at the times of their
writing. The world has no producers, so a model gives the end offsets: from the beginning of the
run on, every partition receives one record per 10 ms, as many as a member processes. A lag is
therefore the downtime of the partition, in units of 10 ms.

**Strategy.** Columns from the world, written by the same code as a live cluster's dump.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.core.wire.one.topic_ids import topic_id_text
from holdfast.sim.world.broker import WALL_MS
from holdfast.sim.world.process import RECORD_MS
from holdfast.sim.world.world import World

if TYPE_CHECKING:
    from holdfast.fleet.pipeline.ingest.source import Dump

PARTITION = 0
"""Partition of the offsets topic that holds the group."""

CLUSTER_ID = "simulated"


def snapshot_of(world: World) -> ClusterSnapshot:
    """Return topics with ids made from their names, and the offsets of the model above."""
    end = world.now_ms // RECORD_MS
    names = sorted(world.partitions)
    taken = datetime.fromtimestamp((WALL_MS + world.now_ms) / 1000, UTC)
    return ClusterSnapshot(
        cluster_id=CLUSTER_ID,
        topics=tuple(
            (topic_id_text(uuid.uuid5(uuid.NAMESPACE_URL, name)), name, world.partitions[name])
            for name in names
        ),
        offsets=tuple(
            (name, partition, 0, end)
            for name in names
            for partition in range(world.partitions[name])
        ),
        taken_at=taken.isoformat(),
    )


def write_simulation(world: World, folder: Path) -> Dump:
    """Write a world's log as a dump.

    Parameters
    ----------
    world : World
        At the end of its run.
    folder : Path
        New or empty, or a dump, which is replaced.

    Raises
    ------
    SourceError
        ``folder`` holds something else.
    """
    from holdfast.fleet.pipeline.ingest.dump import write_log

    columns = {
        "partition": [PARTITION] * len(world.log),
        "offset": list(range(len(world.log))),
        "timestamp": [(WALL_MS + time_ms) * 1000 for time_ms, _, _ in world.log],
        "key": [key for _, key, _ in world.log],
        "value": [value for _, _, value in world.log],
    }
    return write_log(folder, columns, snapshot_of(world))

"""A dump of groups as ``kafka-consumer-groups --describe`` printed them: one generation of each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.fleet.pipeline.ingest.described_records import (
    KeyValue,
    commit_record,
    generation_record,
)
from holdfast.fleet.pipeline.ingest.dump import write_log
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC
from holdfast.fleet.pipeline.ingest.printed.described import DescribedGroups, snapshot_of
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.tables.storage.paths import StoragePath


def write_described(found: DescribedGroups, at_us: int, folder: StoragePath | str) -> Dump:
    """Write groups as a dump in which each has one generation, with its members and commits.

    Parameters
    ----------
    at_us : int
        When the text was printed, in microseconds since 1970; every record has this time.
    folder : path or URL
        New or empty, or a dump, which is replaced.

    Notes
    -----
    The beginning of each log is taken for 0, and what members subscribe to for what any of them was
    given (:func:`~holdfast.fleet.pipeline.ingest.printed.described.snapshot_of`).
    """
    records = [*_records(found, at_us // 1000)]
    columns = {
        "partition": [0] * len(records),
        "offset": [*range(len(records))],
        "timestamp": [at_us] * len(records),
        "key": [key for key, _ in records],
        "value": [value for _, value in records],
    }
    offsets = {
        (one.topic, one.partition): one.end for one in found.partitions if one.end is not None
    }
    counts: dict[str, int] = {}
    for group in found.groups:
        for topic, n in snapshot_of(found, group)["partitions"].items():
            counts[topic] = max(n, counts.get(topic, 0))
    for topic, partition in offsets:
        counts[topic] = max(partition + 1, counts.get(topic, 0))
    snapshot = ClusterSnapshot(
        cluster_id="",
        topics=[("", topic, n) for topic, n in sorted(counts.items())],
        offsets=[
            *((topic, p, 0, end) for (topic, p), end in sorted(offsets.items())),
            (OFFSETS_TOPIC, 0, 0, len(records)),
        ],
        taken_at=datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(),
    )
    return write_log(folder, columns, snapshot)


def _records(found: DescribedGroups, at_ms: int) -> Iterator[KeyValue]:
    for group in found.groups:
        if readers := found.readers(group):
            yield generation_record(group, 1, readers, at_ms)
        for one in found.partitions:
            if one.group == group and one.committed is not None:
                yield commit_record(group, one.topic, one.partition, one.committed, at_ms)

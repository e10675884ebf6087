"""Speed of decoding ``__consumer_offsets`` in one process, beside two peers.

    taskset -c 0 python -m bench.wire_records [--repeats 7] [--peers]

The peers (:mod:`bench.wire_peers`) are a plain ``struct`` loop and kafka-python's own codec.
Prints one JSON line per case: records or assignment rows per second (minimum and median time of
the repeats), by the clock on the wall and, for a machine that others use too, by CPU seconds.
Input lies in memory, as Arrow buffers. Cases with ``+arrow`` end in the pipeline's Arrow tables,
the others in NumPy columns.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from bench import wire_peers

from holdfast.pipeline import decode
from holdfast.pipeline.arrow_columns import binary_column
from holdfast.wire.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.wire.offsets_batch import Binary, Chunk, decode_batch
from holdfast.wire.offsets_embedded import read_assignments, read_subscriptions
from holdfast.wire.offsets_records import Record, decode_record, encode_record

N_COMMITS = 200_000
N_GROUPS, N_MEMBERS, N_PARTITIONS = 500, 50, 20
BATCH_BYTES = 8 << 20  # maxBytesPerBatch of the pipeline's sessions

Pairs = list[tuple[bytes, bytes | None]]


def commits(version: int, rng: np.random.Generator) -> Pairs:
    """Commits of 400 groups on 60 topics; names of many lengths; 1 % tombstones."""
    groups = [f"{'team-' * (i % 4)}consumer-{i * 7919 % 100_003}" for i in range(400)]
    topics = [f"{'domain.' * (i % 3)}events-{i}" for i in range(60)]
    ids = [f"{i:08x}-0000-4000-8000-{i * 97:012x}" for i in range(60)]
    out: Pairs = []
    for _ in range(N_COMMITS):
        topic = int(rng.integers(60))
        value: dict[str, Any] = {
            "offset": int(rng.integers(1 << 40)),
            "metadata": "",
            "commitTimestamp": 1_700_000_000_000 + int(rng.integers(1 << 32)),
        }
        if version >= 3:
            value["leaderEpoch"] = int(rng.integers(-1, 40))
        if version >= 4:
            value["topicId"] = ids[topic]
        record = Record(
            record_type=1,
            name="OffsetCommit",
            key={
                "group": groups[int(rng.integers(400))],
                "topic": topics[topic],
                "partition": int(rng.integers(64)),
            },
            value_version=version,
            value=value,
        )
        key, blob = encode_record(record)
        out.append((key, None if rng.random() < 0.01 else blob))
    return out


def group_records(version: int, n_topics: int) -> Pairs:
    """Groups of 50 members with 20 partitions each, in n_topics topics."""
    out: Pairs = []
    names = [f"domain.events-{i}" for i in range(n_topics)]
    per_topic = N_PARTITIONS // n_topics
    for group in range(N_GROUPS):
        members = [
            {
                "memberId": f"consumer-{group}-{i}-2f6a1c34-9d7e-4b51-8c60-{i * 7919:012x}",
                "groupInstanceId": None,
                "clientId": f"consumer-{group}-{i}",
                "clientHost": f"/10.0.{i}.{group % 250}",
                "rebalanceTimeout": 300_000,
                "sessionTimeout": 45_000,
                "subscription": encode_subscription(Subscription(topics=tuple(names))),
                "assignment": encode_assignment(
                    AssignmentMessage(
                        version=3,
                        partitions=tuple(
                            (t, tuple(range(i * per_topic, (i + 1) * per_topic))) for t in names
                        ),
                        user_data=None,
                    )
                ),
            }
            for i in range(N_MEMBERS)
        ]
        value = {
            "protocolType": "consumer",
            "generation": group,
            "protocol": "range",
            "leader": members[0]["memberId"],
            "currentStateTimestamp": 1_700_000_000_000,
            "members": tuple(members),
        }
        key = {"group": f"group-{group}"}
        record = Record(
            record_type=2, name="GroupMetadata", key=key, value_version=version, value=value
        )
        out.append(encode_record(record))
    return out


def arrow_batches(pairs: Pairs) -> list[pa.RecordBatch]:
    """Batches as the pipeline's sessions cut them: 10 000 records or 8 MiB."""
    n_bytes = sum(len(k) + len(v or b"") for k, v in pairs)
    size = min(10_000, max(1, len(pairs) * BATCH_BYTES // n_bytes))
    return [
        pa.record_batch(
            {
                "key": pa.array([k for k, _ in pairs[i : i + size]], pa.binary()),
                "value": pa.array([v for _, v in pairs[i : i + size]], pa.binary()),
                "partition": pa.array(range(len(pairs[i : i + size])), pa.int32()),
                "offset": pa.array(range(len(pairs[i : i + size])), pa.int64()),
            }
        )
        for i in range(0, len(pairs), size)
    ]


def numpy_batches(pairs: Pairs) -> tuple[Binary, Binary]:
    """All keys and all values as one column each."""
    return tuple(  # type: ignore[return-value]
        binary_column(pa.array([pair[side] for pair in pairs], pa.binary())) for side in (0, 1)
    )


def _drain(chunks: Iterator[Any]) -> None:
    for _ in chunks:
        pass


def decode_groups(keys: Binary, values: Binary) -> None:
    """Records, members, subscriptions and assignments to columns."""
    chunk: Chunk
    for chunk in decode_batch(keys, values, (2,)):
        for family in chunk.families:
            members = family.value["members"].columns  # type: ignore[union-attr]
            wanted = np.ones(len(members["assignment"]), bool)
            read_assignments(members["assignment"], wanted)
            read_subscriptions(members["subscription"], wanted)


def measure(name: str, unit: str, count: int, run: Callable[[], Any], repeats: int) -> None:
    """Print one JSON line."""
    run()
    seconds, cpu_seconds = [], []
    for _ in range(repeats):
        start, cpu_start = time.perf_counter(), time.process_time()
        run()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    best, median = min(seconds), statistics.median(seconds)
    line = {
        "bench": "wire_records",
        "case": name,
        "unit": f"{unit}/s",
        "best": round(count / best),
        "median": round(count / median),
        "best_cpu": round(count / min(cpu_seconds)),
        "median_cpu": round(count / statistics.median(cpu_seconds)),
        "count": count,
        "min_s": round(best, 5),
        "median_s": round(median, 5),
        "repeats": repeats,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cpu": platform.processor() or platform.machine(),
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--peers", action="store_true", help="also the slow peers")
    options = parser.parse_args()
    rng = np.random.default_rng(7)
    repeats = options.repeats
    for version in (3, 4):
        pairs = commits(version, rng)
        columns, batches = numpy_batches(pairs), arrow_batches(pairs)
        name = f"commits v{version}"
        measure(
            f"{name}, batch",
            "records",
            len(pairs),
            lambda c=columns: _drain(decode_batch(*c)),
            repeats,
        )
        measure(
            f"{name}, batch +arrow",
            "records",
            len(pairs),
            lambda b=batches: _drain(decode.offset_commits(b)),
            repeats,
        )
        if options.peers:
            measure(
                f"{name}, scalar form",
                "records",
                20_000,
                lambda p=pairs[:20_000]: [decode_record(k, v) for k, v in p],
                3,
            )
            measure_peers(name, "records", len(pairs), pairs, wire_peers.COMMITS[version])
    rows = N_GROUPS * N_MEMBERS * N_PARTITIONS
    for version, n_topics in ((3, 1), (3, 2), (4, 1)):
        pairs = group_records(version, n_topics)
        columns, batches = numpy_batches(pairs), arrow_batches(pairs)
        name = f"groups v{version}, {n_topics} topics"
        measure(f"{name}, batch", "rows", rows, lambda c=columns: decode_groups(*c), repeats)
        measure(
            f"{name}, batch +arrow nested",
            "rows",
            rows,
            lambda b=batches: _drain(decode.group_records(b)),
            repeats,
        )
        measure(
            f"{name}, batch +arrow assignments",
            "rows",
            rows,
            lambda b=batches: _drain(decode.assignments(b)),
            repeats,
        )
        if options.peers:
            measure_peers(name, "rows", rows, pairs, wire_peers.GROUPS[version])


def measure_peers(
    name: str, unit: str, count: int, pairs: Pairs, peers: dict[str, Callable[[Pairs], Any]]
) -> None:
    """One line for each peer, on the same records."""
    for peer, run in peers.items():
        measure(f"{name}, {peer}", unit, count, lambda run=run: run(pairs), 3)


if __name__ == "__main__":
    main()

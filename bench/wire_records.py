"""Speed of decoding ``__consumer_offsets`` in one process, beside two peers.

    taskset -c 0 python -m bench.wire_records [--repeats 7] [--peers]

The peers (:mod:`bench.wire_peers`) are a plain ``struct`` loop and kafka-python's own codec.
Prints one JSON line per case: records or assignment rows per second (minimum and median time of
the repeats), by wall clock and by CPU seconds. A run goes chunk by chunk; ``least_cpu`` sums the
least CPU time of each chunk over the repeats, so other processes on the core disturb it least.
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
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from bench import wire_peers

from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.layouts.offsets_records import Record, decode_record, encode_record
from holdfast.core.wire.many.offsets_batch import (
    Binary,
    Chunk,
    decode_batch,
    read_assignments,
    read_subscriptions,
)
from holdfast.fleet.pipeline.ingest import split
from holdfast.fleet.pipeline.ingest.decode import binary_column
from holdfast.fleet.pipeline.ingest.decode_classic import generations

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


def decode_groups(keys: Binary, values: Binary) -> Iterator[Chunk]:
    """Records, members, subscriptions and assignments to columns."""
    chunk: Chunk
    for chunk in decode_batch(keys, values, (2,)):
        for family in chunk.families:
            members = family.value["members"].columns  # type: ignore[union-attr]
            wanted = np.ones(len(members["assignment"]), bool)
            read_assignments(members["assignment"], wanted)
            read_subscriptions(members["subscription"], wanted)
        yield chunk


def at_once(run: Callable[[], Any]) -> Callable[[], Iterator[Any]]:
    """A run that is one chunk."""

    def chunks() -> Iterator[Any]:
        yield run()

    return chunks


def timed(run: Callable[[], Iterator[Any]]) -> tuple[float, list[float]]:
    """Seconds of a whole run, and the CPU seconds of each chunk."""
    started, last = time.perf_counter(), time.process_time()
    cpu_seconds = []
    for _ in run():
        now = time.process_time()
        cpu_seconds.append(now - last)
        last = now
    return time.perf_counter() - started, cpu_seconds


def measure(
    name: str, unit: str, count: int, run: Callable[[], Iterator[Any]], repeats: int
) -> None:
    """Print one JSON line."""
    timed(run)
    runs = [timed(run) for _ in range(repeats)]
    seconds, cpu_seconds = [wall for wall, _ in runs], [sum(cpu) for _, cpu in runs]
    best, median = min(seconds), statistics.median(seconds)
    least = sum(min(chunk) for chunk in zip(*(cpu for _, cpu in runs), strict=True))
    line = {
        "bench": "wire_records",
        "case": name,
        "unit": f"{unit}/s",
        "best": round(count / best),
        "median": round(count / median),
        "best_cpu": round(count / min(cpu_seconds)),
        "median_cpu": round(count / statistics.median(cpu_seconds)),
        "least_cpu": round(count / least),
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
    parser.add_argument("--only", default="", help="cases that begin so: 'commits v4'")
    options = parser.parse_args()
    for version in (3, 4):
        if f"commits v{version}".startswith(options.only):
            commit_cases(version, options.repeats, peers=options.peers)
    for version, n_topics in ((3, 1), (3, 2), (4, 1)):
        if f"groups v{version}, {n_topics} topics".startswith(options.only):
            group_cases(version, n_topics, options.repeats, peers=options.peers)


def commit_cases(version: int, repeats: int, *, peers: bool) -> None:
    """Offset commits of one version."""
    pairs = commits(version, np.random.default_rng(7))
    columns, batches = numpy_batches(pairs), arrow_batches(pairs)
    name, n_records = f"commits v{version}", len(pairs)
    form = f"{name}, batch"
    measure(form, "records", n_records, lambda: decode_batch(*columns), repeats)
    measure(
        f"{form} +arrow",
        "records",
        n_records,
        lambda: chain.from_iterable(map(split.offset_commits, batches)),
        repeats,
    )
    if peers:
        some = pairs[:20_000]
        scalar = f"{name}, scalar form"
        measure(
            scalar, "records", 20_000, at_once(lambda: [decode_record(k, v) for k, v in some]), 3
        )
        measure_peers(name, "records", n_records, pairs, wire_peers.COMMITS[version])


def group_cases(version: int, n_topics: int, repeats: int, *, peers: bool) -> None:
    """Group records of one version; the rows are those of the assignments."""
    pairs = group_records(version, n_topics)
    columns, batches = numpy_batches(pairs), arrow_batches(pairs)
    name, n_rows = f"groups v{version}, {n_topics} topics", N_GROUPS * N_MEMBERS * N_PARTITIONS
    form = f"{name}, batch"
    runs: dict[str, Callable[[], Iterator[Any]]] = {
        form: lambda: decode_groups(*columns),
        f"{form} +arrow": lambda: chain.from_iterable(map(generations, batches)),
    }
    for case, run in runs.items():
        measure(case, "rows", n_rows, run, repeats)
    if peers:
        measure_peers(name, "rows", n_rows, pairs, wire_peers.GROUPS[version])


def measure_peers(
    name: str, unit: str, count: int, pairs: Pairs, peers: dict[str, Callable[[Pairs], Any]]
) -> None:
    """One line for each peer, on the same records."""
    for peer, run in peers.items():
        measure(f"{name}, {peer}", unit, count, at_once(lambda run=run: run(pairs)), 3)


if __name__ == "__main__":
    main()

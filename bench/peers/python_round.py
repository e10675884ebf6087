"""One round of a leader in Python: of holdfast, or of kafka-python's own assignors.

usage: python_round.py PEER ASSIGNOR SECONDS CASE OUTPUT; prints one JSON line, writes the
assignments.
"""

from __future__ import annotations

import gc
import json
import resource
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

Round = Callable[[], dict[str, bytes]]


def main() -> None:
    """Run one case."""
    peer, assignor, seconds, path, output = sys.argv[1:]
    make, import_ms = {"holdfast": _holdfast, "kafka-python": _kafka_python}[peer](assignor)
    from bench.assign_workloads import read

    leader_round = make(*read(Path(path)))
    begin, used = time.perf_counter(), time.process_time()
    result = leader_round()
    cold = 1e3 * (time.perf_counter() - begin)
    cold_cpu = 1e3 * (time.process_time() - used)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times: list[float] = []
    cpus: list[float] = []
    end = time.perf_counter() + float(seconds)
    while (len(times) < 3 and cold < 30_000) or time.perf_counter() < end:
        gc.collect()
        begin, used = time.perf_counter(), time.process_time()
        leader_round()
        times.append(1e3 * (time.perf_counter() - begin))
        cpus.append(1e3 * (time.process_time() - used))
    used, n_rounds, end = time.process_time(), 0, time.perf_counter() + float(seconds) / 2
    while n_rounds < 1 or time.perf_counter() < end:  # garbage is collected as it comes
        leader_round()
        n_rounds += 1
    mean_cpu = 1e3 * (time.process_time() - used) / n_rounds
    times, cpus = sorted(times) or [cold], sorted(cpus) or [cold_cpu]
    line = {
        "import_ms": round(import_ms, 1),
        "cold_ms": round(cold, 3),
        "cold_cpu_ms": round(cold_cpu, 3),
        "min_ms": round(times[0], 3),
        "median_ms": round(times[len(times) // 2], 3),
        "min_cpu_ms": round(cpus[0], 3),
        "median_cpu_ms": round(cpus[len(cpus) // 2], 3),
        "mean_cpu_ms": round(mean_cpu, 3),
        "turns": len(times),
        "peak_mib": peak // 1024,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    with Path(output).open("wb") as file:
        file.write(struct.pack(">i", len(result)))
        for member_id, data in result.items():
            name = member_id.encode()
            file.write(struct.pack(f">h{len(name)}si", len(name), name, len(data)) + data)


def _holdfast(assignor: str) -> tuple[Callable[..., Round], float]:
    begin = time.perf_counter()
    from holdfast.core.machine.leader.leader_round import perform_assignment

    import_ms = 1e3 * (time.perf_counter() - begin)
    return (
        lambda partitions, members: lambda: perform_assignment(assignor, members, partitions)
    ), import_ms


def _kafka_python(assignor: str) -> tuple[Callable[..., Round], float]:
    begin = time.perf_counter()
    from kafka.cluster import ClusterMetadata
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

    if assignor != "cooperative-sticky":
        raise SystemExit("kafka-python frames its sticky user data in its own way; not compared")
    import_ms = 1e3 * (time.perf_counter() - begin)

    class Member:
        group_instance_id = None

        def __init__(self, member_id: str, data: bytes):
            self.member_id = member_id
            self.metadata = ConsumerProtocolSubscription.decode(data)

    def make(partitions: dict[str, int], members: list[tuple[str, None, bytes]]) -> Round:
        cluster = ClusterMetadata()
        cluster._partitions = {t: dict.fromkeys(range(n)) for t, n in partitions.items()}
        own = CooperativeStickyAssignor()

        def leader_round() -> dict[str, bytes]:
            read = [Member(member_id, data) for member_id, _, data in members]
            return {m: a.encode() for m, a in own.assign(cluster, read).items()}

        return leader_round

    return make, import_ms


if __name__ == "__main__":
    main()

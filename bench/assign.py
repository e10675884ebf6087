"""Leader turns, bytes to bytes, of holdfast and its peers side by side, as JSON lines.

usage: python -m bench.assign [--peers holdfast,franz-go,java,kafka-python] [--seconds 2] [--rounds
3] [--timeout 600] [--quality] [--work DIR] [CASE ...]

Peers take turns on one pinned core, ``--rounds`` times, each a new process that runs for
``--seconds``; a line has the smallest of all turns, the median, the mean (which has in it what
collects garbage), the first round of a process, and holdfast's ratio to the others. ``--quality``
compares balance and kept claims of the eager assignors as well.
The peers are built on first use: franz-go with ``go``, Kafka's client with ``javac`` and the jars
of :mod:`holdfast.local`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench import assign_workloads as workloads

from holdfast.core.assignors.claims import normalise
from holdfast.core.machine.leader.leader_round import read_group
from holdfast.core.model import measure
from holdfast.core.wire.layouts.consumer_protocol import decode_assignment

PEERS = Path(__file__).parent / "peers"
FRANZ_GO = "github.com/twmb/franz-go@v1.22.2"
KMSG = "github.com/twmb/franz-go/pkg/kmsg@v1.15.0"


def main() -> None:
    """Run the chosen cases."""
    options = _options()
    work = Path(options.work)
    work.mkdir(parents=True, exist_ok=True)
    commands = {peer: BUILD[peer](work) for peer in options.peers.split(",")}
    for name in options.cases or workloads.default_cases():
        case = workloads.build(name)
        _measure(case, commands, work, options)
        if options.quality:
            _compare(case, commands, work, options.timeout)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Leader turns of holdfast and its peers.")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--peers", default="holdfast,franz-go,java")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one process")
    parser.add_argument("--quality", action="store_true")
    parser.add_argument("--work", default=str(Path(tempfile.gettempdir()) / "holdfast-bench"))
    return parser.parse_args()


Command = Callable[[str, str, Path, Path], list[str]]
"""From assignor, seconds, case and output to the command line of a peer."""


def _build_holdfast(work: Path) -> Command:
    return _python("holdfast")


def _build_kafka_python(work: Path) -> Command:
    return _python("kafka-python")


def _python(peer: str) -> Command:
    script = [sys.executable, "-m", "bench.peers.python_round", peer]
    return lambda assignor, seconds, case, out: [*script, assignor, seconds, str(case), str(out)]


def _build_franz_go(work: Path) -> Command:
    folder, binary = work / "franz", work / "franz" / "franz"
    if _is_older(binary, PEERS / "main.go"):
        folder.mkdir(exist_ok=True)
        shutil.copy(PEERS / "main.go", folder)
        (folder / "go.mod").unlink(missing_ok=True)
        for step in (
            ["mod", "init", "bench"],
            ["get", FRANZ_GO, KMSG],
            ["mod", "tidy"],
            ["build", "-o", str(binary), "."],
        ):
            subprocess.run(["go", *step], cwd=folder, check=True, capture_output=True)
    return lambda assignor, seconds, case, out: [
        str(binary),
        assignor,
        seconds,
        str(case),
        str(out),
    ]


def _build_java(work: Path) -> Command:
    from holdfast.local.jars import broker_jars
    from holdfast.local.java import find_java

    java = Path(find_java().executable)
    classpath = os.pathsep.join(map(str, broker_jars()))
    folder = work / "java"
    if _is_older(folder / "LeaderTurn.class", PEERS / "LeaderTurn.java"):
        folder.mkdir(exist_ok=True)
        compiler = [str(java.with_name("javac")), "-cp", classpath, "-d", str(folder)]
        subprocess.run([*compiler, str(PEERS / "LeaderTurn.java")], check=True)
    run = [str(java), "-Xmx6g", "-cp", f"{folder}{os.pathsep}{classpath}", "LeaderTurn"]
    return lambda assignor, seconds, case, out: [*run, assignor, seconds, str(case), str(out)]


def _is_older(built: Path, source: Path) -> bool:
    return not built.exists() or built.stat().st_mtime < source.stat().st_mtime


BUILD = {
    "holdfast": _build_holdfast,
    "kafka-python": _build_kafka_python,
    "franz-go": _build_franz_go,
    "java": _build_java,
}


def _measure(
    case: workloads.Case, commands: dict[str, Command], work: Path, options: argparse.Namespace
) -> None:
    path = work / f"{case.name}.case"
    workloads.write(case, path, eager=False)
    best: dict[str, dict[str, Any]] = {}
    for _ in range(options.rounds):
        for peer, command in commands.items():
            try:
                turns = command("cooperative-sticky", str(options.seconds), path, work / "out")
                line = _run(turns, options.timeout)
            except subprocess.TimeoutExpired:
                _emit({"case": case.name, "peer": peer, "timeout_s": options.timeout})
                continue
            old = best.get(peer, line)
            merged = {key: min(old[key], value) for key, value in line.items()}
            best[peer] = {**merged, "turns": old["turns"] + line["turns"] * (peer in best)}
    path.unlink()
    ours = best.get("holdfast", {})
    for peer, line in best.items():
        with_ratio = ours and peer != "holdfast"
        ratios = ratios_to(ours, line) if with_ratio else {}
        _emit({"case": case.name, "peer": peer, **line, **ratios})


RATIOS = {
    "ours_to_this": "min_ms",
    "ours_to_this_cpu": "min_cpu_ms",
    "ours_to_this_cpu_median": "median_cpu_ms",
    "ours_to_this_cpu_mean": "mean_cpu_ms",
    "ours_to_this_first_turn": "cold_cpu_ms",
}


def ratios_to(ours: dict[str, Any], other: dict[str, Any]) -> dict[str, float | None]:
    """Ratios of holdfast to a peer; None where the peer's clock is too coarse and says 0."""
    return {
        name: round(ours[key] / other[key], 3) if other[key] else None
        for name, key in RATIOS.items()
    }


def _run(command: list[str], timeout: float) -> dict[str, Any]:
    core = max(os.sched_getaffinity(0))
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        timeout=timeout,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    line: dict[str, Any] = json.loads(done.stdout)
    return line


def _compare(
    case: workloads.Case, commands: dict[str, Command], work: Path, timeout: float
) -> None:
    """Balance and kept claims of every peer's eager sticky assignor on the same group."""
    path, out = work / f"{case.name}.eager", work / "out"
    workloads.write(case, path, eager=True)
    partitions, members = workloads.read(path)
    group = read_group("sticky", members, partitions)
    before = normalise(group).owner
    member_index = {member_id: member for member, member_id in enumerate(group.member_ids)}
    for peer, command in commands.items():
        if peer == "kafka-python":
            continue
        _run(command("sticky", "0", path, out), timeout)
        owner = np.full(group.topics.n_tps, -1, np.int32)
        for member_id, data in _answers(out):
            for topic, numbers in decode_assignment(data).partitions:
                first = int(group.topics.start[group.topics.index[topic]])
                owner[[first + p for p in numbers]] = member_index[member_id]
        load = measure.loads(owner, group.n_members)
        _emit(
            {
                "case": case.name,
                "peer": peer,
                "balance_score": measure.balance_score(load),
                "sum_of_squares": int((load * load).sum()),
                "kept": measure.count_kept(before, owner),
            }
        )
    path.unlink()


def _answers(path: Path) -> list[tuple[str, bytes]]:
    data, at, rows = path.read_bytes(), 4, []
    for _ in range(struct.unpack_from(">i", data)[0]):
        (size,) = struct.unpack_from(">h", data, at)
        member_id = data[at + 2 : at + 2 + size].decode()
        (length,) = struct.unpack_from(">i", data, at + 2 + size)
        at += 6 + size + length
        rows.append((member_id, data[at - length : at]))
    return rows


def _emit(line: dict[str, Any]) -> None:
    context = {"python": platform.python_version(), "numpy": np.__version__, "commit": _commit()}
    sys.stdout.write(json.dumps({**line, **context}) + "\n")
    sys.stdout.flush()


def _commit() -> str:
    git = ["git", "-C", str(PEERS), "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, check=False, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()

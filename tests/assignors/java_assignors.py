"""Kafka's own assignors on random groups: the groups, the line format, and the answers.

``python -m tests.assignors.java_assignors CLASSPATH > tests/assignors/java_assignors.json`` writes
the vectors that :mod:`tests.assignors.test_java_assignors` compares with; CLASSPATH holds
kafka-clients 4.3.1. The test marked ``broker`` does the same on many more groups.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).parents[1] / "java" / "AssignorOracle.java"
VECTORS = Path(__file__).with_suffix(".json")
NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")

Snapshot = dict[str, Any]
Rows = dict[str, dict[str, list[int]]]


def random_group(seed: int) -> Snapshot:
    """A group with whatever makes Kafka's assignors branch: racks, static ids, uneven topics."""
    rng = np.random.default_rng(seed)
    n_topics, n_members = int(rng.integers(1, 6)), int(rng.integers(1, 8))
    # Topics of one size are co-partitioned, so sizes are drawn from few.
    sizes = rng.integers(0, 9, size=2)
    partitions = {f"t{i}": int(rng.choice(sizes)) for i in range(n_topics)}
    names = sorted(partitions)
    racks_known, equal, static = rng.random(3) < (0.6, 0.5, 0.5)
    rack_names = ["a", "b", "c", "d"][: int(rng.integers(1, 5))]
    members = []
    for i in range(n_members):
        topics = names if equal else [name for name in names if rng.random() < 0.6]
        members.append(
            {
                "id": f"m{int(rng.integers(100, 1000))}-{i}",
                "topics": topics,
                "owned": [],
                "generation": -1,
                "instance_id": f"i{int(rng.integers(0, 100)):02}{i}"
                if static and rng.random() < 0.6
                else None,
                "rack": str(rng.choice(rack_names)) if racks_known and rng.random() < 0.8 else None,
            }
        )
    group: Snapshot = {"partitions": partitions, "members": members}
    if racks_known:
        copies = int(rng.integers(0, 3))
        group["racks"] = {
            name: [
                sorted({str(rack) for rack in rng.choice(rack_names, size=copies)})
                for _ in range(count)
            ]
            for name, count in partitions.items()
        }
    return group


def with_claims(group: Snapshot, seed: int) -> Snapshot:
    """The same group after a round robin of its partitions and a change of members."""
    rng = np.random.default_rng(seed)
    members = [dict(member, owned=[], generation=3) for member in group["members"]]
    turn = 0
    for name, count in group["partitions"].items():
        readers = [member for member in members if name in member["topics"]]
        for partition in range(count if readers else 0):
            readers[turn % len(readers)]["owned"].append([name, partition])
            turn += 1
    new_member = dict(members[-1], id="newcomer", owned=[], generation=-1, instance_id=None)
    stay = [member for member in members if rng.random() < 0.8]
    return dict(group, members=stay + [new_member] * bool(rng.random() < 0.5 or not stay))


def line_of(name: str, group: Snapshot) -> str:
    """One group as ``AssignorOracle.java`` reads it."""
    topics = []
    for topic, count in group["partitions"].items():
        racks = group.get("racks", {}).get(topic)
        text = "-" if racks is None else ",".join("+".join(row) for row in racks)
        topics.append(f"{topic}:{count}:{text}")
    members = [
        ":".join(
            (
                member["id"],
                member["instance_id"] or "-",
                member["rack"] or "-",
                str(member["generation"]),
                ",".join(member["topics"]),
                ",".join(f"{topic}/{partition}" for topic, partition in member["owned"]),
            )
        )
        for member in group["members"]
    ]
    return "\t".join((name, ";".join(topics), ";".join(members)))


def rows_of(line: str) -> Rows:
    """What ``AssignorOracle.java`` answered, sorted."""
    assert not line.startswith("!"), line
    result: Rows = {}
    for row in line.split(";"):
        member, _, cells = row.partition("=")
        own = result.setdefault(member, {})
        for topic, partition in (cell.split("/") for cell in cells.split(",") if cell):
            own.setdefault(topic, []).append(int(partition))
    return {
        member: {topic: sorted(own[topic]) for topic in sorted(own)}
        for member, own in sorted(result.items())
    }


def ask_java(
    cases: Iterable[tuple[str, Snapshot]], classpath: str, java: str = "java"
) -> list[Rows]:
    """Let Kafka assign every group (the oracle is compiled as it starts, which needs a JDK)."""
    lines = "\n".join(line_of(name, group) for name, group in cases)
    command = [java, "-Xmx256m", "-cp", classpath, str(SOURCE)]
    done = subprocess.run(
        command, input=lines, capture_output=True, text=True, timeout=300, check=True
    )
    return [rows_of(line) for line in done.stdout.splitlines()]


def cases_of(seeds: Iterable[int]) -> list[tuple[str, Snapshot]]:
    """Every assignor on a fresh group and the sticky ones on a changed group too, by seed."""
    cases = []
    for seed in seeds:
        fresh = random_group(seed)
        cases += [(name, fresh) for name in NAMES]
        cases += [(name, with_claims(fresh, seed)) for name in NAMES[2:]]
    return cases


def main() -> None:
    """Print the vectors."""
    cases = cases_of(range(20))
    answers = ask_java(cases, sys.argv[1])
    rows = [
        {"assignor": name, "group": group, "assignment": answer}
        for (name, group), answer in zip(cases, answers, strict=True)
    ]
    print("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]")


if __name__ == "__main__":
    main()

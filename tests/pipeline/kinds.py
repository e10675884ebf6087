"""Captured groups of every kind as dumps, and what Kafka's tools said of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.pipeline import local

from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.fleet.pipeline.ingest.dump import write_log
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC
from holdfast.fleet.tables.reading import Tables

CAPTURED = Path(__file__).parent.parent / "wire" / "captured"


@dataclass(frozen=True)
class Kind:
    """One capture: ``moments`` are what was done, and what the tools printed then."""

    group: str
    moments: list[dict[str, Any]]
    broker_log: list[str]
    about: dict[str, Any]
    records: list[dict[str, Any]]

    def share_state(self) -> list[tuple[int, int, int, bytes, bytes | None]]:
        """Records of ``__share_group_state``."""
        return [
            (
                row["partition"],
                row["offset"],
                row["timestamp_ms"] * 1000,
                bytes.fromhex(row["key"]),
                row["value"] and bytes.fromhex(row["value"]),
            )
            for row in self.records
            if "topic" in row
        ]

    def write_dump(self, folder: Path, until_ms: int | None = None) -> Path:
        """A dump of the records, or of those up to a moment."""
        kept = [
            row
            for row in self.records
            if "topic" not in row and (until_ms is None or row["timestamp_ms"] <= until_ms)
        ]
        columns = {
            "partition": [row["partition"] for row in kept],
            "offset": [row["offset"] for row in kept],
            "timestamp": [row["timestamp_ms"] * 1000 for row in kept],
            "key": [bytes.fromhex(row["key"]) for row in kept],
            "value": [row["value"] and bytes.fromhex(row["value"]) for row in kept],
        }
        ends = {row["partition"]: row["offset"] + 1 for row in kept}
        offsets = [tuple(row) for row in self.about["offsets"]]
        offsets += [(OFFSETS_TOPIC, partition, 0, end) for partition, end in ends.items()]
        snapshot = ClusterSnapshot(
            cluster_id="captured",
            topics=[tuple(row) for row in self.about["topics"]],
            offsets=offsets,
            taken_at=self.about["taken_at"],
            share_state=self.share_state(),
        )
        write_log(folder, columns, snapshot)
        return folder


def kind(name: str) -> Kind:
    """A capture by its name."""
    about = json.loads((CAPTURED / f"{name}.json").read_text("utf-8"))
    lines = (CAPTURED / f"{name}.jsonl").read_text("utf-8").splitlines()
    return Kind(
        group=about["group"],
        moments=about["moments"],
        broker_log=about["broker_log"],
        about=about,
        records=[json.loads(line) for line in lines],
    )


def tables_of(names: Iterable[str], folder: Path) -> dict[str, Tables]:
    """Tables of captures, by their names."""
    return {
        name: local.run(kind(name).write_dump(folder / name / "dump"), folder / name / "tables")
        for name in names
    }


def printed(text: str) -> list[dict[str, str]]:
    """A table that one of Kafka's tools printed, by its headings; nothing where it printed none."""
    lines = [line for line in text.splitlines() if line.strip()]
    head = next((i for i, line in enumerate(lines) if line.startswith("GROUP ")), len(lines))
    if head == len(lines):
        return []
    names = lines[head].split()
    return [
        dict(zip(names, line.split(maxsplit=len(names) - 1), strict=False))
        for line in lines[head + 1 :]
    ]

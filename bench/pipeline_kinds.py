"""Write a dump of many groups of one kind: a captured group, again and again under other names.

``python bench/pipeline_kinds.py DIR KIND GROUPS``; KIND is a capture of ``tests/wire/captured``. A
copy has the records of the capture byte for byte, but for the group's name in each key, which has
the same length. Topic names in values keep the captured group's name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.tables.schemas import arrow_schema, from_columns
from pipeline_fleet import START_MS, Writer

CAPTURED = Path(__file__).parent.parent / "tests" / "wire" / "captured"
KINDS = ("streams", "streams_classic", "share", "connect", "worker", "migrated")
"""Captures of one group each; ``migrated`` has a classic group and one of KIP-848."""


def main(folder: Path, kind: str, n_groups: int) -> None:
    """Write the dump; ``dump.json`` says how many records and groups it has."""
    about = json.loads((CAPTURED / f"{kind}.json").read_text())
    name = about["group"].encode()
    lines = (CAPTURED / f"{kind}.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if "topic" not in row]
    records = [
        (
            row["timestamp_ms"] - rows[0]["timestamp_ms"],
            bytes.fromhex(row["key"]),
            bytes.fromhex(row["value"]) if row["value"] else None,
        )
        for row in rows
    ]
    writer = Writer(folder)
    for group in range(n_groups):
        other = f"{group:0{len(name)}d}".encode()
        for at_ms, key, value in records:
            writer.add(group, START_MS + at_ms, key.replace(name, other, 1), value)
    writer.close()
    for table in ("topics", "offsets"):
        (folder / table).mkdir(exist_ok=True)
        names, columns = arrow_schema(table).names, zip(*about[table], strict=True)
        known: pa.Table = from_columns(table, dict(zip(names, map(list, columns), strict=True)))
        pq.write_table(known, folder / table / "part-0.parquet")
    truth = {
        "schema_version": 1,
        "cluster_id": "bench",
        "taken_at": "2023-11-15T00:00:00+00:00",
        "commits": 0,
        "assignments": 0,
        "moved": 0,
        "groups": n_groups,
        "records": n_groups * len(records),
    }
    (folder / "dump.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))

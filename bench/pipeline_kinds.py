"""Write a dump of many groups of one kind: copies of a captured group under other names.

``python bench/pipeline_kinds.py DIR KIND GROUPS``; KIND is a capture of ``tests/wire/captured``.
``python bench/pipeline_kinds.py decode KIND GROUPS`` reads them as generations instead, without
Spark, and prints CPU seconds for a million records of classic groups (the second of two runs).
The messages of a copy end in bytes of their own, which no reader parses: groups do not have equal
messages, so nothing that is cached for one copy may help with another. In a dump a copy has the
records of the capture byte for byte, except for the group's name in each key, which has the same
length. Topic names in values keep the captured group's name.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.core.wire.layouts.offsets_records import Record, decode_record, encode_record
from holdfast.fleet.pipeline.ingest.decode_classic import generations
from holdfast.fleet.tables.columns.schemas import TIMESTAMP, arrow_schema, from_columns
from pipeline_fleet import START_MS, Writer

CAPTURED = Path(__file__).parent.parent / "tests" / "wire" / "captured"
KINDS = ("streams", "streams_classic", "share", "connect", "worker", "migrated")
"""Captures of one group each; ``migrated`` has a classic group and one of KIP-848."""


def copies(kind: str, n_groups: int) -> list[tuple[int, int, bytes, bytes | None]]:
    """Return group, time since the first record in ms, key and value of each record."""
    name = json.loads((CAPTURED / f"{kind}.json").read_text())["group"].encode()
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
    return [
        (group, at_ms, key.replace(name, f"{group:0{len(name)}d}".encode(), 1), value)
        for group in range(n_groups)
        for at_ms, key, value in records
    ]


def with_own_messages(key: bytes, value: bytes | None, group: int) -> bytes | None:
    """Return a classic group's record with other bytes at the end of its members' messages."""
    record = decode_record(key, value)
    if record.value is None:
        return value
    fields = record.to_dict()["value"]
    for member in fields["members"]:
        for name in ("subscription", "assignment"):
            member[name] = bytes.fromhex(member[name]) + group.to_bytes(4, "big")
    version = record.value_version
    made = Record(
        record_type=2, name=record.name, key=record.key, value_version=version, value=fields
    )
    return encode_record(made)[1]


def read_here(kind: str, n_groups: int) -> None:
    """Read the records of classic groups in this process; print what it costs."""
    found = [
        (group, at, key, with_own_messages(key, value, group))
        for group, at, key, value in copies(kind, n_groups)
        if key[:2] == b"\0\2"
    ]
    batch = pa.record_batch(
        {
            "key": pa.array([key for _, _, key, _ in found], pa.binary()),
            "value": pa.array([value for *_, value in found], pa.binary()),
            "partition": pa.array([group % 50 for group, *_ in found], pa.int32()),
            "offset": pa.array(range(len(found)), pa.int64()),
            "timestamp": pa.array([(START_MS + at) * 1000 for _, at, *_ in found], TIMESTAMP),
        }
    )
    for _ in range(2):
        started = time.process_time()
        n_members = sum(one.members.num_rows for one in generations(batch))
        seconds = time.process_time() - started
    line = {
        "kind": kind,
        "records": len(found),
        "members": n_members,
        "cpu_seconds_per_million_records": round(seconds / len(found) * 1e6, 2),
    }
    sys.stdout.write(json.dumps(line) + "\n")


def main(folder: Path, kind: str, n_groups: int) -> None:
    """Write the dump; ``dump.json`` has the numbers of records and groups."""
    about = json.loads((CAPTURED / f"{kind}.json").read_text())
    records = copies(kind, n_groups)
    writer = Writer(folder)
    for group, at_ms, key, value in records:
        writer.add(group, START_MS + at_ms, key, value)
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
        "n_groups": n_groups,
        "n_records": len(records),
    }
    (folder / "dump.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    place, kind, n_groups = sys.argv[1:]
    if place == "decode":
        read_here(kind, int(n_groups))
    else:
        main(Path(place), kind, int(n_groups))

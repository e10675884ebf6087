"""Write a dump of a fleet with known numbers: commits, generations, moves.

``python bench/pipeline_fleet.py DIR --commits 1000000 --groups 100 --generations 10 --members 50
--partitions 20 [--moved 0.05] [--whale N]`` makes ``groups x generations x members x partitions``
assignment rows, of which the given fraction moves with each generation, in records as Kafka 4.3.1
writes them. The same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.core.model.columns import within
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.layouts.offsets_records import Record, encode_record
from holdfast.fleet.tables.columns.schemas import arrow_schema, from_columns

START_MS = 1_700_000_000_000
N_LOG_PARTITIONS = 50
WHALE = 99_999
"""Number of the whale's group: it comes after all others."""


class Writer:
    """Records file by file, offsets by log partition."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.heads = [0] * N_LOG_PARTITIONS
        self.rows: list[tuple[int, int, int, bytes, bytes | None]] = []
        self.n_files = 0
        self.n_bytes = 0
        (folder / "records").mkdir(parents=True, exist_ok=True)

    def add_all(
        self,
        group: npt.NDArray[np.int64],
        at_ms: npt.NDArray[np.int64],
        keys: npt.NDArray[np.uint8],
        values: npt.NDArray[np.uint8],
    ) -> None:
        """Add records of equal length, one row each, as a file of their own."""
        self.close()
        partition = group % N_LOG_PARTITIONS
        order = np.argsort(partition, kind="stable")
        counts = np.bincount(partition, minlength=N_LOG_PARTITIONS)
        offset = np.empty(len(group), np.int64)
        offset[order] = within(counts) + np.repeat(self.heads, counts)
        self.heads = [head + int(n) for head, n in zip(self.heads, counts, strict=True)]
        columns = (partition.astype(np.int32), offset, at_ms * 1000, _binary(keys), _binary(values))
        self._write(dict(zip(arrow_schema("records").names, columns, strict=True)), len(group))

    def add(self, group: int, at_ms: int, key: bytes, value: bytes | None) -> None:
        """Add a record; after 64 MB the file is closed."""
        partition = group % N_LOG_PARTITIONS
        self.rows.append((partition, self.heads[partition], at_ms * 1000, key, value))
        self.heads[partition] += 1
        self.n_bytes += len(key) + len(value or b"")
        if self.n_bytes > 64 << 20:
            self.close()

    def close(self) -> None:
        """Write the waiting records."""
        if not self.rows:
            return
        names, columns = arrow_schema("records").names, zip(*self.rows, strict=True)
        self._write(dict(zip(names, columns, strict=True)), len(self.rows))
        self.rows, self.n_bytes = [], 0

    def _write(self, columns: dict[str, Any], n_rows: int) -> None:
        rows = from_columns("records", columns)
        target = self.folder / "records" / f"part-{self.n_files:05d}.parquet"
        # Row groups as ``holdfast dump`` writes them.
        per_group = max(1, n_rows * (8 << 20) // max(rows.nbytes, 1))
        pq.write_table(rows, target, row_group_size=per_group)
        self.n_files += 1


def _binary(rows: npt.NDArray[np.uint8]) -> pa.Array:
    """Turn rows of bytes into a binary column."""
    start = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(rows.shape[1])
    buffers = [None, pa.py_buffer(start), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


def write_commits(writer: Writer, n_commits: int, n_groups: int, rng: np.random.Generator) -> None:
    """Write commits: value version 4, 100 partitions a group, one group after the other."""
    base = encode_record(
        Record(
            record_type=1,
            name="OffsetCommit",
            value_version=4,
            key={"group": "group-00000", "topic": "orders-00", "partition": 0},
            value={
                "offset": 0,
                "leaderEpoch": 3,
                "metadata": "",
                "commitTimestamp": 0,
                "topicId": "00000000-0000-0000-0000-000000000001",
            },
        )
    )
    key, value = bytearray(base[0]), bytearray(base[1] or b"")
    time_at = len(value) - 18 - 1 - 8 if len(value) > 40 else None
    group_at, topic_at = 4, 4 + 11 + 2
    offsets = rng.integers(0, 1 << 40, n_commits)
    step = (64 << 20) // (len(key) + len(value))
    for start in range(0, n_commits, step):
        at = np.arange(start, min(start + step, n_commits))
        group, number = at % n_groups, at // n_groups
        keys, values = (
            np.tile(np.frombuffer(form, np.uint8), (len(at), 1)) for form in (key, value)
        )
        keys[:, group_at + 6 : group_at + 11] = _digits(group, 5)
        keys[:, topic_at + 7 : topic_at + 9] = _digits(number % 4, 2)
        keys[:, -4:] = _bytes(number % 25, ">i4")
        values[:, 2:10] = _bytes(offsets[at], ">i8")
        if time_at is not None:
            values[:, time_at : time_at + 8] = _bytes(START_MS + at, ">i8")
        writer.add_all(group, START_MS + at, keys, values)


def _digits(numbers: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    """Return decimal digits in ASCII, one row a number."""
    return numbers[:, None] // 10 ** np.arange(n)[::-1] % 10 + ord("0")


def _bytes(numbers: npt.NDArray[np.int64], dtype: str) -> npt.NDArray[np.uint8]:
    """Return numbers as their bytes, one row each."""
    return numbers.astype(dtype)[:, None].view(np.uint8)


def write_generations(writer: Writer, args: argparse.Namespace, rng: np.random.Generator) -> int:
    """Write classic groups; return the number of moves in all."""
    n_tps = args.members * args.partitions
    moved = 0
    for group in range(args.first, args.first + args.groups):
        form = Form.of(group, args.members)
        owner = np.repeat(np.arange(args.members), args.partitions)
        for generation in range(1, args.generations + 1):
            if generation > 1:
                picked = rng.choice(n_tps, max(1, round(args.moved * n_tps)), replace=False)
                before = owner[picked].copy()
                owner[picked] = (before + 1) % args.members
                moved += int(np.count_nonzero(owner[picked] != before))
            order = np.argsort(owner, kind="stable").astype(">i4")
            cuts = np.searchsorted(owner[order], np.arange(args.members + 1)).tolist()
            at = START_MS + generation * 60_000
            given = [order[a:b].tobytes() for a, b in pairwise(cuts)]
            writer.add(group, at, form.key, form.fill(generation, at, given))
    return moved


NUMBER, TIME, MARK = 0x11223344, 0x0102030405060708, b"<given>"
"""Placeholders in a form; they occur nowhere else in its bytes."""


@dataclass(frozen=True, slots=True)
class Form:
    """The records of one group, encoded once, with placeholders for what differs by generation."""

    key: bytes
    pieces: list[bytes]
    given: tuple[bytes, bytes]

    @classmethod
    def of(cls, group: int, n_members: int) -> Form:
        """Encode the records field by field."""
        subscription = encode_subscription(
            Subscription(version=3, topics=("orders",), user_data=None, owned=(), generation=-1)
        )
        members = tuple(_member(group, member, subscription) for member in range(n_members))
        key, value = encode_record(
            Record(
                record_type=2,
                name="GroupMetadata",
                value_version=3,
                key={"group": f"group-{group:05d}"},
                value={
                    "protocolType": "consumer",
                    "generation": NUMBER,
                    "protocol": "cooperative-sticky",
                    "leader": members[0]["memberId"] if members else None,
                    "currentStateTimestamp": TIME,
                    "members": members,
                },
            )
        )
        assert value is not None
        owned = AssignmentMessage(version=3, partitions=(("orders", (NUMBER,)),), user_data=None)
        before, _, after = encode_assignment(owned).partition(struct.pack(">ii", 1, NUMBER))
        return cls(key, value.split(struct.pack(">i", len(MARK)) + MARK), (before, after))

    def fill(self, generation: int, at_ms: int, given: list[bytes]) -> bytes:
        """Return the value of one generation; ``given``: members' partitions, int32 big-endian."""
        first, *rest = self.pieces
        first = first.replace(struct.pack(">i", NUMBER), struct.pack(">i", generation))
        parts = [first.replace(struct.pack(">q", TIME), struct.pack(">q", at_ms))]
        before, after = self.given
        for partitions, piece in zip(given, rest, strict=True):
            size = len(before) + 4 + len(partitions) + len(after)
            parts += (struct.pack(">i", size), before, struct.pack(">i", len(partitions) // 4))
            parts += (partitions, after, piece)
        return b"".join(parts)


def write_whale(writer: Writer, n_tps: int) -> tuple[int, int]:
    """Write one group of 1,000 members with ``n_tps`` partitions, in two generations.

    Returns
    -------
    (assignments, moved) : tuple of int
        Each member passes one partition to the next.
    """
    if not n_tps:
        return 0, 0
    n_members = 1000
    sizes = argparse.Namespace(groups=1, generations=2, members=n_members, first=WHALE)
    sizes.partitions, sizes.moved = n_tps // n_members, n_members / n_tps
    moved = write_generations(writer, sizes, np.random.default_rng(2))
    return 2 * n_members * sizes.partitions, moved


def _member(group: int, member: int, subscription: bytes) -> dict[str, object]:
    return {
        "memberId": f"consumer-{group:05d}-{member:04d}-8f14e45f-ceea-467f-a9d9-0f2c1b7e5d3a",
        "groupInstanceId": None,
        "clientId": f"consumer-{member:04d}",
        "clientHost": f"/10.0.{member // 250}.{member % 250}",
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 45_000,
        "subscription": subscription,
        "assignment": MARK,
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--commits", type=int, default=0)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--generations", type=int, default=0)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--moved", type=float, default=0.05)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--whale", type=int, default=0, help="partitions of one big group")
    args = parser.parse_args()
    writer = Writer(args.folder)
    rng = np.random.default_rng(1)
    write_commits(writer, args.commits, max(args.groups, 1), rng)
    moved = write_generations(writer, args, rng)
    whale, whale_moved = write_whale(writer, args.whale)
    writer.close()
    for name in ("topics", "offsets"):
        (args.folder / name).mkdir(exist_ok=True)
        empty: pa.Table = arrow_schema(name).empty_table()
        pq.write_table(empty, args.folder / name / "part-0.parquet")
    truth = {
        "schema_version": 1,
        "cluster_id": "bench",
        "taken_at": "2023-11-15T00:00:00+00:00",
        "commits": args.commits,
        "assignments": args.groups * args.generations * args.members * args.partitions + whale,
        "moved": moved + whale_moved,
    }
    (args.folder / "dump.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    main()

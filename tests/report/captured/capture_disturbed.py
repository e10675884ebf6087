"""How ``disturbed.*`` beside this were made: the groups of ``tests.live.situations``, on a broker.

``python -c "from tests.report.captured.capture_disturbed import main; main()"`` plays them beside
each other, in a quarter of an hour; with ``-m`` each member would import this module, too.
``disturbed.parquet`` has their records of the offsets topic; ``disturbed.json`` has their topics,
their ends and the moment at which each was looked at, which may be more than one;
``disturbed.log.gz`` is what the broker logged of them.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.live.disturbed import Left, Stage, Writer, alone, left_by
from tests.live.run_broker import ShortLived
from tests.live.situations import LONG, SITUATIONS, Situation
from tests.pipeline import local

from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.fleet.tables.reading import Tables
from holdfast.local.broker_server import BrokerSettings

HERE = Path(__file__).parent
RECORDS, LOOKS, LOG = (HERE / f"disturbed.{end}" for end in ("parquet", "json", "log.gz"))
PROPERTIES = {"offsets.topic.num.partitions": "3", "broker.session.timeout.ms": "90000"}
"""A machine that is busy with so many members may fence its only broker."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """A group at a moment: how many of its records there were, and where its topic ended."""

    group: str
    is_last: bool
    n_records: int
    topics: Sequence[Sequence[Any]]
    offsets: Sequence[Sequence[Any]]
    taken_at: str
    cluster_id: str

    @property
    def name(self) -> str:
        return self.group if self.is_last else f"{self.group}, early"

    @property
    def left(self) -> Left:
        """What was on record of it."""
        told = _records()[self.group]
        columns = {name: values[: self.n_records] for name, values in told.items()}
        topics, offsets = ([tuple(row) for row in rows] for rows in (self.topics, self.offsets))
        taken = ClusterSnapshot(
            cluster_id=self.cluster_id, topics=topics, offsets=offsets, taken_at=self.taken_at
        )
        return Left(columns=columns, taken=taken)

    def dump(self, folder: Path) -> Path:
        """Write it as a dump."""
        return self.left.dump(folder)


@cache
def _records() -> dict[str, dict[str, list[Any]]]:
    """Group -> columns; its records stand in one partition of the offsets topic, in order."""
    found: dict[str, dict[str, list[Any]]] = {}
    for row in pq.read_table(RECORDS).to_pylist():
        columns = found.setdefault(row.pop("group"), {name: [] for name in row})
        for name, value in row.items():
            columns[name].append(value)
    return found


def looks() -> Iterator[Look]:
    """Every look that is here."""
    for told in json.loads(LOOKS.read_text()):
        yield Look(**told)


TOGETHER = ("2026-11-30T13:59:15", "2026-11-30T14:02:00")
"""Groups that were looked at between these moments lived side by side."""


def together(folder: Path) -> Tables:
    """Tables of these groups, as of the last look."""
    first, last = TOGETHER
    chosen = [look for look in looks() if look.is_last and first < look.taken_at < last]
    left = [look.left for look in sorted(chosen, key=lambda look: look.taken_at)]
    records = sorted(row for one in left for row in zip(*one.columns.values(), strict=True))
    columns = dict(zip(left[0].columns, map(list, zip(*records, strict=True)), strict=True))
    taken = replace(
        left[-1].taken,
        topics=sorted((row for one in left for row in one.taken.topics), key=lambda row: row[1]),
        offsets=sorted(row for one in left for row in one.taken.offsets),
    )
    with tempfile.TemporaryDirectory() as made:
        dump = Left(columns=columns, taken=taken).dump(Path(made) / "dump")
        return local.run(dump, folder, batch_rows=5_000)


class Captured:
    """What was seen of all situations."""

    def __init__(self, bootstrap: str, writer: Writer, folder: Path):
        self.bootstrap, self.writer, self.folder = bootstrap, writer, folder
        self.seen: list[tuple[str, bool, Left]] = []
        self._lock = threading.Lock()

    def live(self, situation: Situation) -> None:
        """Play one, and keep what it leaves."""
        name = situation.name
        folder = self.folder / name
        folder.mkdir()
        try:
            with Stage(self.bootstrap, name, folder, self.writer) as stage:
                if situation.is_early:
                    stage.looks = lambda _: self._look(name, is_last=False)
                situation.play(stage)
                self._look(name, is_last=True)
        except Exception:
            print(name, "failed:", traceback.format_exc(), file=sys.stderr)

    def _look(self, name: str, *, is_last: bool) -> None:
        with self._lock:
            self.seen.append((name, is_last, alone(left_by(self.bootstrap, name), name)))
            print(time.strftime("%H:%M:%S"), name, file=sys.stderr)

    def write_down(self, log: Path) -> None:
        """Write the three files."""
        self.seen.sort(key=lambda one: one[:2])
        told, tables = [], []
        for name, is_last, left in self.seen:
            n_records = len(left.columns["offset"])
            taken = asdict(left.taken)
            del taken["share_state"]
            told.append(asdict(Look(group=name, is_last=is_last, n_records=n_records, **taken)))
            if is_last:
                tables.append(pa.table({"group": [name] * n_records, **left.columns}))
        LOOKS.write_text(json.dumps(told, indent=0) + "\n")
        pq.write_table(pa.concat_tables(tables), RECORDS, compression="zstd")
        with log.open("rb") as lines, gzip.open(LOG, "wb") as kept:
            kept.writelines(line for line in lines if b"coordinator.group" in line)


def main() -> None:
    """Live, and write down."""
    folder = Path(tempfile.mkdtemp())
    with ShortLived.start(settings=BrokerSettings(properties=PROPERTIES)) as broker:
        writer = Writer(broker.bootstrap)
        captured = Captured(broker.bootstrap, writer, folder)
        threads = [
            threading.Thread(target=captured.live, args=(one,)) for one in (*SITUATIONS, *LONG)
        ]
        for thread in threads:
            thread.start()
            time.sleep(1)
        for thread in threads:
            thread.join()
        writer.close()
        captured.write_down(broker.logs[0])
    shutil.rmtree(folder)

"""What every group's history would have cost under other settings; one row per group and setting.

``spark-submit --py-files holdfast.zip jobs/replay.py DUMP TABLES OUT.parquet SETTING...``: TABLES
is the output of ``jobs/history.py`` for DUMP. A SETTING is ``policy:assignor`` or
``policy:assignor:delay_ms``, such as ``deferred:cooperative-sticky:30000``. A group's actual
settings are always replayed too; the fidelity of that row holds for the other rows.
"""

from __future__ import annotations

import argparse
import sys

import pyarrow.parquet as pq

from holdfast.pipeline.ingest.source import Dump
from holdfast.pipeline.replay.run import Request, replay
from holdfast.pipeline.replay.settings import ReplaySettings
from holdfast.pipeline.replay.story import stories
from holdfast.pipeline.session import get_session
from holdfast.tables.reading import open_tables
from holdfast.tables.storage.places import writable

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dump", metavar="DUMP", help="folder of `holdfast dump`, or its URL")
parser.add_argument("tables", metavar="TABLES", help="folder of jobs/history.py for DUMP")
parser.add_argument("out", metavar="OUT.parquet", help="file for the rows")
parser.add_argument(
    "settings", metavar="SETTING", nargs="*", help="policy:assignor or policy:assignor:delay_ms"
)
wanted = parser.parse_args()
topics = Dump.open(wanted.dump).partition_counts()
settings = []
for text in wanted.settings:
    policy, assignor, *delay = text.split(":")
    delay_ms = int(delay[0]) if delay else 0
    settings.append(ReplaySettings(policy=policy, assignor=assignor, delay_ms=delay_ms))
told = list(stories(open_tables(wanted.tables), topics, lags=True))
found = replay(get_session, told, Request(settings=tuple(settings)))
with writable(wanted.out) as sink:
    pq.write_table(found, sink)
sys.stdout.write(f"{len(told)} groups, {found.num_rows} rows\n")

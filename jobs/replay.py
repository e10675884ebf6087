"""What every group's history would have cost under other settings; one row per group and setting.

``spark-submit --py-files holdfast.zip jobs/replay.py DUMP TABLES OUT.parquet SETTING...``: TABLES
is the output of ``jobs/history.py`` for DUMP. A SETTING is ``policy:assignor`` or
``policy:assignor:delay_ms``, such as ``deferred:cooperative-sticky:30000``. A group's actual
settings are always replayed too; the fidelity of that row holds for the other rows.
"""

from __future__ import annotations

import argparse
import sys

import holdfast.spark as hs

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dump", metavar="DUMP", help="folder of `holdfast dump`, or its URL")
parser.add_argument("tables", metavar="TABLES", help="folder of jobs/history.py for DUMP")
parser.add_argument("out", metavar="OUT.parquet", help="file for the rows")
parser.add_argument(
    "settings", metavar="SETTING", nargs="*", help="policy:assignor or policy:assignor:delay_ms"
)
wanted = parser.parse_args()
tables = hs.open_tables(hs.get_session(), wanted.tables)
replayed = hs.replay(tables, wanted.settings, hs.dump(wanted.dump))
hs.save(replayed, wanted.out)
n_groups = replayed.select("group").distinct().count()
sys.stdout.write(f"{n_groups} groups, {replayed.count()} rows\n")

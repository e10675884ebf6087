"""Follow the offsets topic of a cluster; a new start goes on where the last run ended.

``spark-submit --py-files holdfast.zip --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0
--conf spark.sql.streaming.kafka.useDeprecatedOffsetFetching=true jobs/watch.py HOST:PORT OUT
[SECONDS] [--command-config FILE]``: without SECONDS the job reads the records so far, and ends.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from holdfast.adapters.cluster.cluster import LiveCluster
from holdfast.adapters.cluster.properties import read_properties
from holdfast.pipeline.batches.watch import watch
from holdfast.pipeline.session import get_session

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("bootstrap", metavar="HOST:PORT", help="the cluster; several with commas")
parser.add_argument("out", metavar="OUT", help="folder for the tables; it may have some")
parser.add_argument(
    "every", metavar="SECONDS", nargs="?", type=float, help="a batch every so often, without end"
)
parser.add_argument(
    "--command-config", metavar="FILE", type=Path, help="client properties (security, ...)"
)
wanted = parser.parse_args()
config = read_properties(wanted.command_config) if wanted.command_config else {}
cluster = LiveCluster(bootstrap=wanted.bootstrap, config=config)
session = get_session(kafka=True)
tables = watch(session, cluster, wanted.out, every_seconds=wanted.every)
sys.stdout.write(f"{len(tables.batches())} batches, {tables.rows('rebalances')} rebalances\n")

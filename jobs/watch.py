"""Follow the offsets topic of a cluster; a new start continues where the last run ended.

``spark-submit --py-files holdfast.zip --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0
--conf spark.sql.streaming.kafka.useDeprecatedOffsetFetching=true jobs/watch.py HOST:PORT OUT
[SECONDS] [--command-config FILE]``: without SECONDS the job reads the records so far, and ends.
"""

from __future__ import annotations

import argparse
import sys

import holdfast.spark as hs

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("bootstrap", metavar="HOST:PORT", help="the cluster; several with commas")
parser.add_argument("out", metavar="OUT", help="folder for the tables; it may have some")
parser.add_argument(
    "every", metavar="SECONDS", nargs="?", type=float, help="a batch every so often, without end"
)
parser.add_argument("--command-config", metavar="FILE", help="client properties (security, ...)")
wanted = parser.parse_args()
source = hs.cluster(wanted.bootstrap, command_config=wanted.command_config)
tables = hs.watch(hs.get_session(kafka=True), source, wanted.out, every_seconds=wanted.every)
kept = tables.tables
sys.stdout.write(f"{len(kept.batches())} batches, {kept.rows('rebalances')} rebalances\n")

"""Follow the offsets topic of a cluster; a new start goes on where the last run ended.

``spark-submit --py-files holdfast.whl --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0
--conf spark.sql.streaming.kafka.useDeprecatedOffsetFetching=true jobs/watch.py HOST:PORT OUT
[SECONDS]``: without SECONDS the job reads the records so far, and ends.
"""

from __future__ import annotations

import sys

from holdfast.adapters.cluster.cluster import LiveCluster
from holdfast.pipeline.batches.watch import watch
from holdfast.pipeline.session import get_session

bootstrap, out, *every = sys.argv[1:4]
session = get_session(kafka=True)
tables = watch(
    session,
    LiveCluster(bootstrap=bootstrap),
    out,
    every_seconds=float(every[0]) if every else None,
)
sys.stdout.write(f"{len(tables.batches())} batches, {tables.rows('rebalances')} rebalances\n")

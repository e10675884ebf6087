"""Rebalances in Spark, cell by cell: paste it into a notebook, or run it.

``python docs/examples/rebalances_in_spark.py DUMP OUT``: DUMP is a folder of ``holdfast dump``, OUT
a folder for the tables, which the workers must reach too.
"""

# %% A session: the active one, or a new one with holdfast's defaults
import sys

from pyspark.sql import functions as F

import holdfast.spark as hs

DUMP, OUT = sys.argv[1:3]
spark = hs.get_session()
source = hs.dump(DUMP)

# %% Records as Kafka names them
decoded = hs.decode(hs.records(spark, source))
kinds = decoded.groupBy("name").count().orderBy("name")
kinds.show()

# %% Every rebalance of every group: twelve tables, each with its key
tables = hs.history(spark, source, OUT)
print({name: tables.key(name) for name in tables})
causes = tables["rebalances"].groupBy("group", "cause").count().orderBy("group", "cause")
causes.show()

# %% Who took a partition from whom, and how long it had no owner, at most
same = ["group", "generation", "topic", "partition"]
moved = (
    tables["movements"]
    .where("kind = 'moved'")
    .join(tables["ownership_gaps"].select(*same, "gap_upper_seconds"), same)
    .orderBy(F.desc("gap_upper_seconds"), *same)
)
moved.show()

# %% How far every group is behind
behind = hs.lag(tables).orderBy(F.desc_nulls_last("lag"), "group")
behind.show()

# %% What another assignor would give, and what another policy would have cost
planned = hs.plan(tables, "sticky", source)
planned.select("group", "n_moved", "balance_score", "refused").show()
replayed = hs.replay(tables, ["deferred:cooperative-sticky:30000"], source)
replayed.select("group", "policy", "actual", "moved", "revocations").show()

# %% The same in SQL
tables.register()
worst = spark.sql("select `group`, max(n_moved) as n_moved from rebalances group by `group`")
worst.show()

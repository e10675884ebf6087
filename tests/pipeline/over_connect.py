"""The example, replay and a stream over Spark Connect: run by a test, a process of its own.

``over_connect.py DUMP OUT``. The server is started here and ends with the process. Says on its last
line what a Connect session must not have, and what plan and replay found.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

from tests.pipeline.stream_that_dies import THIRD, DumpFeed, FixedSnapshot

from holdfast.fleet.pipeline import steps
from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.pipeline.batches.watch import Stream, follow
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.pipeline.replay import run as replay
from holdfast.fleet.pipeline.replay.trace_builder import traces
from holdfast.fleet.pipeline.session import RUNTIME_CONF, get_session
from holdfast.fleet.tables.reading import Tables


def lacks(thing, name):
    try:
        getattr(thing, name)
    except Exception:  # whatever it raises
        return True
    return False


dump, out = sys.argv[1:3]
# All that can be done on executors is done there.
steps.HERE_ROWS = -1
conf = {"spark.sql.shuffle.partitions": "3"}
spark = get_session(remote="local[1]", conf=conf)
example = Path(__file__).parents[2] / "docs" / "examples" / "rebalances_in_spark.py"
shown = runpy.run_path(str(example))  # it takes the same arguments
made = run(get_session, dump, out)
topics = {row["topic"]: row["partitions"] for row in Dump.open(dump).topics().to_pylist()}
told = list(traces(made.tables, topics))
replayed = replay.replay(lambda: spark, told, replay.Request())

streamed, snapshot = Tables(Path(f"{out}.stream")), FixedSnapshot(Dump.open(dump))
seen = []
into = Stream(
    tables=streamed,
    snapshot=lambda: snapshot,
    selection=Selection(),
    max_records=THIRD,
    after_batch=lambda _, batch: seen.append(batch),
)
feed = DumpFeed(Dump.open(dump))
follow(feed, into)
said = {
    "session": type(spark).__module__,
    "lacks": [name for name in ("sparkContext", "_jvm", "_jsparkSession") if lacks(spark, name)],
    "frame_lacks_rdd": lacks(spark.range(1), "rdd"),
    "conf": {key: spark.conf.get(key) for key in (*RUNTIME_CONF, *conf)},
    "replay_is_that_of_the_driver": replayed.equals(replay.replay(None, told, replay.Request())),
    "replay": [[row["group"], row["actual"]] for row in replayed.to_pylist()],
    "batches": seen,
    "plan": [[row["group"], row["n_moved"]] for row in shown["planned"].collect()],
    "behind": [row["group"] for row in shown["behind"].collect()],
}
sys.stdout.write(json.dumps(said) + "\n")
spark.stop()

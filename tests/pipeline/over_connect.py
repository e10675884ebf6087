"""History, lag, plan and replay over Spark Connect: run by a test in a process of its own.

``over_connect.py DUMP OUT``. The server is started here and ends with the process. Says on its last
line what a Connect session must not have, and what plan and replay found.
"""

from __future__ import annotations

import json
import sys

from holdfast.pipeline import jobs, plan, replay
from holdfast.pipeline.history import run
from holdfast.pipeline.replay_story import stories
from holdfast.pipeline.session import RUNTIME_CONF, get_session
from holdfast.pipeline.source import Dump


def lacks(thing, name):
    try:
        getattr(thing, name)
    except Exception:  # whatever it raises
        return True
    return False


dump, out = sys.argv[1:3]
jobs.DRIVER_ROWS = plan.DRIVER_GROUPS = replay.DRIVER_EVENTS = (
    0  # all that can be done on executors is done there
)
conf = {"spark.sql.shuffle.partitions": "3"}
spark = get_session(remote="local[1]", quick=True, conf=conf)
run(spark, dump, out)
made = run(get_session(), dump, out)
topics = {row["topic"]: row["partitions"] for row in Dump.open(dump).topics().to_pylist()}
planned = plan.plan(spark, made.tables, topics, "sticky")
told = list(stories(made.tables, topics))
replayed = replay.replay(lambda: spark, told, replay.Request())
said = {
    "session": type(spark).__module__,
    "lacks": [name for name in ("sparkContext", "_jvm", "_jsparkSession") if lacks(spark, name)],
    "frame_lacks_rdd": lacks(spark.range(1), "rdd"),
    "conf": {key: spark.conf.get(key) for key in (*RUNTIME_CONF, *conf)},
    "replay_is_that_of_the_driver": replayed.equals(replay.replay(None, told, replay.Request())),
    "replay": [[row["group"], row["actual"]] for row in replayed.to_pylist()],
    "plan": [[row["group"], row["n_moved"]] for row in planned.to_pylist()],
}
sys.stdout.write(json.dumps(said) + "\n")
spark.stop()

"""Where else it runs: Spark Connect, ``spark-submit``, and a session that somebody else made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from tests.pipeline import local
from tests.pipeline.local import everything
from tests.pipeline.test_kill import lived

from holdfast.fleet.pipeline.session import RUNTIME_CONF, get_session
from holdfast.fleet.tables.reading import Tables
from holdfast.local.java import find_java

pytestmark = pytest.mark.spark

HERE = Path(__file__).parent


def run(command, **environment):
    """What a command of ours says on its last line."""
    env = {**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**env, "PYSPARK_PYTHON": sys.executable, **environment},
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout.splitlines()


@pytest.mark.every
def test_job_files_under_spark_submit(tmp_path):
    dump, out = lived(tmp_path / "dump"), tmp_path / "out"
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        # Little data: code that is generated and compiled twice costs more than it saves.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
    }
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    options = ["--master", "local[1]", "--name", "mine", *conf]
    command = [str(submit), *options, str(HERE / "submitted.py"), str(dump), str(out)]
    said = run(command, PYSPARK_DRIVER_PYTHON=sys.executable)
    # Nothing that was set before is another value now, and there is one session.
    assert json.loads(said[-1]) == {
        "spark.app.name": "mine",
        "spark.master": "local[1]",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    }
    whole = local.run(dump, tmp_path / "whole")
    assert everything(Tables(out)) == everything(whole)
    assert f"{whole.rows('rebalances')} rebalances" in said[0]
    planned = pq.read_table(f"{out}.plan.parquet").to_pylist()
    assert [(row["group"], row["refused"]) for row in planned] == [("new", None), ("old", None)]
    replayed = pq.read_table(f"{out}.replay.parquet").to_pylist()
    assert next(row["policy"] for row in replayed if row["group"] == "old") == "eager"
    assert "2 groups," in said[2] and {row["note"] for row in replayed if row["actual"]}
    earliest = local.run(dump, tmp_path / "earliest", reset="earliest")
    assert everything(Tables(Path(f"{out}.lag"))) == everything(earliest)


@pytest.mark.every
def test_everything_works_over_spark_connect(tmp_path):
    dump, out = lived(tmp_path / "dump"), tmp_path / "out"
    command = [sys.executable, str(HERE / "over_connect.py"), str(dump), str(out)]
    said = json.loads(run(command, SPARK_TESTING="1", PYTHONPATH=str(HERE.parents[1]))[-1])
    assert said["session"].startswith("pyspark.sql.connect")
    assert said["lacks"] == ["sparkContext", "_jvm", "_jsparkSession"] and said["frame_lacks_rdd"]
    assert said["conf"] == {**RUNTIME_CONF, "spark.sql.shuffle.partitions": "3"}
    assert said["replay_is_that_of_the_driver"] and said["replay"]
    assert said["plan"] == [["new", 0], ["old", 0]] and sorted(said["behind"]) == ["new", "old"]
    whole = everything(local.run(dump, tmp_path / "whole"))
    assert everything(Tables(out)) == whole
    streamed = Tables(Path(f"{out}.stream"))
    assert said["batches"] == [0, 1, 2] and streamed.rows("findings")
    followed = everything(streamed)
    # A stream examines up to the moment at which it asked for the ends, a history up to the dump's.
    del followed["findings"], whole["findings"]
    assert followed == whole


def test_a_session_that_is_there_is_taken_as_it_is(spark):
    key = "spark.sql.execution.arrow.maxBytesPerBatch"
    before = spark.conf.get(key)
    spark.conf.set(key, "3m")
    try:
        again = get_session(master="local[7]", conf={"spark.sql.shuffle.partitions": "99"})
        assert again is spark
        assert (again.conf.get(key), again.conf.get("spark.master")) == ("3m", "local[1]")
        assert again.conf.get("spark.sql.shuffle.partitions") == "2"
    finally:
        spark.conf.set(key, before)
    spark.conf.unset(key)
    try:
        assert get_session().conf.get(key) == RUNTIME_CONF[key]
    finally:
        spark.conf.set(key, before)

"""A real cluster: a master, two workers with Pythons of their own, the wheel, and sudden deaths."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.cli.running import run
from tests.cluster import standalone
from tests.cluster.orphans import orphans
from tests.pipeline.test_kill import everything, lived
from tests.stores.conftest import forget, new_bucket
from tests.stores.test_dumps import copied

from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.paths import file_system_of, storage_path

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
JOBS = HERE.parents[1] / "jobs"
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "10ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.minTaskRuntime": "1ms",
}


@pytest.fixture(scope="module")
def dump(tmp_path_factory, storage_env):
    """A dump on the store; workers and driver share no folder that it could be in."""
    here = lived(tmp_path_factory.mktemp("dump") / "d")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in storage_env.items():
            patch.setenv(name, value)
        return str(copied(here, f"{new_bucket(storage_env)}/dump").path)


@pytest.fixture(scope="module")
def expected(cluster, dump, storage_env, tmp_path_factory):
    """What the jobs say on ``local[2]``."""
    out = tmp_path_factory.mktemp("local") / "out"
    done = standalone.submit(
        "local[2]", cluster.wheel, HERE / "all_jobs.py", JOBS, dump, out, conf={}, env=storage_env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return answers(out)


def answers(out):
    """Rows of everything that the jobs wrote, and the doctor's document, byte for byte."""
    tables, lag = (Tables(storage_path(str(name))) for name in (out, f"{out}.lag"))
    found = {"history": everything(tables), "lag": everything(lag)}
    assert found["history"]["findings"]
    doctor = run("doctor", "--input", out, "--format", "json")
    assert doctor.code == 0, doctor.err
    assert '"code": "HF' in doctor.out
    found["doctor"] = doctor.out.replace(str(out), "OUT")
    for name in ("plan", "replay"):
        rows = pq.read_table(file_system_of(f"{out}.{name}.parquet").readable()).to_pylist()
        for row in rows:
            row.pop("seconds", None)
        found[name] = sorted(map(repr, rows))
    return found


def test_all_jobs_on_two_workers(cluster, dump, storage_env, expected, tmp_path):
    done = cluster.submit(HERE / "all_jobs.py", JOBS, dump, tmp_path / "out", env=storage_env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert answers(tmp_path / "out") == expected
    ran = [list((home / "work").glob("app-*/*/stderr")) for home in cluster.environments]
    assert all(ran), "both workers had an executor"


def test_tables_on_remote_storage_while_an_executor_is_killed(
    cluster, dump, storage_env, expected, monkeypatch
):
    """Dump, tables and answers are on the store: driver and workers share no file."""
    for name, value in storage_env.items():
        monkeypatch.setenv(name, value)
    forget()
    out = f"{dump}-tables"
    mark = cluster.wheel.parent / "killed"
    mark.unlink()
    done = cluster.submit(HERE / "all_jobs.py", JOBS, dump, out, env=storage_env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert mark.exists(), "no executor was killed"
    assert answers(out) == expected
    again = cluster.submit(JOBS / "history.py", dump, out, env=storage_env)
    assert again.returncode == 0, again.stderr[-3000:]
    assert orphans(out) == set()
    forget()


def test_an_executor_that_is_killed_in_the_middle(cluster, dump, storage_env, expected, tmp_path):
    mark = cluster.wheel.parent / "killed"
    mark.unlink()
    done = cluster.submit(HERE / "all_jobs.py", JOBS, dump, tmp_path / "out", env=storage_env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert mark.exists(), "no executor was killed"
    assert answers(tmp_path / "out") == expected
    again = cluster.submit(JOBS / "history.py", dump, tmp_path / "out", env=storage_env)
    assert again.returncode == 0, again.stderr[-3000:]
    assert orphans(tmp_path / "out") == set()


def test_a_driver_that_is_killed(cluster, dump, storage_env, expected, tmp_path):
    words = (HERE / "all_jobs.py", JOBS, dump, tmp_path / "out")
    died = cluster.submit(*words, "die", env=storage_env)
    assert died.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), died.stderr[-3000:]
    assert list((tmp_path / "out").glob("generations/batch-*/*.parquet"))  # they count nowhere
    done = cluster.submit(*words, env=storage_env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert answers(tmp_path / "out") == expected
    again = cluster.submit(JOBS / "history.py", dump, tmp_path / "out", env=storage_env)
    assert again.returncode == 0, again.stderr[-3000:]
    assert orphans(tmp_path / "out") == set()


def test_speculation(cluster, dump, storage_env, expected, tmp_path):
    (cluster.wheel.parent / "slow").touch()
    events = tmp_path / "events"
    events.mkdir()
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    log |= {"spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false"}
    done = cluster.submit(
        HERE / "all_jobs.py",
        JOBS,
        dump,
        tmp_path / "out",
        conf={**SPECULATION, **log},
        env=storage_env,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert answers(tmp_path / "out") == expected
    lines = [line for file in events.iterdir() for line in file.read_text().splitlines()]
    starts = [e for e in map(json.loads, lines) if e["Event"] == "SparkListenerTaskStart"]
    assert any(event["Task Info"]["Speculative"] for event in starts)

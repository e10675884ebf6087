"""The commands for a live cluster where no Spark, no pandas and no Java is found, and no jar."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from tests.live.small_group import small_group
from tests.live.waiting import until
from tests.packaging.test_installed import fetched

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "py4j", "pandas"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""
"""A sitecustomize of every process: the packages of the extra ``spark`` are not there."""


@pytest.fixture
def bare(tmp_path):
    """Variables of a machine without Java, on which the extra ``spark`` is not installed."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BLOCKED)
    paths = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    cache = {"HOLDFAST_CACHE": str(tmp_path / "cache"), "PATH": "/nowhere"}
    return own | cache | {"PYTHONPATH": os.pathsep.join(paths)}


def holdfast(*words):
    return [sys.executable, "-m", "holdfast", *map(str, words)]


@pytest.mark.broker
def test_the_commands_for_a_cluster_answer(broker, bare, tmp_path):
    with small_group(broker.bootstrap, "without-spark") as (topic, _):
        at = ("-b", broker.bootstrap, "--group", "without-spark")
        for command, said in (
            (("doctor", *at), "without-spark"),
            (("history", *at, "-o", tmp_path / "tables", "--format", "csv"), "without-spark"),
            (("dump", *at, "-o", tmp_path / "dump"), ""),
            (("lag", "--input", tmp_path / "dump", "--format", "csv"), topic),
            (("watch", *at, "-o", tmp_path / "kept"), ""),
            (("report", *at, "-o", tmp_path / "r.html"), ""),
        ):
            done = subprocess.run(
                holdfast(*command), env=bare, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}: {done.stderr}"
            assert said in done.stdout
        line = holdfast("serve", *at, "--listen", "127.0.0.1:0", "-o", tmp_path / "served")
        with subprocess.Popen(line, env=bare, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            try:
                lines = iter(server.stderr.readline, "")
                url = next(u[0] for text in lines if (u := re.search(r"http://\S+/", text)))
                found: list[str] = []
                until(lambda: found or found.extend(fetched(f"{url}metrics")), "it is read")
            finally:
                server.terminate()
        assert topic in found[0]
    assert not (tmp_path / "cache").exists()


def test_what_needs_spark_names_the_extra(bare, tmp_path):
    program = "import holdfast.spark"
    done = subprocess.run(
        [sys.executable, "-c", program], env=bare, capture_output=True, text=True, check=False
    )
    assert "pip install 'kafka-holdfast[spark]'" in done.stderr

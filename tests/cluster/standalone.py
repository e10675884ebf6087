"""A standalone Spark cluster on loopback: a master and workers, each with a Python of its own.

A worker's environment holds what docs/cluster.md says that workers need, and no holdfast: that
comes as a wheel, with the application. The name ``worker-python`` leads to another environment on
every worker, as one path does on machines of their own.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pyspark
from tests.packaging.building import built, environment

from holdfast.local.java import find_java

SPARK = Path(pyspark.__file__).parent
NEEDED = ("numpy", "pyarrow", "pandas")
"""Packages of a worker; docs/cluster.md says the same."""

PYTHON = "worker-python"

CONF = {
    "spark.ui.enabled": "false",
    "spark.pyspark.python": PYTHON,
    "spark.pyspark.driver.python": sys.executable,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "4",
    "spark.task.maxFailures": "4",
    "spark.network.timeout": "60s",
    "spark.executor.heartbeatInterval": "2s",
}


@dataclass(frozen=True)
class StandaloneCluster:
    """A cluster that is up.

    Parameters
    ----------
    master : str
        Its URL.
    wheel : Path
        The wheel of this tree.
    environments : list of Path
        One a worker.
    """

    master: str
    wheel: Path
    environments: list[Path]

    def submit(
        self, *words: object, conf: Mapping[str, str] | None = None, env: Mapping[str, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        """Run ``spark-submit --py-files WHEEL ...`` to its end."""
        return submit(self.master, self.wheel, *words, conf=conf or {}, env=env)


def submit(
    master: str, wheel: Path, *words: object, conf: Mapping[str, str], env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run ``spark-submit``, whose driver has the packages of this environment, without holdfast."""
    settings = {**CONF, **conf}
    if master.startswith("local"):
        settings["spark.pyspark.python"] = sys.executable
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    command = [str(SPARK / "bin" / "spark-submit"), "--master", master, *options]
    return subprocess.run(
        [*command, "--py-files", str(wheel), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**java_environment(), "PYSPARK_DRIVER_PYTHON": sys.executable, **env},
        cwd=wheel.parent,
    )


@contextmanager
def standalone(folder: Path, env: Mapping[str, str]) -> Iterator[StandaloneCluster]:
    """A master and two workers of one core each, with these variables in their environment."""
    wheel, environments = (
        build_wheel(folder),
        [worker_environment(folder / f"w{n}") for n in (1, 2)],
    )
    with ExitStack() as running:
        log = folder / "master.log"
        arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        running.enter_context(daemon("master.Master", arguments, log, {}))
        master = said(log, r"Starting Spark master at (spark://\S+)")
        for number, home in enumerate(environments):
            host = f"127.0.0.{number + 1}"  # Spark speculates on other hosts only
            path = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "SPARK_LOCAL_IP": host}
            arguments = ["--host", host, "--cores", "1", "--memory", "1g"]
            arguments += ["--webui-port", "0", "--work-dir", str(home / "work"), master]
            own = folder / f"worker-{number}.log"
            running.enter_context(daemon("worker.Worker", arguments, own, {**env, **path}))
            said(own, "Successfully registered with master")
        yield StandaloneCluster(master=master, wheel=wheel, environments=environments)


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree, under a name that Spark hands to its workers' Pythons.

    Of ``--py-files`` Spark puts what ends with .zip, .egg or .jar on a worker's path, and a wheel
    not: the job would run on ``local[*]`` alone.
    """
    return built("wheel", folder).rename(folder / "holdfast.zip")


def worker_environment(home: Path) -> Path:
    """A virtual environment with :data:`NEEDED` alone, in the versions of ours."""
    environment(home, [f"{name}=={version(name)}" for name in NEEDED])
    (home / "bin" / PYTHON).symlink_to("python")
    return home


@contextmanager
def daemon(
    name: str, arguments: list[str], log: Path, env: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon of Spark's, with everything that it starts ended with the block."""
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            env={**java_environment(), **env},
            start_new_session=True,
        )
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def java_environment() -> dict[str, str]:
    """The environment without what would lead a process to this tree."""
    own = {n: v for n, v in os.environ.items() if not n.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    return {**own, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}


def said(log: Path, pattern: str) -> str:
    """Wait until a log says something; the first group of the pattern, or all of it."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found.group(found.re.groups)
        time.sleep(0.1)
    raise AssertionError(
        f"{log} does not say {pattern}:\n{log.read_text(errors='replace')[-3000:]}"
    )

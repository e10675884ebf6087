"""A login through every way in: a member of each client, a Worker, each command with its logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.running import run
from tests.live.clients import CLIENTS
from tests.live.crew import Topic, fresh
from tests.live.every_command import CODES, run_all
from tests.live.security import showing
from tests.live.small_group import small_group
from tests.live.waiting import until

import holdfast
from holdfast.cluster.cluster import LiveCluster
from holdfast.fleet.pipeline.ingest.offsets_topic import kafka_options

_BY_LIBRDKAFKA = ("consumer", "confluent")
LOG4J = """rootLogger.level = debug
rootLogger.appenderRef.file.ref = file
logger.repl.name = org.apache.spark.repl.Main
logger.repl.level = debug
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c{{1}}: %m%n
"""


@dataclass(frozen=True)
class Login:
    """A listener, the configuration that it lets in, and the texts that nothing may show.

    ``plain`` is the address of the same broker without a login.
    """

    plain: str
    at: str
    config: Mapping[str, str]
    secrets: Callable[[], Iterable[str | bytes]]

    def member(self) -> dict[str, Any]:
        """Return the configuration of a member of a new group."""
        return {"bootstrap.servers": self.at, "group.id": fresh("group"), **self.config}

    def shown_in(self, text: str | bytes) -> list[str | bytes]:
        """Return the secrets in a text."""
        return [secret for secret in self.secrets() if _bytes(secret) in _bytes(text)]

    def shown_by(self, what: object) -> set[str]:
        """Return our classes of which an object holds an instance whose text has a secret."""
        texts = [secret for secret in self.secrets() if isinstance(secret, str)]
        return {name for text in texts for name in showing(text, what)}


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def written(folder: Path, config: Mapping[str, object]) -> Path:
    """Write a file of properties."""
    file = folder / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    return file


def member_reads(login: Login, name: str) -> None:
    """Join with a client, read and commit; the client's objects show no secret."""
    topic = Topic(login.plain, 1, 4)
    debug = {"debug": "all"} if name in _BY_LIBRDKAFKA else {}
    client = CLIENTS[name](topic.name, {**login.member(), "enable.auto.commit": False, **debug})
    with closing(client):
        client.subscribe([topic.name])
        until(lambda: client.poll() and len(client.records) == 4, "records", 90)
        client.commit()
        assert client.committed(0) == 4
        assert not login.shown_by(client.consumer)


def worker_works(login: Login) -> None:
    """Join with a Worker until it has three resources."""
    assigned: list[Any] = []
    worker = holdfast.Worker(login.member(), {"shard": 3}, run=lambda one, _: assigned.append(one))
    with worker:
        until(lambda: len(set(assigned)) == 3, "three shards", 90)
        assert not login.shown_by(worker)


def commands_work(login: Login, folder: Path, *, checks: bool = True) -> str:
    """Run quick commands about a small group with one file; return what the check says."""
    file = written(folder, login.config)
    at, group = ("-b", login.at, "--command-config", file), fresh("group")
    with small_group(login.plain, group):
        done = [run(command, *at, "--group", group) for command in ("lag", "doctor")]
        done += [run("config", "check", *at)] if checks else []
    assert [one.code for one in done] == [0] * len(done), [one.err for one in done]
    assert group in done[0].out
    assert not login.shown_in("".join(one.out + one.err for one in done))
    return done[-1].out


def sparks_reader_works(spark: Any, login: Login) -> None:
    """Read the offsets topic as commands do by Spark."""
    cluster = LiveCluster(bootstrap=login.at, config=login.config)
    with small_group(login.plain, fresh("group")):
        options = kafka_options(cluster, [0, 1, 2, 3])
        assert spark.read.format("kafka").options(**options).load().count() > 0


def every_command_works(login: Login, folder: Path, **environment: str) -> tuple[str, str]:
    """Run each command that reads a cluster, with all logs at DEBUG; return Python's and Java's.

    No secret is in a log, in what is printed, in an output file or in a process's command line.
    """
    logs = folder / "python.log", folder / "java.log"
    (folder / "log4j2.properties").write_text(LOG4J.format(log=logs[1]))
    (folder / "spark-defaults.conf").write_text(
        "spark.driver.extraJavaOptions "
        f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}"
        f" {environment.pop('java_options', '')}\n"
        "spark.master local[1]\nspark.sql.codegen.wholeStage false\n"
        "spark.sql.shuffle.partitions 1\n"
    )
    file = written(folder, login.config)
    with small_group(login.plain, fresh("group")):
        codes, ended, lines = run_all(
            login.at, file, folder / "out", logs[0], SPARK_CONF_DIR=str(folder), **environment
        )
    assert codes == CODES, ended.stderr
    assert any("java" in line for line in lines) and any(str(file) in line for line in lines)
    python, java = (log.read_text(errors="replace") for log in logs)
    for text in (python, java, ended.stdout, ended.stderr, *lines):
        assert not login.shown_in(text), [t for t in text.splitlines() if login.shown_in(t)][:3]
    outputs = [file for file in (folder / "out").rglob("*") if file.is_file()]
    assert outputs
    assert not [file for file in outputs if login.shown_in(file.read_bytes())]
    return python, java

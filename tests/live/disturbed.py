"""The stage for one group of stock clients, and what it left on record.

:mod:`tests.live.situations` has the situations.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer
from tests.live.crew import Topic, group_of
from tests.live.disturbed_member import run_members
from tests.live.offsets_log import columns_of
from tests.live.processes import Processes
from tests.live.waiting import PATIENCE_SECONDS, until
from tests.local.programs import program

from holdfast.cluster.cluster import LiveCluster
from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.core.wire.layouts.offsets_records import decode_key
from holdfast.fleet.pipeline.ingest.dump import write_log
from holdfast.local.jars import broker_jars

QUIET = {"log_level": 0}
CONFLUENT, KAFKA_PYTHON, AIOKAFKA, JAVA = "confluent", "kafka-python", "aiokafka", "java"


class Writer:
    """Writes a record to every partition of its topics at an interval, until it is closed."""

    def __init__(self, bootstrap: str, every_s: float = 1.0):
        self._producer = Producer({"bootstrap.servers": bootstrap, **QUIET})
        self._partitions: list[tuple[str, int]] = []
        self._end = threading.Event()
        self._every_s = every_s
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, topic: str, partitions: list[int]) -> None:
        self._partitions += [(topic, p) for p in partitions]

    def _run(self) -> None:
        for n in count():
            if self._end.wait(self._every_s):
                return
            for topic, partition in list(self._partitions):
                with suppress(BufferError):
                    self._producer.produce(topic, b"x", key=str(n % 7), partition=partition)
            self._producer.poll(0)

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        self._producer.flush(30)


_FORKS = multiprocessing.get_context("forkserver")


@cache
def start_forks() -> None:
    """Start the process that imports the clients once; it does not see our ``sys.path``."""
    _FORKS.set_forkserver_preload(["tests.live.disturbed_member"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


class Stage(Processes):
    """One group: its topic, and the processes of its members.

    Python's are forks of a process that has imported the clients, so that a restart is quick on a
    busy machine too.
    """

    def __init__(self, bootstrap: str, group: str, folder: Path, writer: Writer):
        super().__init__(folder)
        start_forks()
        self.bootstrap, self.group, self.writer = bootstrap, group, writer
        self.topic = ""
        self.forks: dict[str, BaseProcess] = {}
        self.looks: Callable[[str], None] = lambda _: None
        """Called where a situation is there in part already, with a name for it."""

    def read(self, partitions: int, each: int = 0, written: list[int] | None = None) -> str:
        """Make the topic of the group, with records in it, which more follow each second."""
        made = Topic(self.bootstrap, partitions, each, name=f"{self.group}-t")
        self.topic = made.name
        self.writer.add(made.name, list(range(partitions)) if written is None else written)
        return made.name

    def member(self, name: str, client: str = CONFLUENT, **how: Any) -> dict[str, Any]:
        """What a process is told of a member; ``conf`` adds settings by the client's own names."""
        interval_ms = how.pop("interval_ms", 300_000)
        session_ms = how.pop("session_ms", min(45_000, max(6_000, interval_ms // 2)))
        own = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "max.poll.interval.ms": interval_ms,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": min(3_000, session_ms // 3),
        }
        own |= {"client.id": name} if name else {}
        conf = own | how.pop("conf", {})
        if client != CONFLUENT:
            conf = {key.replace(".", "_"): value for key, value in conf.items()}
        if client in (KAFKA_PYTHON, AIOKAFKA) and how.get("commits") == "batch":
            conf["enable_auto_commit"] = False
        elif how.get("commits") == "batch":
            conf["enable.auto.commit"] = False
        return {"client": client, "topic": self.topic, "conf": conf, **how}

    def start(self, process: str, *members: dict[str, Any]) -> None:
        """Start a process with these members."""
        out = self.folder / f"{process}.out"
        out.touch()
        told = (members, str(out))
        self.forks[process] = _FORKS.Process(target=run_members, args=told, daemon=True)
        self.forks[process].start()

    def stop(self, name: str) -> int:
        """SIGTERM; its exit code."""
        if name not in self.forks:
            return super().stop(name)
        self.forks[name].terminate()
        return self.gone(name)

    def kill(self, name: str) -> float:
        """SIGKILL; returns when."""
        if name not in self.forks:
            return super().kill(name)
        self.forks[name].kill()
        self.gone(name)
        return time.time()

    def gone(self, name: str) -> int:
        """Wait for an end, and forget the process; its exit code."""
        if name not in self.forks:
            return super().gone(name)
        process = self.forks[name]
        process.join(PATIENCE_SECONDS)
        code = process.exitcode
        assert code is not None, f"{name} does not end: {self.said(name)}"
        del self.forks[name]
        return code

    def pod(self, name: str, client: str = CONFLUENT, **how: Any) -> None:
        """Start a process with one member, both of this name."""
        if client == JAVA:
            self._java(name, **how)
        else:
            self.start(name, self.member(name, client, **how))

    def _java(
        self, name: str, *, interval_ms: int = 300_000, work_s: float = 0.05, **how: Any
    ) -> None:
        session_ms = min(45_000, max(6_000, interval_ms // 2))
        settings = {
            "max.poll.interval.ms": interval_ms,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": min(3_000, session_ms // 3),
            "max.poll.records": how.get("batch", 50),
            "enable.auto.commit": "false" if how.get("commits") == "batch" else "true",
        }
        given = [f"{key}={value}" for key, value in settings.items()]
        classes = os.pathsep.join(map(str, broker_jars()))
        what = (self.bootstrap, self.topic, self.group, name, str(round(work_s * 1000)))
        self.launch(name, program("LiveSlow", classes, *what, *given))

    def wait(self, seconds: float) -> None:
        """Let time pass, as people, their tools, Kafka or the members' work take it."""
        time.sleep(seconds)

    def reads(self, name: str) -> None:
        """Wait until the member of a process has read its first records."""
        until(lambda: "reads" in self.said(name), lambda: f"{name} reads: {self.said(name)}")

    def settles(self, members: int) -> None:
        """Wait until the group has so many members, and no rebalance is under way."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._stable() != members:
            assert time.monotonic() < deadline, f"{self.group} has not {members} members"
            time.sleep(0.5)

    def _stable(self) -> int:
        try:
            found = group_of(self.bootstrap, self.group)
        except (KafkaException, TimeoutError):  # its coordinator is not ready yet, or slow
            return -1
        return len(found.members) if found.state.name == "STABLE" else -1

    def close(self) -> None:
        """Have all processes end in order."""
        for process in (*self.running.values(), *self.forks.values()):
            process.terminate()
        for name in (*self.running, *self.forks):
            self.gone(name)

    def __exit__(self, *_: object) -> None:
        for name in list(self.forks):
            self.kill(name)
        super().__exit__()


@dataclass(frozen=True, kw_only=True)
class Left:
    """What is on record of a group at one moment, and where its topic ends."""

    columns: dict[str, list[Any]]
    taken: ClusterSnapshot

    def dump(self, folder: Path) -> Path:
        """Write it as a dump."""
        write_log(folder, self.columns, self.taken)
        return folder


def left_by(bootstrap: str, *groups: str) -> Left:
    """Read the records of groups, or of all, and the topics that situations made for them."""
    columns = columns_of(bootstrap)
    if groups:
        chosen = [at for at, key in enumerate(columns["key"]) if _group_of(key) in groups]
        columns = {name: [values[at] for at in chosen] for name, values in columns.items()}
    return Left(columns=columns, taken=LiveCluster(bootstrap=bootstrap).snapshot())


def alone(left: Left, group: str) -> Left:
    """Leave out every topic but the one that a situation made for its group."""
    topics = tuple(row for row in left.taken.topics if row[1] == f"{group}-t")
    offsets = tuple(row for row in left.taken.offsets if row[0] == f"{group}-t")
    return replace(left, taken=replace(left.taken, topics=topics, offsets=offsets))


def _group_of(key: bytes) -> str:
    fields = decode_key(key).key
    return str(fields.get("group", fields.get("groupId")))

"""Kubernetes's part in a rollout, played with processes on a real broker, as JSON lines.

``python bench/rollout.py [SCENARIO...]``. Three pods share 12 partitions, and a producer writes all
the time. A pod is a process with the loop of the README and ``holdfast.ready.file``. To end one is
SIGTERM, the grace period, and SIGKILL for one that still runs. A new pod's process starts 3 s
late, as if it were scheduled and its container made. Sessions last 10 s, heartbeats come
every second, Design II's delay is 20 s, the grace period is 15 s.

``surge-POLICY``: a Deployment with ``maxSurge: 1`` and ``maxUnavailable: 0``. The next new pod
starts as soon as the last one is ready and the end of an old one has begun. ``swap-POLICY``: a
Deployment with ``maxSurge: 0`` and ``maxUnavailable: 1``. ``static-POLICY``: a StatefulSet, whose
pods keep their names, and have them as ``group.instance.id``. ``hang-POLICY``: one pod of a
Deployment hangs and is deleted. Under Design II the three old pods have been there for longer than
the delay before. All eight take about five minutes.

*changes*: changes of owner, over all partitions; a Deployment of new pods needs 12, a StatefulSet
none. *unowned*: over all partitions, the sum of the seconds without an owner. *standstill*: the
longest time between two records of one partition.

*lost* and *twice*: records that nobody read, and
that two pods read. *killed*: pods that got SIGKILL.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.cli.demo.event_log import (
    EventLogReader,
    EventLogWriter,
    holdings,
    intervals,
    unowned_seconds,
)
from holdfast.local.broker import Broker

PARTITIONS, REPLICAS = 12, 3
GRACE_SECONDS, FRESH_SECONDS, QUIET_SECONDS, LIMIT_SECONDS = 15.0, 60.0, 3.0, 180.0
OLD_SECONDS, START_SECONDS = 25.0, 3.0
TIMES = {
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1_000,
    "scheduled.rebalance.max.delay.ms": 20_000,
}
POD = Path(__file__).with_name("rollout_pod.py")


class Play:
    """The pods of one scenario, and what their kubelet does with them."""

    def __init__(self, bootstrap: str, policy: str, folder: Path, *, static: bool):
        self.bootstrap, self.policy, self.folder, self.static = bootstrap, policy, folder, static
        self.topic = f"rollout-{uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result()
        self.pods: dict[str, subprocess.Popen[bytes]] = {}
        self.event_log = EventLogReader(folder)
        self.killed: list[str] = []
        self._ending = ThreadPoolExecutor(8)

    def start(self, name: str) -> str:
        """Start a pod; its container's file system is new."""
        ready = self.folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.topic,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "holdfast.policy": self.policy,
            "holdfast.ready.file": str(ready),
            **TIMES,
            **({"group.instance.id": name} if self.static else {}),
        }
        given = {"name": name, "folder": str(self.folder), "topic": self.topic, "config": config}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.pods[name] = subprocess.Popen(
                [sys.executable, str(POD), json.dumps(given)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        return name

    def replace(self, name: str) -> str:
        """Start a pod as a controller does: it is scheduled and its container made meanwhile."""
        time.sleep(START_SECONDS)
        return self.start(name)

    def await_ready(self, name: str) -> None:
        """Wait until the probe of a pod says yes."""
        path = self.folder / f"{name}.ready"

        def probe() -> bool:
            with suppress(FileNotFoundError):
                return time.time() - path.stat().st_mtime < FRESH_SECONDS
            return False

        self.until(probe, f"{name} is ready")

    def end(self, name: str) -> Future[None]:
        """Begin to end a pod: SIGTERM, the grace period, SIGKILL."""
        pod = self.pods.pop(name)
        pod.terminate()
        return self._ending.submit(self._await_end, name, pod)

    def _await_end(self, name: str, pod: subprocess.Popen[bytes]) -> None:
        try:
            pod.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.killed.append(name)
        _kill(pod)
        with (self.folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            EventLogWriter(name, file).write("end")

    def await_settled(self) -> None:
        """Wait until the running pods own everything and are even."""

        def settled() -> bool:
            held = holdings(self.event_log.read())
            loads = [len(held.get(name, ())) for name in self.pods]
            return sum(loads) == PARTITIONS and max(loads) - min(loads) <= 1

        self.until(settled, "the group is settled")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, and say for what if it never comes."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition():
            for name, pod in self.pods.items():
                log = self.folder / f"{name}.log"
                assert pod.poll() is None, f"{name} ended: {log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"{self.policy}: {what}: never"
            time.sleep(0.05)

    def close(self) -> None:
        """Kill what still runs."""
        for pod in self.pods.values():
            _kill(pod)
        self._ending.shutdown()


def _kill(pod: subprocess.Popen[bytes]) -> None:
    """SIGKILL, if it still runs; and close the pipe to it."""
    pod.kill()
    pod.wait()
    assert pod.stdin is not None
    pod.stdin.close()


class Writing:
    """A producer that writes one record to every partition, again and again."""

    def __init__(self, bootstrap: str, topic: str):
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        self._topic, self.n_each = topic, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, b"x", partition=partition)
            self._producer.flush(30)
            self.n_each += 1

    def stop(self) -> None:
        """Write no more."""
        self._stop.set()
        self._thread.join()


def surge(play: Play, old: list[str]) -> None:
    """A Deployment with one pod more for a while."""
    ending = []
    for name in old:
        play.await_ready(play.replace(f"{name}-new"))
        ending.append(play.end(name))
    for done in ending:
        done.result()


def swap(play: Play, old: list[str]) -> None:
    """A Deployment with one pod less for a while."""
    for name in old:
        play.end(name).result()
        play.await_ready(play.replace(f"{name}-new"))


def static(play: Play, old: list[str]) -> None:
    """A StatefulSet, from the last pod to the first."""
    for name in reversed(old):
        play.end(name).result()
        play.await_ready(play.replace(name))


def hang(play: Play, old: list[str]) -> None:
    """One pod hangs and is deleted; its Deployment starts another at once."""
    (play.folder / f"{old[0]}.hang").touch()
    play.until((play.folder / f"{old[0]}.hangs").exists, "the pod hangs")
    ending = play.end(old[0])
    play.await_ready(play.replace(f"{old[0]}-new"))
    ending.result()


SCENARIOS = {
    f"{play.__name__}-{policy}": (play, policy)
    for play, policies in {
        surge: ("simple", "deferred"),
        swap: ("simple", "deferred"),
        static: ("simple", "deferred"),
        hang: ("simple", "deferred"),
    }.items()
    for policy in policies
}


def run(bootstrap: str, scenario: str) -> dict[str, object]:
    """Play a scenario and measure it."""
    action, policy = SCENARIOS[scenario]
    with tempfile.TemporaryDirectory() as folder:
        play = Play(bootstrap, policy, Path(folder), static=action is static)
        try:
            old = [play.start(f"pod-{number}") for number in range(REPLICAS)]
            for name in old:
                play.await_ready(name)
            play.await_settled()
            if policy == "deferred":
                time.sleep(OLD_SECONDS - QUIET_SECONDS)
            writing = Writing(bootstrap, play.topic)
            time.sleep(QUIET_SECONDS)
            begun = time.time()
            action(play, old)
            rolled = time.time()
            play.await_settled()
            time.sleep(QUIET_SECONDS)
            over = time.time()
            writing.stop()
            play.until(lambda: not _unread(play, writing.n_each), "every record is read")
            found = _measured(play, begun, over, writing.n_each)
        finally:
            play.close()
    return {"scenario": scenario, "seconds": round(rolled - begun, 1), **found}


def _read(play: Play) -> Counter[tuple[int, int]]:
    return Counter(
        (entry.partitions[0], entry.first)
        for entry in play.event_log.read()
        if entry.event == "batch"
    )


def _unread(play: Play, n_each: int) -> int:
    return n_each * PARTITIONS - len(_read(play))


def _measured(play: Play, begun: float, over: float, n_each: int) -> dict[str, object]:
    entries = play.event_log.read()
    owned = [i for i in intervals(entries, over) if i.stop > begun]
    changes = sum(
        before.member != after.member
        for before, after in pairwise(owned)
        if before.partition == after.partition
    )
    gaps = [0.0]
    for partition in range(PARTITIONS):
        times = [e.time_seconds for e in entries if e.event == "batch" if partition in e.partitions]
        times = [t for t in times if begun - 1 <= t <= over]
        gaps += [after - before for before, after in pairwise(times)]
    return {
        "changes": changes,
        "unowned": round(sum(unowned_seconds(owned, PARTITIONS, begun, over)), 1),
        "standstill": round(max(gaps), 1),
        "lost": _unread(play, n_each),
        "twice": sum(n - 1 for n in _read(play).values()),
        "killed": len(play.killed),
    }


def main() -> int:
    """Play the chosen scenarios on a broker of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", default=list(SCENARIOS))
    chosen = parser.parse_args().scenarios
    with Broker.start() as broker:
        for scenario in chosen:
            print(json.dumps(run(broker.bootstrap, scenario)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

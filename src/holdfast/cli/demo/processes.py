"""The demo's processes: groups whose members are bounced one by one, and a producer for them all.

A process runs ``python -m holdfast.cli.demo.processes member BOOTSTRAP TOPIC GROUP POLICY
EVENT_LOG`` or ``... producer BOOTSTRAP TOPIC PARTITIONS RATE``. A member is a program of
kafka-python with one import changed, and has the name of its event log.

**Rules.** Every wait has a condition and a time limit. A condition that is not met in time, or a
process that fails, raises an error with the process's last output. No process is left running: it
ends in order on SIGTERM, or when the process that started it has ended. That one holds the other
end of standard input and never writes to it, so end of file means its end. The broker has then
probably ended as well, and a client might wait for it for ever: the process has
:data:`LAST_SECONDS` left. It ignores Ctrl-C, which the parent handles.

**Strategy.** The groups read one topic, and each step is started in all of them before waiting:
two bounces take the time of one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from kafka import ConsumerRebalanceListener, KafkaProducer, TopicPartition

from holdfast.cli.demo.event_log import EventLogReader, EventLogWriter, count_records, holdings
from holdfast.cluster.signal_safe import Flag
from holdfast.errors import ProcessError
from holdfast.fleet.tables.storage.file_system import open_private

PATIENCE_SECONDS = 120.0
_GRACE_SECONDS = 60.0
HEARTBEAT_MS = 300
SESSION_MS = 10_000
POLL_MS = 100
DELAY_MS = 15 * 60_000
"""Of ``deferred``, above every time for which the demo leaves a member away."""
TICK_SECONDS = 0.05
LAST_SECONDS = 15.0


class Child:
    """One process of the demo; what it writes to stderr goes to a file.

    ``program`` is :func:`member` or :func:`producer`; messages call the process by ``name``.
    """

    def __init__(self, folder: Path, program: str, name: str, *arguments: str):
        self._name = name
        self._stderr = folder / f"{name}.stderr"
        with self._stderr.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                [sys.executable, "-m", "holdfast.cli.demo.processes", program, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def terminate(self) -> None:
        """Send the process SIGTERM."""
        self._process.terminate()

    def wait(self) -> None:
        """Wait for the end of the process."""
        try:
            code = self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ProcessError(f"{self._name} did not end within {_GRACE_SECONDS:.0f} s") from error
        self._close()
        if code != 0:
            raise ProcessError(f"{self._name} failed: {self._last_words()}")

    def check(self) -> None:
        """Raise a ProcessError if the process has ended by itself."""
        if self._process.poll() is not None:
            raise ProcessError(f"{self._name} ended by itself: {self._last_words()}")

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _last_words(self) -> str:
        with suppress(OSError):
            lines = self._stderr.read_text(encoding="utf-8").splitlines()
            if lines:
                return lines[-1].strip()
        return "it printed nothing"


class MemberProcesses:
    """Members of one consumer group, each a process with an event log in a folder.

    All have the same policy, after which the group is named.
    """

    def __init__(self, bootstrap: str, topic: str, policy: str, n_partitions: int, folder: Path):
        self.policy = policy
        self.name = f"holdfast-demo-{policy}"
        self.event_log = EventLogReader(folder)
        self.running: dict[int, Child] = {}
        self._arguments = (bootstrap, topic, self.name, policy)
        self._n_partitions = n_partitions
        self.folder = folder
        self._runs: dict[int, int] = {}

    def start(self, slot: int) -> None:
        """Start member ``slot`` (0, 1, ...) as a new process."""
        run = self._runs.get(slot, 0)
        self._runs[slot] = run + 1
        name = f"m{slot}.{run}"
        event_log = self.folder / f"{name}.jsonl"
        self.running[slot] = Child(self.folder, "member", name, *self._arguments, str(event_log))

    def is_balanced(self) -> bool:
        """Return whether the members own all partitions, loads within one of each other."""
        held = holdings(self.event_log.read())
        loads = sorted(len(partitions) for partitions in held.values())
        owned = set().union(*held.values()) if held else set()
        return (
            len(loads) == len(self.running)
            and sum(loads) == len(owned) == self._n_partitions
            and loads[-1] - loads[0] <= 1
        )


class Bounced:
    """The groups of a demo and their producer; every method acts on each of the groups."""

    def __init__(self, groups: Sequence[MemberProcesses], folder: Path):
        self.groups = groups
        self._folder = folder
        self._producer: Child | None = None

    def start(self, slot: int) -> None:
        """Start the member of a slot."""
        for group in self.groups:
            group.start(slot)

    def stop(self, *slots: int) -> None:
        """Stop the members of these slots with SIGTERM and wait for their end."""
        children = [group.running.pop(slot) for group in self.groups for slot in slots]
        for child in children:
            child.terminate()
        for child in children:
            child.wait()

    def start_producer(self, *arguments: str) -> None:
        """Start to produce; see :func:`holdfast.cli.demo.processes.producer`."""
        self._producer = Child(self._folder, "producer", "producer", *arguments)

    def stop_producer(self) -> None:
        """Stop producing; every record is acknowledged."""
        producer, self._producer = self._producer, None
        if producer is None:
            raise ProcessError("the producer is not running")
        producer.terminate()
        producer.wait()

    def await_balance(self, policy: str | None = None) -> None:
        """Wait until each group is balanced; with a policy, until the group of that policy is."""
        groups = [group for group in self.groups if policy in (None, group.policy)]
        self._wait(
            lambda: all(group.is_balanced() for group in groups),
            " and ".join(
                f"{len(g.running)} members of {g.name} own all partitions evenly" for g in groups
            ),
        )

    def await_read(self, end: Mapping[int, int]) -> None:
        """Wait until each group has read every record before the end offsets ``end``."""
        self._wait(
            lambda: not any(count_records(g.event_log.read(), end).unread for g in self.groups),
            f"each group reads all of {sum(end.values())} records",
        )

    def work(self, seconds: float) -> None:
        """Let the groups work for a while."""
        deadline = time.monotonic() + seconds
        self._wait(lambda: time.monotonic() >= deadline, "the groups work")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children():
            child.kill()

    def _children(self) -> list[Child]:
        members = [child for group in self.groups for child in group.running.values()]
        return members if self._producer is None else [*members, self._producer]

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            for child in self._children():
                child.check()
            if time.monotonic() > deadline:
                raise ProcessError(f"not within {PATIENCE_SECONDS:.0f} s: {what}")
            time.sleep(0.05)


def watch() -> Flag:
    """Return a flag that is set when this process should end in order."""
    stop = Flag()  # an Event may be locked by the code that its signal interrupts
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def await_parent() -> None:
        sys.stdin.read()
        stop.set()
        time.sleep(LAST_SECONDS)
        os._exit(1)

    threading.Thread(target=await_parent, name="lifeline", daemon=True).start()
    return stop


class _EventRecorder(ConsumerRebalanceListener):  # type: ignore[misc] # the client has no types
    """Writes what the member owns to its event log."""

    def __init__(self, event_log: EventLogWriter):
        self._event_log = event_log

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._event_log.write("assigned", (tp.partition for tp in assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._event_log.write("revoked", (tp.partition for tp in revoked))

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._event_log.write("lost", (tp.partition for tp in lost))


def member(bootstrap: str, topic: str, group: str, policy: str, event_log: str) -> None:
    """Consume until SIGTERM, then leave the group."""
    from holdfast.kafka import KafkaConsumer  # the demo itself runs no member

    stop = watch()
    name = Path(event_log).stem
    with open_private(Path(event_log), "a") as file:
        recorder = EventLogWriter(name, file)
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=name.partition(".")[0],
            auto_offset_reset="earliest",
            auto_commit_interval_ms=1_000,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            holdfast_policy=policy,
            scheduled_rebalance_max_delay_ms=DELAY_MS,
        )
        consumer.subscribe([topic], listener=_EventRecorder(recorder))
        while not stop.is_set():
            for tp, records in consumer.poll(timeout_ms=POLL_MS).items():
                offsets = [record.offset for record in records]
                recorder.write("batch", [tp.partition], first=offsets[0], last=offsets[-1])
        consumer.close()
        recorder.write("end")


def producer(bootstrap: str, topic: str, partitions: str, rate: str) -> None:
    """Produce a steady stream to every partition until SIGTERM, and await every acknowledgement.

    ``rate`` is in records per second over all partitions.
    """
    stop = watch()
    n_partitions, per_second = int(partitions), float(rate)
    client: Any = KafkaProducer(bootstrap_servers=bootstrap, client_id="demo-producer")
    sent: list[Any] = []
    began = time.monotonic()
    while not stop.wait(TICK_SECONDS):
        due = int((time.monotonic() - began) * per_second)
        # A machine that was suspended does not catch up with a flood.
        due = min(due, len(sent) + int(per_second))
        for number in range(len(sent), due):
            value = json.dumps({"n": number, "made_at": time.time()}).encode()
            sent.append(client.send(topic, value, partition=number % n_partitions))
    client.flush()
    for acknowledged in sent:
        acknowledged.get(30)
    client.close()


if __name__ == "__main__":
    run = member if sys.argv[1] == "member" else producer
    run(*sys.argv[2:])

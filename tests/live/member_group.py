"""A group of processes in the chaos suite: members, their producer, and the faults."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import OffsetSpec
from tests.live.crew import Topic, admin_of
from tests.live.cut import Cut
from tests.live.offsets_log import Generation, read_group
from tests.live.ownership_log import OwnershipLog
from tests.live.processes import Processes
from tests.live.run_broker import RunBroker
from tests.live.waiting import until

from holdfast.local.broker import Broker

ROOT = Path(__file__).parents[2]
CUT = "CUT"  # the listener behind the proxy
POLL_SESSIONS = 4
"""max.poll.interval.ms in sessions: a hand-over may wait for three callbacks of 1.2 sessions."""


class Producing:
    """Writes to every partition, all the time, until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str, n_partitions: int, every_s: float, log: Path):
        self._topic = topic
        self._every_s = every_s
        self._log = logging.Logger("producer")
        self._log.addHandler(logging.FileHandler(log))
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "debug": "eos"},
            logger=self._log,
        )
        self.written = [0] * n_partitions
        self.write_times: list[list[float]] = [[] for _ in range(n_partitions)]
        self.errors: list[str] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        n = 0
        while not self._end.wait(self._every_s):
            n += 1
            for partition in range(len(self.written)):
                self._produce(b"%d" % n, partition)
            # confluent-kafka 2.16.1 was once seen to raise this where no callback had failed. A
            # delivery that did fail is in `errors`, one that is missing keeps `flush` from 0.
            with suppress(SystemError):
                self._producer.poll(0)

    def _produce(self, value: bytes, partition: int) -> None:
        """Write one record; while no broker takes any, wait for room in the queue."""
        while not self._end.is_set():
            try:
                self._producer.produce(
                    self._topic, value, partition=partition, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(self._every_s)
            else:
                return

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.written[message.partition()] = message.offset() + 1
            self.write_times[message.partition()].append(time.time())

    def end(self) -> None:
        self._end.set()
        self._thread.join(30)

    def close(self) -> None:
        """End; what librdkafka says from now on is not written down."""
        self.end()
        self._log.disabled = True
        self._log.handlers[0].close()

    def stop(self) -> list[int]:
        """End, and wait for every delivery; returns the records of each partition."""
        self.end()
        left = self._producer.flush(60)
        assert left == 0, f"{left} records are not delivered; see producer.log"
        assert self.errors == [], self.errors[:5]
        return self.written


class MemberGroup(Processes):
    """Members of one group, by slot: a slot's process may be another one from time to time.

    The last two slots are static members; the three before them reach the broker through a proxy.
    ``client`` is a name of :data:`tests.live.clients.CLIENTS`, or some with a ``+`` between
    them, which the slots take in turns.
    """

    def __init__(
        self,
        broker: Broker | RunBroker,
        cut: Cut,
        folder: Path,
        *,
        design: str,
        client: str = "consumer",
        n_members: int,
        n_partitions: int,
        session_ms: int = 6_000,
        delay_ms: int = 10_000,
        every_s: float = 0.05,
    ):
        super().__init__(folder)
        self.broker, self.cut = broker, cut
        self.n_members, self.n_partitions = n_members, n_partitions
        n_copies = broker.settings.brokers
        self.topic = Topic(broker.bootstrap, n_partitions, n_copies=n_copies).name
        self.group = f"g-{self.topic}"
        self._design = {
            "holdfast.policy": design,
            "scheduled.rebalance.max.delay.ms": delay_ms,
            "holdfast.incremental.batch": 8,
            "holdfast.incremental.interval.ms": 500,
            "session.timeout.ms": session_ms,
            "max.poll.interval.ms": POLL_SESSIONS * session_ms,
        }
        self._clients = client.split("+")
        self.session_s = session_ms / 1000
        self.callback_s = 0.0  # of the next processes
        self.static = range(n_members - 2, n_members)
        self.behind = range(max(0, n_members - 5), n_members - 2)
        self.ownership_log = OwnershipLog(folder, n_partitions)
        self.names: dict[int, str] = {}
        self.allowed_overlaps: set[tuple[str, str]] = set()
        self._static_ids: dict[str, str] = {}
        self._n_started = 0
        self.producing = Producing(
            broker.bootstrap, self.topic, n_partitions, every_s, folder / "producer.log"
        )

    # Members

    def start(self, slot: int) -> str:
        """Start a process for a slot; an older one of the slot is forgotten, not ended."""
        self._n_started += 1
        name = f"m{slot}.{self._n_started}"
        listener = CUT if slot in self.behind else "PLAINTEXT"
        config = {
            "bootstrap.servers": self.broker.bootstrap_of(listener),
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 500,
            "auto.commit.interval.ms": 500,
            "request.timeout.ms": 10_000,
            "metadata.max.age.ms": 300_000,
            **self._design,
        }
        if listener == CUT and self.broker.settings.brokers == 1:
            config["bootstrap.servers"] = f"127.0.0.1:{self.cut.port}"
        if slot in self.static:
            config["group.instance.id"] = self._static_ids[name] = f"static-{slot}"
        spec = {
            "name": name,
            "topic": self.topic,
            "event_log": str(self.folder / f"{name}.jsonl"),
            "config": config,
            "work_s": 0.02,
            "client": self._clients[slot % len(self._clients)],
            "callback_s": self.callback_s,
        }
        self.launch(name, [sys.executable, "-m", "tests.live.chaos_member", json.dumps(spec)], ROOT)
        self.names[slot] = name
        return name

    def crash(self, *slots: int) -> None:
        """SIGKILL."""
        for slot in slots:
            self.running[self.names[slot]].kill()
        now = time.time()
        for slot in slots:
            name = self.names.pop(slot)
            self.gone(name)
            self.ownership_log.read().note(name, now, "end")
            self.ownership_log.held.pop(name, None)

    def terminate(self, slot: int) -> None:
        """SIGTERM; it ends in order."""
        name = self.names.pop(slot)
        code = self.stop(name)
        assert code == 0, f"{name} ended with {code}: {self.said(name)}"

    def send(self, slot: int, number: signal.Signals) -> None:
        self.running[self.names[slot]].send_signal(number)

    def leader(self) -> int:
        """The slot that led the last round."""
        log = read_group(self.broker.bootstrap, self.group, self.topic)
        last = [entry for entry in log if isinstance(entry, Generation) and entry.owned][-1]
        # A static member that is back leads on under the name of the process before it.
        return int(last.leader.removeprefix("m").partition(".")[0])

    # States

    def settled(self, marks: list[int], names: set[str]) -> bool:
        """These members hold everything, each partition once, evenly, and have read to here."""
        ownership_log = self.ownership_log.read()
        loads = [len(ownership_log.held[name]) for name in names]
        if max(loads) - min(loads) > 1 or sum(loads) != self.n_partitions:
            return False
        if len(set().union(*(ownership_log.held[name] for name in names))) != self.n_partitions:
            return False
        return all(ownership_log.prefix(p) >= mark for p, mark in enumerate(marks))

    def await_settled(self, *, without: set[int] | range = frozenset()) -> None:
        """Wait until the group has settled, and has read what was written by now."""
        marks = list(self.producing.written)
        names = {name for slot, name in self.names.items() if slot not in without}

        def check() -> bool:
            self.check_alive(names)
            return self.settled(marks, names)

        until(check, lambda: f"a settled group; {self.picture(marks, names)}")

    def picture(self, marks: list[int], names: set[str]) -> str:
        """Who holds how much, and where records are missing."""
        held = {name: len(self.ownership_log.held[name]) for name in sorted(names)}
        unread = {
            p: (holes[:5], mark)
            for p, mark in enumerate(marks)
            if (holes := self.ownership_log.holes(p, mark))
        }
        few = dict(list(unread.items())[:5])
        lines = [f"held {held}, unread (from, to; written) in {len(unread)} partitions: {few}"]
        lines.append(f"the broker's ends: {self._ends()}")
        self._ask(names)
        for name in sorted(names):
            lines.append(f"{name}: {self.ownership_log.states.get(name, 'no answer')}")
            lines.append(f"{name} said {self.said(name)}")
        (self.folder / "in-vain.txt").write_text("\n".join(lines))
        return "\n".join(lines)

    def _ends(self) -> dict[int, int]:
        """End of each partition, as the broker knows it."""
        asked = {
            confluent_kafka.TopicPartition(self.topic, p): OffsetSpec.latest()
            for p in range(self.n_partitions)
        }
        found = admin_of(self.broker.bootstrap).list_offsets(asked)
        return {tp.partition: future.result(60).offset for tp, future in found.items()}

    def _ask(self, names: set[str]) -> None:
        """Have members write their state; one that does not answer writes its threads' stacks."""
        for name in names:
            self.ownership_log.states.pop(name, None)
            self.running[name].send_signal(signal.SIGHUP)
        with suppress(AssertionError):
            until(lambda: names <= set(self.ownership_log.read().states), "answers", seconds=30)
        for name in names - set(self.ownership_log.states):
            self.running[name].send_signal(signal.SIGQUIT)

    # The end

    def finish(self) -> tuple[list[int], list[str]]:
        """Stop in order; returns the records produced and everything that was wrong."""
        produced = self.producing.stop()
        until(
            lambda: self.settled(produced, set(self.names.values())),
            lambda: f"everything read; {self.picture(produced, set(self.names.values()))}",
        )
        for name in self.names.values():
            self.running[name].terminate()
        wrong = [
            f"{name} ended with {code}: {self.said(name)}"
            for name in self.names.values()
            if (code := self.gone(name)) != 0
        ]
        ownership_log = self.ownership_log.read()
        ownership_log.close()
        log = read_group(self.broker.bootstrap, self.group, self.topic)
        wrong += ownership_log.unread(produced)
        wrong += ownership_log.read_too_often()
        wrong += ownership_log.handed_out_late()
        wrong += ownership_log.two_owners(self.allowed_overlaps)
        wrong += ownership_log.wrong_commits(log, produced, self._static_ids)
        return produced, wrong

    def __exit__(self, *failure: object) -> None:
        self.producing.close()
        super().__exit__(*failure)

"""Many members in one process, each in a group of its own, stopped with a batch in flight.

Arguments: BOOTSTRAP TOPIC EVENT_LOG CASES, the last one JSON: a list of :class:`Case`. When the
process continues (SIGCONT), each application waits as long as its case says and then commits its
batch, whatever its member has done meanwhile. After that it continues as applications do, and
closes on SIGTERM. A line of the event log is ``[case, event, ...]``:

==========================  ====================================================================
``held``                    the application holds its batch, or is in ``on_revoked``
``acted, word, code``       the first act after SIGCONT: the answer, and the error's code
``read, [[p, offset]...]``  records delivered after that, and committed
``ended, word, code``       how the close ended
``broken, text``            anything else
==========================  ====================================================================
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import Any

from holdfast import Consumer, Worker
from holdfast.cli.demo.lifeline import watch
from holdfast.cluster.signal_safe import Flag
from holdfast.errors import RemoteProtocolError

N_HELD = 10  # records of a partition when the process is stopped
LOST_TEXT = "had been lost since"


@dataclass(frozen=True)
class Case:
    """One member that is stopped.

    ``act`` is ``commit`` (what was handed out), ``explicit`` (offsets), ``after-poll`` (a poll, and
    then a commit), ``poll`` (the loop commits) or ``close``; of a worker ``work`` or ``save`` (it
    is stopped in ``on_revoked``). ``other`` says whether another member takes over: ``stays``,
    ``leaves`` (before SIGCONT) or ``none``.
    """

    name: str
    kind: str
    wait_s: float
    act: str
    policy: str
    static: bool
    told: bool  # whether the listener has on_partitions_lost
    other: str


class EventLog(logging.Handler):
    """Appends lines; also hears which member logged that records were lost."""

    def __init__(self, path: str):
        super().__init__(logging.ERROR)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.lost: set[str] = set()

    def write(self, *line: object) -> None:
        os.write(self._file, (json.dumps(line) + "\n").encode())

    def emit(self, record: logging.LogRecord) -> None:
        if LOST_TEXT in record.getMessage():
            self.lost.add(record.group)


class NotifiedListener:
    """A listener that hears of a loss."""

    def __init__(self) -> None:
        self.lost = False

    def on_partitions_lost(self, partitions: Any) -> None:
        self.lost = True


class SilentListener:
    """One that does not."""

    lost = True  # it will never be

    def on_partitions_assigned(self, partitions: Any) -> None:
        """Nothing."""


class Application:
    """One case of a consumer, in a thread."""

    def __init__(self, case: Case, spec: Spec):
        self.case, self.spec = case, spec
        self.listener: Any = NotifiedListener() if case.told else SilentListener()
        config = {**spec.config(case), "enable.auto.commit": case.act == "poll"}
        self.consumer = Consumer(config)

    def run(self) -> None:
        case, write = self.case, self.spec.event_log.write
        self.consumer.subscribe([self.spec.topic], self.listener)
        held = 0
        while held < 2 * N_HELD:
            held += len(self.consumer.poll(0.1))
        write(case.name, "held")
        self.spec.awake.wait()
        time.sleep(case.wait_s)
        write(case.name, "acted", *attempt(self.act))
        if case.act != "close":
            self.go_on()
            write(case.name, "ended", *attempt(self.consumer.close))

    def act(self) -> str:
        case, topic = self.case, self.spec.topic
        if case.act == "commit":
            self.consumer.commit()
        elif case.act == "explicit":
            # Below what others have committed, so that going back would show.
            self.consumer.commit({(topic, p): N_HELD // 2 for p in range(2)})
        elif case.act == "after-poll":
            self.hand_out()
            self.consumer.commit()
        elif case.act == "close":
            self.consumer.close()
        else:
            group = self.spec.config(case)["group.id"]
            while group not in self.spec.event_log.lost and not (case.told and self.listener.lost):
                self.hand_out()
            return "logged" if group in self.spec.event_log.lost else "told"
        return "done"

    def hand_out(self) -> None:
        """One poll, and what it returned written down as read."""
        batch = [(m.partition(), m.offset()) for m in self.consumer.poll(0.1)]
        if batch:
            self.spec.event_log.write(self.case.name, "read", batch)

    def go_on(self) -> None:
        """Poll and commit, as before; a poll tells of the loss first, if there is such a callback.

        A member that was removed once more, because the machine is slow, goes on after that, too.
        """
        while not self.spec.stop.is_set():
            self.hand_out()
            if self.listener.lost and self.case.act != "poll":
                try:
                    self.consumer.commit()
                except RemoteProtocolError as error:
                    self.spec.event_log.write(self.case.name, "again", str(error))


class Desk:
    """One case of a worker, in a thread: it saves what it has done if its terms are the same."""

    def __init__(self, case: Case, spec: Spec):
        self.case, self.spec = case, spec
        self.told: list[tuple[str, list[int]]] = []
        self.began: dict[Any, int] = {}
        self.has_begun, self.has_acted = threading.Event(), threading.Event()
        # on_revoked is in time: what it tells of is the loss meanwhile, and not its own length.
        limit = {"task.shutdown.graceful.timeout.ms": 120_000}
        self.worker = Worker({**spec.config(case), **limit}, {"shard": 2}, self)

    def on_assigned(self, resources: list[Any]) -> None:
        self.told.append(("assigned", [r.number for r in resources]))
        if not self.has_begun.is_set():
            self.began = {r: self.worker.terms[r] for r in resources}
            self.has_begun.set()
            if self.case.act == "work":
                self.spec.event_log.write(self.case.name, "held")

    def on_revoked(self, resources: list[Any]) -> None:
        if self.case.act == "save" and not self.has_acted.is_set():
            self.began = {r: term for r, term in self.began.items() if r in resources}
            self.spec.event_log.write(self.case.name, "held")
            self.has_acted.wait()
        self.told.append(("revoked", [r.number for r in resources]))

    def on_lost(self, resources: list[Any]) -> None:
        self.told.append(("lost", [r.number for r in resources]))

    def run(self) -> None:
        case, write = self.case, self.spec.event_log.write
        self.worker.start()
        self.spec.awake.wait()
        time.sleep(case.wait_s)
        while self.worker.terms.items() >= self.began.items():
            time.sleep(0.01)  # the member has not looked at its clock yet; its commit would fail
        terms = self.worker.terms
        write(case.name, "acted", "stale" if not terms.items() & self.began.items() else "saved", 0)
        self.has_acted.set()
        self.spec.stop.wait()
        ended = attempt(self.worker.close)
        write(case.name, "told", self.told)
        write(case.name, "ended", *ended)


@dataclass(frozen=True)
class Spec:
    """What all cases share."""

    bootstrap: str
    topic: str
    event_log: EventLog
    awake: threading.Event
    stop: Flag

    def config(self, case: Case) -> dict[str, object]:
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": f"{self.topic}:{case.name}",
            "client.id": case.name,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "auto.commit.interval.ms": 3_600_000,
            "holdfast.policy": case.policy,
            "scheduled.rebalance.max.delay.ms": 1_000,
            **({"group.instance.id": f"{case.name}-static"} if case.static else {}),
        }


def attempt(act: Any) -> tuple[str, int]:
    """A word, and the code of the error that was raised."""
    try:
        return act() or "done", 0
    except RemoteProtocolError as error:
        return str(error), error.error_code or 0


def main(bootstrap: str, topic: str, path: str, cases: str) -> None:
    stop = watch()
    awake = threading.Event()
    signal.signal(signal.SIGCONT, lambda *_: awake.set())
    event_log = EventLog(path)
    logging.getLogger("holdfast.member").addHandler(event_log)
    spec = Spec(bootstrap, topic, event_log, awake, stop)

    def run(case: Case) -> None:
        try:
            (Desk if case.kind == "worker" else Application)(case, spec).run()
        except BaseException:
            event_log.write(case.name, "broken", traceback.format_exc())
            raise

    threads = [
        threading.Thread(target=run, args=(Case(**case),), daemon=True)
        for case in json.loads(cases)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.1)  # signals are handled between


if __name__ == "__main__":
    main(*sys.argv[1:])

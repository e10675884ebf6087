"""One consumer of the chaos suite, which signs its commits and records all it does.

Argument: a JSON object with ``name``, ``topic``, ``event_log``, ``config``, ``work_s``, ``client``
(of :data:`tests.live.clients.CLIENTS`) and ``callback_s``, which each callback lasts. SIGTERM
closes it; from SIGUSR1 to SIGUSR2 its work does not return; SIGHUP requests its state, and SIGQUIT
the stacks of its threads (on stderr). A line of the event log is ``[time, event, ...]``:

====================================  ==========================================================
``assigned|revoked|lost, [p, ...]``   a callback
``dropped, [p, ...]``                 lost: no record of them is delivered from now on
``batch, p, first, last, begin``      these records are processed (written before the next poll),
                                      delivered by a poll that began then
``commit, {p: offset}``               the broker has acknowledged this
``end`` / ``failed, text``            closed in order / the group refused this member for good
``state, {name: value}``              the state of its client
====================================  ==========================================================

A line is one write to the kernel, so what was written survives a SIGKILL. The committer is in the
offsets topic itself, in the commit's metadata.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from tests.live.clients import CLIENTS, KafkaPython

from holdfast.cli.demo.processes import watch
from holdfast.members.runtime import coordinator_client
from holdfast.members.runtime.member_thread import MemberThread

FAILED = 3
REFUSED = re.compile(r"group\.instance\.id|FencedInstanceId")
"""The words of every client in which a group refuses a member for good."""


class EventLog:
    """Appends lines that survive this process; a recorder of callbacks, too."""

    hears_losses = True

    def __init__(self, path: str, callback_s: float):
        self._callback_s = callback_s
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, *lines) -> None:
        """Write lines in one go; safe from any thread."""
        now = time.time()
        text = "".join(json.dumps([now, *line]) + "\n" for line in lines)
        os.write(self._file, text.encode())

    def note(self, event, partitions) -> None:
        """Write a callback, which lasts a while."""
        if event == "revoked":  # it is this member's until it has said so
            time.sleep(self._callback_s)
        self.write((event, sorted(tp.partition for tp in partitions)))
        if event != "revoked":
            time.sleep(self._callback_s)


def runs(places, begin):
    """Partition, first and last offset of every run of records without a hole."""
    for (partition, _), run in groupby(
        enumerate(sorted(places)), lambda e: (e[1][0], e[1][1] - e[0])
    ):
        offsets = [place[1] for _, place in run]
        yield "batch", partition, offsets[0], offsets[-1], begin


@dataclass
class Requests:
    """Requests by signals, without a lock that a signal could find taken."""

    stalls: bool = False  # from SIGUSR1 to SIGUSR2
    state: bool = False  # by SIGHUP, until it is answered

    def on_signal(self, number, frame) -> None:
        if number == signal.SIGHUP:
            self.state = True
        else:
            self.stalls = number == signal.SIGUSR1


def listening() -> Requests:
    requests = Requests()
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(number, requests.on_signal)
    faulthandler.register(signal.SIGQUIT, all_threads=True)
    return requests


def state(client) -> dict[str, str]:
    """The state of a client as text; an error is an answer, too."""
    found = {"errors": str(client.passed[-10:])}
    questions: dict[str, Callable[[], object]] = {
        "owns": client.owns,
        "member": lambda: client.snapshot,
        "position": lambda: {p: client.position(p) for p in client.owns()},
        "committed": lambda: {p: client.committed(p) for p in client.owns()},
    }
    for name, ask in questions.items():
        try:
            found[name] = str(ask())
        except Exception as error:  # the run is lost already, and this is why it is asked
            found[name] = repr(error)
    return found


def sign_commits(name: str, note) -> None:
    """Put the name into every commit of this process; ``note`` gets what was acknowledged.

    ``note`` takes a dict of partition to offset, and runs before the application is notified.
    """
    build, commit = coordinator_client._commit_topics, coordinator_client.CoordinatorClient.commit

    def signed(kind, offsets):
        topics = build(kind, offsets)
        for topic in topics:
            for partition in topic.partitions:
                partition.committed_metadata = name
        return topics

    def noted(self, offsets, who):
        future = commit(self, offsets, who)

        def answered(done):
            if not done.cancelled() and done.exception() is None and done.result() == 0:
                note({p: at.offset for (_, p), at in offsets.items()})

        future.add_done_callback(answered)
        return future

    coordinator_client._commit_topics, coordinator_client.CoordinatorClient.commit = signed, noted


def note_drops(note) -> None:
    """Call ``note`` at every loss, on the member's thread, once nothing more of it is delivered.

    ``note`` takes the partitions. ``on_partitions_lost`` runs later, in the application's poll.
    """
    start = MemberThread.start

    def noting(self, client):
        drop = self._rebalance_handler.drop

        def dropped(resources, lost):
            drop(resources, lost)
            note(sorted(partition for _, partition in resources))

        self._rebalance_handler.drop = dropped
        start(self, client)

    MemberThread.start = noting


def opened(spec, event_log):
    """The client, subscribed. Errors of confluent that pass are noted, as a program would."""
    name, config = spec["client"], {**spec["config"], "client.id": spec["name"]}
    if (
        name == "aiokafka"
    ):  # by default it allows a revocation a session; slow callbacks last longer
        config["rebalance.timeout.ms"] = config["max.poll.interval.ms"]
    client = CLIENTS[name](spec["topic"], config)
    client.passes = lambda error: not error.fatal()
    if name == "aiokafka":  # callbacks that are functions: a slow one holds up the loop
        client.listener = partial(KafkaPython.listener, client)
    client.subscribe([spec["topic"]], event_log)
    return client


def work(client, stop, requests, event_log, work_s: float) -> None:
    """Poll and process until SIGTERM."""
    while not stop.is_set():
        begin = time.time()
        places = client.poll()
        time.sleep(work_s)
        while requests.stalls and not stop.is_set():
            time.sleep(0.02)
        if places:
            event_log.write(*runs(places, begin))
        if requests.state:
            requests.state = False
            event_log.write(("state", state(client)))


def main(text: str) -> int:
    spec = json.loads(text)
    stop, requests = watch(), listening()
    event_log = EventLog(spec["event_log"], spec["callback_s"])
    sign_commits(spec["name"], lambda offsets: event_log.write(("commit", offsets)))
    note_drops(lambda partitions: event_log.write(("dropped", partitions)))
    client, code = opened(spec, event_log), 0
    try:
        work(client, stop, requests, event_log, spec["work_s"])
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        if not REFUSED.search(said):
            raise
        event_log.write(("failed", said))
        code = FAILED
    if client.name == "aiokafka":  # its stop() calls no listener, and nothing is delivered now
        event_log.write(("dropped", sorted(client.owns())))
    client.close()
    event_log.write(("end",))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

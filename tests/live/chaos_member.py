"""One consumer of the chaos suite, which signs its commits and records all it does.

Argument: a JSON object with ``name``, ``topic``, ``event_log``, ``config``, ``work_s``, ``client``
(of :data:`tests.live.chaos_clients.CLIENTS`) and ``callback_s``, which each callback lasts. SIGTERM
closes it; from SIGUSR1 to SIGUSR2 its work does not return; SIGHUP requests its state, and SIGQUIT
the stacks of its threads (on stderr). A line of the event log is ``[time, event, ...]``:

====================================  ==========================================================
``assigned|revoked|lost, [p, ...]``   a callback
``dropped, [p, ...]``                 lost: no record of them is delivered from now on
``batch, p, first, last, begin``      these records are processed (written before the next poll),
                                      delivered by a poll that began then
``commit, {p: offset}``               the broker has acknowledged this
``end`` / ``failed, text``            closed in order / the group refused this member for good
``stands, {question: answer}``        what its client answers about its state
====================================  ==========================================================

A line is one write to the kernel, so what was written survives a SIGKILL. The committer is in the
offsets topic itself, in the commit's metadata.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from itertools import groupby

from tests.live.chaos_clients import CLIENTS, RefusedError, note_drops, sign_commits

from holdfast.cli.demo.lifeline import watch

FAILED = 3


class EventLog:
    """Appends lines that survive this process."""

    def __init__(self, path: str, callback_s: float):
        self._callback_s = callback_s
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, *lines) -> None:
        """Write lines in one go; safe from any thread."""
        now = time.time()
        text = "".join(json.dumps([now, *line]) + "\n" for line in lines)
        os.write(self._file, text.encode())

    def listen(self, event, partitions) -> None:
        if event == "revoked":  # it is this member's until it has said so
            time.sleep(self._callback_s)
        self.write((event, sorted(tp.partition for tp in partitions)))
        if event != "revoked":
            time.sleep(self._callback_s)

    def on_partitions_assigned(self, partitions) -> None:
        self.listen("assigned", partitions)

    def on_partitions_revoked(self, partitions) -> None:
        self.listen("revoked", partitions)

    def on_partitions_lost(self, partitions) -> None:
        self.listen("lost", partitions)


def runs(places, begin):
    """Partition, first and last offset of every run of records without a hole."""
    for (partition, _), run in groupby(
        enumerate(sorted(places)), lambda e: (e[1][0], e[1][1] - e[0])
    ):
        offsets = [place[1] for _, place in run]
        yield "batch", partition, offsets[0], offsets[-1], begin


@dataclass
class Asked:
    """What signals have asked for, without a lock that a signal could find taken."""

    stalls: bool = False  # from SIGUSR1 to SIGUSR2
    stands: bool = False  # by SIGHUP, until it is answered

    def on_signal(self, number, frame) -> None:
        if number == signal.SIGHUP:
            self.stands = True
        else:
            self.stalls = number == signal.SIGUSR1


def listening() -> Asked:
    asked = Asked()
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(number, asked.on_signal)
    faulthandler.register(signal.SIGQUIT, all_threads=True)
    return asked


def main(text: str) -> int:
    spec = json.loads(text)
    stop, asked = watch(), listening()
    event_log = EventLog(spec["event_log"], spec["callback_s"])
    sign_commits(spec["name"], lambda offsets: event_log.write(("commit", offsets)))
    note_drops(lambda partitions: event_log.write(("dropped", partitions)))
    consumer = CLIENTS[spec["client"]](
        {**spec["config"], "client.id": spec["name"]}, spec["topic"], event_log
    )
    code = 0
    try:
        while not stop.is_set():
            begin = time.time()
            places = consumer.poll()
            consumer.rest(spec["work_s"])
            while asked.stalls and not stop.is_set():
                consumer.rest(0.02)
            if places:
                event_log.write(*runs(places, begin))
            if asked.stands:
                asked.stands = False
                event_log.write(("stands", consumer.stands()))
    except RefusedError as error:
        event_log.write(("failed", str(error)))
        code = FAILED
    consumer.close()
    event_log.write(("end",))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

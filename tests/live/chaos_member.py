"""One holdfast.Consumer under fire: it signs its commits and writes down all it does.

Argument: a JSON object with ``name``, ``topic``, ``journal``, ``config`` and ``work_s``. SIGTERM
closes it. A line of the journal is ``[time, event, ...]``:

====================================  ==========================================================
``assigned|revoked|lost, [p, ...]``   a callback
``batch, p, first, last``             these records are processed (written before the next poll)
``commit, {p: offset}``               the broker has acknowledged this
``end`` / ``failed, text``            closed in order / the group refused this member for good
====================================  ==========================================================

A line is one write to the kernel, so what was written survives a SIGKILL. Who committed stands in
the offsets topic itself, as the commit's metadata.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import groupby

from holdfast import Consumer
from holdfast.adapters.member import link
from holdfast.adapters.records.topic_duties import TopicDuties
from holdfast.demo.lifeline import watch
from holdfast.errors import RemoteProtocolError

FAILED = 3


class Journal:
    """Appends lines that survive this process."""

    def __init__(self, path: str):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, *lines) -> None:
        """Write lines in one go; safe from any thread."""
        now = time.time()
        text = "".join(json.dumps([now, *line]) + "\n" for line in lines)
        os.write(self._file, text.encode())

    def listen(self, event, partitions) -> None:
        """Write a callback down."""
        self.write((event, sorted(tp.partition for tp in partitions)))

    def on_partitions_assigned(self, partitions) -> None:
        self.listen("assigned", partitions)

    def on_partitions_revoked(self, partitions) -> None:
        self.listen("revoked", partitions)

    def on_partitions_lost(self, partitions) -> None:
        self.listen("lost", partitions)


def sign_commits(name: str, journal: Journal) -> None:
    """Put the name into every commit, and write down what was acknowledged."""
    build, note = link._commit_topics, TopicDuties.note_commit

    def signed(offsets):
        topics = build(offsets)
        for topic in topics:
            for partition in topic.partitions:
                partition.committed_metadata = name
        return topics

    def noted(duties, future, offsets):
        code = note(duties, future, offsets)
        if code == 0:
            journal.write(("commit", {p: offset for (_, p), offset in offsets.items()}))
        return code

    link._commit_topics, TopicDuties.note_commit = signed, noted


def runs(messages):
    """Partition, first and last offset of every run of records without a hole."""
    places = sorted((m.partition(), m.offset()) for m in messages)
    for (partition, _), run in groupby(enumerate(places), lambda e: (e[1][0], e[1][1] - e[0])):
        offsets = [place[1] for _, place in run]
        yield "batch", partition, offsets[0], offsets[-1]


def main(text: str) -> int:
    spec = json.loads(text)
    stop = watch()
    journal = Journal(spec["journal"])
    sign_commits(spec["name"], journal)
    consumer = Consumer({**spec["config"], "client.id": spec["name"]})
    code = 0
    try:
        consumer.subscribe([spec["topic"]], listener=journal)
        while not stop.is_set():
            messages = consumer.poll(0.1)
            time.sleep(spec["work_s"])
            if messages:
                journal.write(*runs(messages))
    except RemoteProtocolError as error:
        journal.write(("failed", str(error)))
        code = FAILED
    consumer.close()
    journal.write(("end",))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""A rolling bounce of a live group on a real broker, kind by kind, as JSON lines.

``python bench/bounce.py [--restore 0.5] [--slow 2] [--crash] [--static] KIND...``. Six members
share 24 partitions, and a producer writes all the time. One member after the other ends
(``--crash``: is killed), is away for ``--down`` seconds and comes back. The next member follows 4 s
after every member has read again. ``--restore`` is the time to rebuild the state of one gained
partition, ``--slow`` the time that member 0 works on a batch. ``--static`` gives members a
``group.instance.id``.

Sessions last 10 s, members send a heartbeat every second, Design II's delay is 20 s. A round aligns
the heartbeats of all members, and the others hear of an end at their next heartbeat. So the ends
are spread evenly over a second, counted from the last assignment: otherwise chance decides how long
the partitions of a member have no owner, by more than clients differ.

*No progress*: over all partitions, the sum of gaps of more than 0.3 s between two batches, from the
first bounce to 4 s after all members read again. Member 0's work on a batch is progress. *Nothing
written*: the part of these gaps in which there was nothing to read, because the writer stood still
too. *Undisturbed*: gaps of partitions that stay with their reader, where no member began, ended,
gained or gave up anything from a second before the gap to its end: what the machine and the client
cost without a rebalance. *Starting*: the part in which partitions wait for the process that had
them: from its end to the moment when its successor joins, which is Python's start. *Survivor gap*:
the longest time between two batches of a member that is neither away nor slow, without its own
restoring. Each process reads the clock itself; all are on one machine.
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bounce_member import KINDS

NOTICED_SECONDS = 0.3
QUIET_SECONDS = 4.0
FRESH_SECONDS = 1.0
LIMIT_SECONDS = 90.0
SESSION_MS = 10_000
HEARTBEAT_SECONDS = 1.0
FIRST_MOMENT = 0.1
"""So no stop is as long as the shortest that counts."""
BATCH_EVERY_SECONDS = 0.04
Line = tuple[float, str, str, list[Any]]
"""Seconds, member, what, more."""


@dataclass(kw_only=True)
class Bounce:
    """One kind's run."""

    kind: str
    options: argparse.Namespace
    bootstrap: str
    folder: Path
    sent: Counter[int] = field(default_factory=Counter)
    away: list[tuple[int, float, float]] = field(default_factory=list)  # slot, from, to
    written: list[float] = field(default_factory=list)  # when offset i of every partition was
    began: float = 0.0
    ended: float = 0.0
    stdin: int = subprocess.DEVNULL
    """What members have for standard input; they join when it has a line, or ends."""

    def __post_init__(self) -> None:
        self.topic = f"bounce-{self.kind}"
        self.n_starts: Counter[int] = Counter()
        self._halt = threading.Event()

    def start(self, slot: int) -> subprocess.Popen[bytes]:
        """Start the member of a slot, in a process of its own."""
        name = f"{slot}.{self.n_starts[slot]}"
        self.n_starts[slot] += 1
        task = {
            "kind": self.kind,
            "topic": self.topic,
            "event_log": str(self.folder / f"{self.kind}.{name}.jsonl"),
            "restore": self.options.restore,
            "work": self.options.slow if slot == 0 else 0.0,
            "kafka": self.properties(slot),
        }
        with (self.folder / f"{self.kind}.{name}.err").open("wb") as errors:
            return subprocess.Popen(self.command(task), stderr=errors, stdin=self.stdin)

    def properties(self, slot: int) -> dict[str, Any]:
        """Kafka's settings of a member."""
        kafka = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.topic,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": int(1000 * HEARTBEAT_SECONDS),
            "auto.commit.interval.ms": 1_000,
        }
        if self.options.static:
            kafka["group.instance.id"] = f"member-{slot}"
        return kafka

    def command(self, task: dict[str, Any]) -> list[str]:
        """The process of a member."""
        program = Path(__file__).with_name("bounce_member.py")
        return [sys.executable, str(program), json.dumps(task)]

    def run(self) -> None:
        """Write, play what happens to the members, and close."""
        self._make_topic()
        writer = threading.Thread(target=self._write)
        writer.start()
        members = [self.start(slot) for slot in range(self.options.members)]
        try:
            self._await_all_reading()
            self.play(members)
        finally:
            self._halt.set()
            writer.join()
            time.sleep(2 + 2 * self.options.slow)  # its last batch, and the one that has the rest
            for member in members:
                member.terminate()
            for member in members:
                try:
                    member.wait(20)
                except subprocess.TimeoutExpired:
                    member.kill()
                    member.wait()

    def play(self, members: list[subprocess.Popen[bytes]]) -> None:
        """Bounce every member, one after the other."""
        self.began = time.time()
        for slot, member in enumerate(members):
            self._await_moment(slot)
            member.send_signal(signal.SIGKILL if self.options.crash else signal.SIGTERM)
            member.wait(60)
            gone = time.time()
            time.sleep(self.options.down)
            members[slot] = self.start(slot)
            self._await_all_reading()
            self.away.append((slot, gone, time.time()))
        self.ended = time.time()

    def _await_all_reading(self) -> None:
        """Every member has just read, and every partition was; then a while of quiet."""
        newest: dict[str, float] = {}
        read: dict[int, float] = {}
        files: dict[Path, int] = {}
        names = {f"{slot}.{n - 1}" for slot, n in self.n_starts.items()}
        give_up = time.monotonic() + LIMIT_SECONDS
        while True:
            for at, member, what, more in self._more_lines(files):
                if what == "read":
                    newest[member] = read[more[0]] = at
            since = time.time() - FRESH_SECONDS - 2 * self.options.slow
            members = {member for member, at in newest.items() if at > since} & names
            partitions = {partition for partition, at in read.items() if at > since}
            if members == names and len(partitions) == self.options.partitions:
                time.sleep(QUIET_SECONDS)
                return
            if time.monotonic() > give_up:
                raise SystemExit(f"{self.kind}: {len(members)} members read {len(partitions)}")
            time.sleep(0.25)

    def _await_moment(self, slot: int) -> None:
        """The slot's part of a second since the last assignment, modulo whole heartbeats."""
        assigned = [at for at, _, what, _ in self._more_lines({}) if what == "assigned"]
        moment = HEARTBEAT_SECONDS * (slot + FIRST_MOMENT) / self.options.members
        time.sleep((max(assigned) + moment - time.time()) % HEARTBEAT_SECONDS)

    def _more_lines(self, files: dict[Path, int]) -> list[Line]:
        """Return the lines of the event logs beyond these positions, and advance the positions."""
        found: list[Line] = []
        for path in self.folder.glob(f"{self.kind}.*.jsonl"):
            with path.open("rb") as file:
                file.seek(files.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            files[path] = files.get(path, 0) + len(whole)
            member = path.name.removeprefix(f"{self.kind}.").removesuffix(".jsonl")
            for text in whole.splitlines():
                at, what, *more = json.loads(text)
                found.append((at, member, what, more))
        return sorted(found, key=lambda line: line[0])

    def _make_topic(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        made = admin.create_topics([NewTopic(self.topic, self.options.partitions, 1)])
        for future in made.values():
            future.result(60)

    def _write(self) -> None:
        """The same number of records to every partition, a batch every 40 ms."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        due = time.monotonic()
        while not self._halt.is_set():
            self.written.append(time.time())
            for partition in range(self.options.partitions):
                producer.produce(self.topic, b"x" * 50, partition=partition)
                self.sent[partition] += 1
            producer.poll(0)
            due += BATCH_EVERY_SECONDS
            time.sleep(max(0.0, due - time.monotonic()))
        producer.flush(60)

    # The event logs

    def lines(self) -> list[Line]:
        """Return all event logs in one, by time; a killed member ends when it was killed."""
        found = self._more_lines({})
        if self.options.crash:
            found += [(gone, f"{slot}.0", "closed", []) for slot, gone, _ in self.away]
        return sorted(found, key=lambda line: line[0])

    def result(self) -> dict[str, Any]:
        """The numbers of the run."""
        lines = self.lines()
        no_progress, silent, longest = self._stops(lines)
        changes, moved = self._moves(lines)
        unread, twice = self._account(lines)
        texts = [path.read_bytes() for path in self.folder.glob(f"{self.kind}.*.err")]
        return {
            "kind": self.kind,
            "crash": self.options.crash,
            "static": self.options.static,
            "restore_seconds": self.options.restore,
            "slow_seconds": self.options.slow,
            "no_progress_partition_seconds": round(no_progress, 1),
            "nothing_written_partition_seconds": round(silent, 1),
            "undisturbed_partition_seconds": round(self._undisturbed(lines), 1),
            "starting_partition_seconds": round(self._starting(lines), 1),
            "longest_stop_seconds": round(longest, 2),
            "survivor_gap_seconds": round(self._survivor_gap(lines), 2),
            "owner_changes": changes,
            "partitions_moved": moved,
            "sent": sum(self.sent.values()),
            "unread": unread,
            "read_twice": twice,
            "owned_twice": self._owned_twice(lines),
            "load_average": round(os.getloadavg()[1], 1),
            "errors": sum(b"Traceback" in text for text in texts),
        }

    def _stops(self, lines: list[Line]) -> tuple[float, float, float]:
        """Sum of all stops, the part in which nothing was written, and the longest stop."""
        last = dict.fromkeys(range(self.options.partitions), self.began)
        reader: dict[int, str] = {}
        stops: list[tuple[float, float]] = []

        def note(partition: int, at: float, first: int) -> None:
            work = self.options.slow if reader.get(partition) == "0" else 0.0
            stop = at - last[partition] - work
            if stop > NOTICED_SECONDS:
                written = self.written[first] if first < len(self.written) else at
                stops.append((stop, min(stop, max(0.0, written - last[partition]))))
            last[partition] = at

        beyond: Counter[int] = Counter()
        for at, member, what, more in lines:
            if what != "read" or at > self.ended:
                continue
            partition, first, beyond[more[0]] = more
            if at >= self.began:
                note(partition, at, first)
            reader[partition] = member.split(".")[0]
        for partition in last:
            note(partition, self.ended, beyond[partition] + 1)
        total, silent = (sum(column) for column in zip(*stops, strict=True)) if stops else (0, 0)
        return total, silent, max((stop for stop, _ in stops), default=0.0)

    def _undisturbed(self, lines: list[Line]) -> float:
        """Sum of the stops of partitions that stayed, with no event of the group near them."""
        events = [at for at, _, what, more in lines if what != "read" and (not more or more[0])]
        last: dict[int, tuple[float, str]] = {}
        total = 0.0
        for at, member, what, more in lines:
            if what != "read" or not self.began <= at <= self.ended:
                continue
            before, reader = last.get(more[0], (at, member))
            last[more[0]] = at, member
            stop = at - before - (self.options.slow if member.startswith("0.") else 0.0)
            i = bisect.bisect_left(events, before - 1.0)
            is_quiet = i == len(events) or events[i] > at
            if reader == member and stop > NOTICED_SECONDS and is_quiet:
                total += stop
        return total

    def _starting(self, lines: list[Line]) -> float:
        """Over partitions that waited, the time from a member's end to its successor's join."""
        ended: dict[str, float] = {}
        joined: dict[str, float] = {}
        reader: dict[int, str] = {}
        total = 0.0
        for at, member, what, more in lines:
            slot = member.split(".")[0]
            if what == "closed":
                ended[slot] = at
            elif what == "joins":
                joined[slot] = at
            elif what == "read":
                before = reader.get(more[0], member)
                reader[more[0]] = member
                if before != member and before.split(".")[0] == slot and at <= self.ended:
                    total += joined[slot] - ended[slot]
        return total

    def _moves(self, lines: list[Line]) -> tuple[int, int]:
        """Changes of the slot that reads a partition, and partitions that saw another slot."""
        slots: dict[int, list[str]] = defaultdict(list)
        for at, member, what, more in lines:
            slot = member.split(".")[0]
            if what == "read" and self.began <= at <= self.ended and slots[more[0]][-1:] != [slot]:
                slots[more[0]].append(slot)
        changes = sum(len(visited) - 1 for visited in slots.values())
        return changes, sum(len(set(visited)) > 1 for visited in slots.values())

    def _account(self, lines: list[Line]) -> tuple[int, int]:
        times: dict[int, Counter[int]] = defaultdict(Counter)
        for _, _, what, more in lines:
            if what == "read":
                partition, first, last = more
                times[partition].update(range(first, last + 1))
        unread = sum(n - len(times[p]) for p, n in self.sent.items())
        return unread, sum(n - 1 for seen in times.values() for n in seen.values() if n > 1)

    def _owned_twice(self, lines: list[Line]) -> int:
        owner: dict[int, str] = {}
        twice = 0
        for _, member, what, more in lines:
            if what == "assigned":
                twice += sum(owner.get(p, member) != member for p in more[0])
                owner.update(dict.fromkeys(more[0], member))
            elif what in ("revoked", "lost", "closed"):
                gone = more[0] if what != "closed" else list(owner)
                owner = {p: m for p, m in owner.items() if not (m == member and p in gone)}
        return twice

    def _survivor_gap(self, lines: list[Line]) -> float:
        """Longest time between batches of a member in service, its restoring not counted."""
        last: dict[str, float] = {}
        longest = 0.0
        for at, member, what, _ in lines:
            slot = int(member.split(".")[0])
            if what == "assigned" and self.options.restore:
                last.pop(member, None)  # it may rebuild state now: count from the next batch on
            if what != "read" or not self.began <= at <= self.ended:
                continue
            slow = slot == 0 and self.options.slow
            away = any(s == slot and gone - 5 <= at <= back for s, gone, back in self.away)
            if member in last and not slow and not away:
                longest = max(longest, at - last[member])
            last[member] = at
        return longest


def versions() -> dict[str, Any]:
    """Versions of the packages and the machine."""
    import aiokafka
    import confluent_kafka
    import kafka

    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, check=False, capture_output=True, text=True).stdout.strip()
    return {
        "commit": commit,
        "python": platform.python_version(),
        "confluent_kafka": confluent_kafka.__version__,
        "kafka_python": kafka.__version__,
        "aiokafka": aiokafka.__version__,
        "cpus": os.cpu_count(),
    }


def main() -> None:
    """Start a broker, run the kinds one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--partitions", type=int, default=24)
    parser.add_argument("--down", type=float, default=3.0)
    parser.add_argument("--restore", type=float, default=0.0)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--crash", action="store_true")
    parser.add_argument("--static", action="store_true")
    parser.add_argument("--folder", type=Path, help="keep the event logs there")
    parser.add_argument("kinds", nargs="+", choices=KINDS, metavar="KIND")
    play_all(Bounce, parser.parse_args())


def play_all(play: type[Bounce], options: argparse.Namespace) -> None:
    """Start a broker, play ``options.kinds`` one after the other, and print what was counted."""
    from holdfast.local.broker import Broker, BrokerSettings

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through the ends of the members
    print(json.dumps(versions()), flush=True)
    properties = {"group.initial.rebalance.delay.ms": "1000"}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with Broker.start(settings=BrokerSettings(properties=properties)) as broker:
            for kind in options.kinds:
                one = play(kind=kind, options=options, bootstrap=broker.bootstrap, folder=folder)
                one.run()
                print(json.dumps(one.result()), flush=True)


if __name__ == "__main__":
    main()

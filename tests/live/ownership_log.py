"""The ownership log of a group in the chaos suite, from all members' event logs, with its laws.

**Rules.** A *tenure* is one member's time with one partition. What a member processed in a tenure
beyond its last acknowledged commit was *in flight* when the tenure ended: the next owner may read
exactly that again, and nothing else. A tenure that is lost ends when the member delivers nothing
more of it, not when its callback runs: the callback waits for the application's poll.

**Strategy.** Event logs (see :mod:`tests.live.chaos_member`) are read as they grow. The committer
is read from the offsets topic, where the coordinator has put commits and rounds into one order.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from tests.live.offsets_log import Commit, Generation

from holdfast.cli.demo.event_log import Entry, intervals, overlaps


class OwnershipLog:
    def __init__(self, folder: Path, n_partitions: int):
        self._folder = folder
        self._read_to: dict[Path, int] = {}
        self.n_partitions = n_partitions
        self.held: defaultdict[str, set[int]] = defaultdict(set)
        self.failed: dict[str, str] = {}
        self.states: dict[str, dict[str, str]] = {}
        self.times_read = [np.zeros(0, np.int32) for _ in range(n_partitions)]
        self.batch_times: list[list[float]] = [[] for _ in range(n_partitions)]
        self.in_flight: Counter[int] = Counter()
        self._prefix = [0] * n_partitions
        self._reached: dict[tuple[str, int], int] = {}
        self._acked: dict[tuple[str, int], int] = {}
        self.furthest: Counter[tuple[str, int]] = Counter()
        self._entries: list[Entry] = []
        self._dropped: dict[tuple[str, int], float] = {}
        self._late: list[str] = []

    def read(self) -> OwnershipLog:
        """Take in what was added."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read_to.get(path, 0))
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read_to[path] = self._read_to.get(path, 0) + len(whole) + len(newline)
            for line in whole.splitlines():
                self._take(path.stem, *json.loads(line))
        return self

    def _take(self, name: str, when: float, event: str, *rest: object) -> None:
        match event, rest:
            case "assigned", (partitions,):
                for partition in partitions:
                    self._end_tenure(name, partition)
                    self._dropped.pop((name, partition), None)
                self.held[name] |= set(partitions)
                self.note(name, when, event, partitions)
            case (("revoked" | "lost"), (partitions,)):
                self.held[name] -= set(partitions)
                self.note(name, when, event, partitions)
            case "dropped", (partitions,):
                self._dropped.update(dict.fromkeys([(name, p) for p in partitions], when))
                self.note(name, when, "lost", partitions)
            case "batch", (partition, first, last, *began):
                self._count(name, when, partition, first, last)
                self._look(name, partition, first, *began)
            case "commit", (offsets,):
                for partition, offset in offsets.items():
                    self._acked[name, int(partition)] = offset
            case "end", ():
                self.note(name, when, "end")
                self.held.pop(name, None)
            case "failed", (text,):
                self.failed[name] = text
            case "state", (answers,):
                self.states[name] = answers

    def note(self, name: str, when: float, event: str, partitions: Iterable[int] = ()) -> None:
        """Put an event between those of the event logs: a kill, a freeze."""
        self._entries.append(
            Entry(time_seconds=when, member=name, event=event, partitions=tuple(partitions))
        )

    def _count(self, name: str, when: float, partition: int, first: int, last: int) -> None:
        times = self.times_read[partition]
        if last >= len(times):
            grown = np.zeros(2 * last + 64, np.int32)
            grown[: len(times)] = times
            self.times_read[partition] = times = grown
        times[first : last + 1] += 1
        self.batch_times[partition].append(when)
        key = name, partition
        self._acked.setdefault(key, first)
        self._reached[key] = max(last + 1, self._reached.get(key, 0))
        self.furthest[key] = max(last + 1, self.furthest[key])

    def _look(self, name: str, partition: int, first: int, began: float = 0.0) -> None:
        """Was it handed out by a poll that began after the partition was lost?"""
        dropped = self._dropped.get((name, partition))
        if dropped is not None and began > dropped:
            text = f"{name} was handed {first} {began - dropped:.3f} s after it had lost it"
            self._late.append(f"partition {partition}: {text}")

    def _end_tenure(self, name: str, partition: int) -> None:
        reached = self._reached.pop((name, partition), 0)
        acked = self._acked.pop((name, partition), reached)
        self.in_flight[partition] += max(0, reached - acked)

    def prefix(self, partition: int) -> int:
        """Every record below this offset is processed."""
        times, at = self.times_read[partition], self._prefix[partition]
        unread = np.flatnonzero(times[at:] == 0)
        self._prefix[partition] = at = at + int(unread[0]) if len(unread) else len(times)
        return at

    def holes(self, partition: int, end: int) -> list[tuple[int, int]]:
        """Runs of records below ``end`` that nobody processed, first and last."""
        times = np.zeros(end, np.int32)
        found = self.times_read[partition][:end]
        times[: len(found)] = found
        edges = np.flatnonzero(np.diff(np.concatenate(([1], times, [1])) == 0))
        return [(int(a), int(b) - 1) for a, b in edges.reshape(-1, 2)]

    # What must be true

    def close(self) -> None:
        """End every tenure: nobody is left."""
        for name, partition in list(self._reached):
            self._end_tenure(name, partition)

    def duplicates(self) -> Counter[int]:
        """Reads beyond the first, by partition."""
        again = (np.maximum(times - 1, 0).sum() for times in self.times_read)
        return Counter({p: int(n) for p, n in enumerate(again)})

    def unread(self, produced: list[int]) -> list[str]:
        """Partitions with records that nobody processed, or that nobody produced."""
        found = []
        for partition, n in enumerate(produced):
            times = self.times_read[partition]
            missing = np.flatnonzero(times[:n] == 0)
            if len(missing) or n > len(times):
                found.append(f"partition {partition}: {n} produced, unread from {missing[:3]}")
            if times[n:].any():
                found.append(f"partition {partition}: more read than produced")
        return found

    def read_too_often(self) -> list[str]:
        """Partitions of which more was read again than was in flight."""
        return [
            f"partition {p}: {n} read again, {self.in_flight[p]} in flight"
            for p, n in sorted(self.duplicates().items())
            if n > self.in_flight[p]
        ]

    def handed_out_late(self) -> list[str]:
        """Batches of a partition that their member had lost, and not been assigned again."""
        return self._late

    def two_owners(self, allowed: set[tuple[str, str]]) -> list[str]:
        """Partitions that two members held at once by their own event logs."""
        entries = sorted(self._entries, key=lambda entry: entry.time_seconds)
        return [
            f"partition {a.partition}: {b.member} from {b.start:.3f}, {a.member} to {a.stop:.3f}"
            for a, b in overlaps(intervals(entries, time.time()))
            if (a.member, b.member) not in allowed
        ]

    def wrong_commits(
        self,
        log: list[Generation | Commit],
        produced: list[int],
        client_names: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Commits by somebody else than the holder, of what it had not processed, or backwards.

        The holder of a partition is the member to whom the coordinator assigned it last. Processes
        that follow one another as one static member share a seat, under the name of the first one
        in the coordinator's records; there the newest one to have committed holds.
        """
        static_id_of = client_names or {}
        holder: dict[int, str] = {}
        at: dict[int, int] = {}
        signed: dict[str, list[str]] = {}
        found = []
        for entry in log:
            if isinstance(entry, Generation):
                for name, owned in entry.owned.items():
                    holder.update(dict.fromkeys(owned, static_id_of.get(name, name)))
                continue
            p, who, offset = entry.partition, entry.signed, entry.offset
            static_id = static_id_of.get(who, who)
            if holder.get(p) != static_id:
                found.append(f"partition {p}: {who} commits {offset}, {holder.get(p)} holds it")
            names = signed.setdefault(static_id, [])
            if who not in names:
                names.append(who)
            if who != names[-1]:
                found.append(f"partition {p}: {who} commits {offset}, {names[-1]} has its place")
            if offset < at.get(p, 0):
                found.append(f"partition {p}: {who} commits {offset} after {at[p]}")
            if offset > self.furthest[who, p]:
                found.append(f"partition {p}: {who} commits {offset}, unprocessed")
            at[p] = offset
        short = [p for p, n in enumerate(produced) if at.get(p, 0) != n]
        if short:
            found.append(f"partitions {short}: not committed to the end")
        return found

    def longest_stop(self, begin: float, end: float) -> float:
        """Longest time within which some partition was not read, seconds."""
        return longest_gap(self.batch_times, begin, end)


def longest_gap(times: Iterable[Iterable[float]], begin: float, end: float) -> float:
    """Longest time within which one of these, such as the reads of a partition, did not happen."""
    longest = 0.0
    for each in times:
        inside = sorted(t for t in each if begin <= t <= end)
        longest = max(longest, *np.diff([begin, *inside, end]).tolist())
    return longest

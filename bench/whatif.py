"""Do what-ifs come true? Record a bounce, predict every other policy, run the same bounce there.

``python bench/whatif.py record FOLDER`` plays the same bounce with groups of every client under
every policy that the client has, and writes FOLDER/runs.jsonl (the truth, from the members' own
journals) and FOLDER/tables (what ``holdfast history`` makes of the offsets topic).
``python bench/whatif.py predict FOLDER...`` replays each recorded group under every other policy
and prints prediction and truth as JSON lines; the last line says how often the truth lay between
hand-overs that cost nothing and those that cost what is assumed, and how often policies that differ
were put in the wrong order. ``--recorded 0 --truth 1`` predicts from one repeat and judges by
another. What whoever runs the members knows is given: heartbeats, sessions, for how long a member
is away (two seconds, and half a second to join); and where members have state, what a hand-over
costs (:data:`STATE_MS`).

**The bounce.** Four members share 12 partitions; a producer writes all the time. Member ``i`` ends
``i`` periods after the first one (``clean``: SIGTERM, ``kill``: SIGKILL), is away for ``--down``
seconds after its end, and comes back: its successor's process waits for that, so that the time in
which a process comes up on a busy machine is no part of the bounce. With ``state`` a member works
half a second to rebuild each partition that it gains, and member 0 works for 1.2 s on each batch.
Every run ends members at the same distances, whatever the policy makes of it.

**The truth.** *Stopped*: over all partitions, the sum of the gaps between two batches in which an
owner ended, gave the partition up, or got it, and of every other gap above half a second; less what
lies between two batches of the partition in quiet times (the median). Work on a batch is progress.
*Moved*: changes of the member that reads a partition. A recording is compared with the median of
all runs of the same client under the other policy; policies that only holdfast has are run by
holdfast.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bounce import Bounce, Line, versions
from bounce_member import OURS

JAVA = "org.apache.kafka.clients.consumer."
SESSION_MS = 6_000
DELAY_MS = 10_000
PERIOD_SECONDS = {"clean": 9.0, "kill": 14.0}
UNUSUAL_SECONDS = 0.5
POLICY = {
    "range": "eager",
    "coop": "simple",
    "848": "kip848",
    **{name: name for name in OURS},
}
"""What a kind's last word means to ``replay --policy``."""
KINDS = (
    "java-range",
    "java-coop",
    "java-848",
    "confluent-range",
    "confluent-coop",
    "confluent-848",
    "kafka-python-range",
    "kafka-python-coop",
    *(f"ours-{name}" for name in OURS),
)
CASES = ("clean-free", "kill-free", "clean-state", "kill-state")
ASSIGNORS = {"range": "RangeAssignor", "coop": "CooperativeStickyAssignor"}
BROKER = {
    "group.initial.rebalance.delay.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
}


FIDELITIES = ("fidelity_rebalances", "fidelity_moves", "fidelity_pause")
STATE_MS = 6_400
"""A hand-over of members with state: two rounds of a heartbeat and a slow batch each, and the state
of four partitions."""
APART = 1.25
"""Policies whose truths differ by less are in no order."""


def policy_of(kind: str) -> str:
    """What the replay calls what members of a kind do."""
    return POLICY[kind.rpartition("-")[2]]


@dataclass(kw_only=True)
class TimedBounce(Bounce):
    """A bounce by the clock; its ``kind`` is the name of the run."""

    member: str
    """One of :data:`KINDS`."""
    case: str
    classes: str = ""
    """Class path of the Java member."""
    stdin: int = subprocess.PIPE
    joined: list[float] = field(default_factory=list)
    """When each member that is back was let into the group."""
    bounced: list[tuple[int, int, float, float]] = field(default_factory=list)
    """Slot, incarnation, when it was told to end, when its process was gone."""

    def properties(self, slot: int) -> dict[str, Any]:
        """As the others, with short sessions; a KIP-848 member leaves them to the broker."""
        kafka = super().properties(slot) | {"client.id": f"member-{slot}"}
        kafka["session.timeout.ms"] = SESSION_MS
        if self.member.endswith("848"):
            del kafka["session.timeout.ms"], kafka["heartbeat.interval.ms"]
        return kafka

    def command(self, task: dict[str, Any]) -> list[str]:
        """A Python member of ``bounce_member.py``, or the Java one."""
        client, _, how = self.member.rpartition("-")
        if client == "java":
            return self._java_command(task, how)
        kind = how if client == "ours" else self.member
        return super().command({**task, "kind": kind, "delay_ms": DELAY_MS})

    def _java_command(self, task: dict[str, Any], how: str) -> list[str]:
        from holdfast.jvm.java import find_java

        kafka = dict(task["kafka"])
        if how == "848":
            kafka["group.protocol"] = "consumer"
        else:
            kafka["partition.assignment.strategy"] = JAVA + ASSIGNORS[how]
        kafka["max.poll.records"] = 5_000
        options = ["-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
        command = [str(find_java().executable), *options, "-cp", self.classes, "BounceMember"]
        command += [task["diary"], task["topic"], str(task["restore"]), str(task["work"])]
        return command + [f"{key}={value}" for key, value in kafka.items()]

    def run(self) -> None:
        """Write, end and start members by the clock, and close."""
        crash = self.case.startswith("kill")
        period = PERIOD_SECONDS[self.case.partition("-")[0]]
        self._make_topic()
        writer = threading.Thread(target=self._write)
        writer.start()
        members = [self.start(slot) for slot in range(self.options.members)]
        started = list(members)
        try:
            for member in members:
                _join(member)
            self._await_all_reading()
            self.began = time.time()
            due = time.monotonic()
            for slot, member in enumerate(members):
                started.append(self.start(slot))  # it joins later: a process takes time to come up
                due += period
                time.sleep(max(0.0, due - time.monotonic()))
                told = time.time()
                member.send_signal(signal.SIGKILL if crash else signal.SIGTERM)
                member.wait(60)
                self.bounced.append((slot, self.n_starts[slot] - 2, told, time.time()))
                time.sleep(self.options.down)
                _join(started[-1])
                self.joined.append(time.time())
                members[slot] = started[-1]
            time.sleep(period + 2 * self.options.slow)
            self.ended = time.time()
        finally:
            self._halt.set()
            writer.join()
            time.sleep(1 + 2 * self.options.slow)
            for member in started:
                member.kill()  # a goodbye would be one more rebalance of the history
                member.wait()

    def truth(self) -> dict[str, Any]:
        """What the journals say of the bounce."""
        lines = self._more_lines({})
        for slot, n, _, gone in self.bounced:
            lines.append((gone, f"{slot}.{n}", "closed", []))
        lines.sort(key=lambda line: line[0])
        changes, _ = self._moves(lines)
        unread, twice = self._account(lines)
        stops = self._gaps(lines)
        texts = [path.read_bytes() for path in self.folder.glob(f"{self.kind}.*.err")]
        return {
            "type": "run",
            "group": self.topic,
            "kind": self.member,
            "policy": policy_of(self.member),
            "case": self.case,
            "stopped_partition_seconds": round(sum(stops), 2),
            "longest_stop_seconds": round(max(stops, default=0.0), 2),
            "moved": changes,
            "unread": unread,
            "read_twice": twice,
            "began": self.began,
            "ended": self.ended,
            "bounced": self.bounced,
            "joined": self.joined,
            "load_average": round(os.getloadavg()[0], 1),
            "errors": sum(b"Traceback" in text or b"Exception" in text for text in texts),
        }

    def _gaps(self, lines: Sequence[Line]) -> list[float]:
        """Seconds of each stop of a partition."""
        reads: dict[int, list[tuple[float, float]]] = defaultdict(list)  # begin, end of the work
        changes: dict[int, list[float]] = defaultdict(list)
        owned: dict[str, set[int]] = defaultdict(set)
        for at, member, what, more in lines:
            if what == "read":
                work = self.options.slow if member.startswith("0.") else 0.0
                reads[more[0]].append((at, work))
                owned[member].add(more[0])
                continue
            for partition in more[0] if what != "closed" else sorted(owned.pop(member, ())):
                changes[partition].append(at)
        found = []
        for partition, batches in reads.items():
            found += self._stops_of(batches, sorted(changes[partition]))
        return found

    def _stops_of(
        self, batches: Sequence[tuple[float, float]], changes: Sequence[float]
    ) -> list[float]:
        """Stops of one partition: its batches, and when its owner changed or was asked to."""
        pairs = list(itertools.pairwise(batches))
        usual = statistics.median(b[0] - a[0] - a[1] for a, b in pairs)
        found, place = [], 0
        for (at, work), (after, _) in pairs:
            if after < self.began or at > self.ended:
                continue
            while place < len(changes) and changes[place] <= at:
                place += 1
            changed = place < len(changes) and changes[place] <= after
            gap = after - at - work - usual
            if gap > 0 and (changed or gap > UNUSUAL_SECONDS):
                found.append(gap)
        last = batches[-1]
        if last[0] + last[1] < self.ended - UNUSUAL_SECONDS:
            found.append(self.ended - last[0] - last[1])
        return found


def _join(member: subprocess.Popen[bytes]) -> None:
    """Let a member that waits join its group."""
    assert member.stdin is not None
    member.stdin.write(b"\n")
    member.stdin.close()


def java_classes(folder: Path) -> str:
    """Compile the Java member; the class path that runs it."""
    from holdfast.jvm.jars import broker_jars
    from holdfast.jvm.java import find_java

    jars = os.pathsep.join(map(str, broker_jars()))
    source = Path(__file__).with_name("peers") / "BounceMember.java"
    compiler = [str(find_java().executable.with_name("javac")), "-cp", jars, "-d", str(folder)]
    subprocess.run([*compiler, str(source)], check=True)
    return f"{folder}{os.pathsep}{jars}"


def record(options: argparse.Namespace) -> None:
    """Play all bounces, and keep their truth and their history."""
    from holdfast.cluster.broker.broker import Broker, BrokerSettings

    folder: Path = options.folder
    diaries = folder / "diaries"
    diaries.mkdir(parents=True, exist_ok=True)
    classes = java_classes(diaries)
    tasks = [
        (kind, case, n)
        for n in range(options.repeat)
        for case in options.cases
        for kind in options.kinds
    ]
    with (
        Broker.start(settings=BrokerSettings(properties=BROKER)) as broker,
        (folder / "runs.jsonl").open("w", encoding="utf-8") as out,
        ThreadPoolExecutor(options.parallel) as pool,
    ):

        def play(task: tuple[str, str, int]) -> str:
            kind, case, n = task
            state = case.endswith("state")
            own = argparse.Namespace(
                members=options.members,
                partitions=options.partitions,
                down=options.down,
                restore=0.5 if state else 0.0,
                slow=1.2 if state else 0.0,
                static=False,
            )
            bounce = TimedBounce(
                kind=f"{kind}.{case}.{n}",
                member=kind,
                case=case,
                options=own,
                bootstrap=broker.bootstrap,
                folder=diaries,
                classes=classes,
            )
            try:
                bounce.run()
                return json.dumps(bounce.truth())
            except (SystemExit, Exception) as error:
                # one group that did not come up must not take the others' truth with it
                text = f"{type(error).__name__}: {error}"
                return json.dumps({"type": "failed", "group": bounce.topic, "error": text})

        print(json.dumps({"type": "versions", **versions()}), flush=True)
        command = [str(Path(sys.executable).with_name("holdfast")), "history", "-q"]
        command += ["-b", broker.bootstrap, "-o", str(folder / "tables"), "--format", "json"]
        try:
            for line in pool.map(play, tasks):
                out.write(line + "\n")
                out.flush()
                print(line, flush=True)
        finally:  # whatever ends the recording: the history is gone with its broker
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def read_runs(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """The runs of these folders, each with its folder."""
    found = [
        {**json.loads(line), "folder": folder}
        for folder in folders
        for line in (folder / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    return [run for run in found if run["type"] == "run"]


def repeat_of(run: dict[str, Any]) -> int:
    """The number of the repeat that a run belongs to."""
    return int(run["group"].rpartition(".")[2])


def runner(kind: str, policy: str) -> str:
    """Who runs a policy for the client of a kind: that client, or holdfast what only it has."""
    client = kind.rpartition("-")[0]
    own = f"{client}-{ {v: k for k, v in POLICY.items() if k not in OURS}.get(policy, '') }"
    return own if own in KINDS else f"ours-{policy}"


def predict(options: argparse.Namespace) -> None:
    """Replay every recorded group under every other policy, and compare."""
    every = read_runs(options.folders)
    runs = [run for run in every if options.recorded in (None, repeat_of(run))]
    truth: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for run in every:
        if options.truth in (None, repeat_of(run)):
            truth[run["kind"], run["case"]].append(run)
    lines = []
    for folder in options.folders:
        for state in (False, True):
            of_group = defaultdict(list)
            for row in _replayed(folder, [*known_costs(state=state), *options.cost]):
                of_group[row["group"]].append(row)
            for run in runs:
                if run["folder"] == folder and run["case"].endswith("state") == state:
                    lines += [_compared(run, row, truth) for row in of_group[run["group"]]]
    for line in lines:
        print(json.dumps(line))
    print(json.dumps(summary(lines)))


def known_costs(*, state: bool) -> list[str]:
    """What whoever runs the members knows of them."""
    known = {"heartbeat": 1_000, "broker-heartbeat": 1_000}
    known |= {"session": SESSION_MS, "broker-session": SESSION_MS, "restart": 2_500}
    if state:
        known["hand-over"] = STATE_MS
    return [f"{name}={value}ms" for name, value in known.items()]


def _replayed(folder: Path, costs: Sequence[str]) -> list[dict[str, Any]]:
    """All groups of a folder under all policies, by ``holdfast replay``."""
    command = [str(Path(sys.executable).with_name("holdfast")), "replay", "-q", "--format", "json"]
    command += ["--input", str(folder / "tables"), f"--delay={DELAY_MS}ms"]
    command += [f"--cost={cost}" for cost in costs]
    command += [f"--policy={policy}" for policy in dict.fromkeys(POLICY.values())]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def _compared(
    run: dict[str, Any],
    row: dict[str, Any],
    truth: dict[tuple[str, str], list[dict[str, Any]]],
) -> dict[str, Any]:
    """A prediction beside what the same bounce then cost."""
    kind = runner(run["kind"], row["policy"])
    measured = [r["stopped_partition_seconds"] for r in truth[kind, run["case"]]]
    moved = [r["moved"] for r in truth[kind, run["case"]]]
    middle = statistics.median(measured) if measured else None
    low, high = row["partition_seconds_stopped_low"], row["partition_seconds_stopped"]
    told = middle is not None and high is not None
    took = row["revocations"] and told and (middle - low) / row["revocations"]
    return {
        "type": "prediction",
        "recorded": run["kind"],
        "case": run["case"],
        "policy": row["policy"],
        "actual": row["actual"],
        "run_by": kind,
        "low": low,
        "high": high,
        "measured": middle,
        "all_measured": measured,
        "inside": low <= middle <= high if told else None,
        "revocations": row["revocations"],
        "hand_over_ms": row["hand_over_ms"],
        "hand_over_took_ms": round(1000 * took) if took else None,
        "rebalances": row["rebalances"],
        "moved_predicted": row["moved"],
        "moved_measured": statistics.median(moved) if moved else None,
        "fidelity": row["fidelity"],
        "fidelities": [row[name] for name in FIDELITIES],
        "reason": row["reason"],
    }


def summary(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How often the truth of other policies lay inside, and pairs in the wrong order."""
    told = [line for line in lines if line["inside"] is not None and not line["actual"]]
    return {
        "type": "summary",
        "all": _summed(told),
        **{case: _summed([line for line in told if line["case"] == case]) for case in CASES},
        "own_setting": _summed(
            [line for line in lines if line["inside"] is not None and line["actual"]]
        ),
        "fidelities": {
            name: _spread([line["fidelities"][at] for line in lines if line["actual"]])
            for at, name in enumerate(FIDELITIES)
        },
    }


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    if not known:
        return {"n": 0}
    return {
        "n": len(known),
        "whole": sum(value == 1 for value in known),
        "median": round(statistics.median(known), 2),
        "least": round(min(known), 2),
    }


def _proportion(found: int, n: int) -> list[float] | None:
    """Between which bounds a share lies with 19 chances in 20 (Wilson, 1927)."""
    if not n:
        return None
    z = statistics.NormalDist().inv_cdf(0.975)
    mid = (found / n + z * z / (2 * n)) / (1 + z * z / n)
    off = z / (1 + z * z / n) * ((found / n * (1 - found / n) + z * z / (4 * n)) / n) ** 0.5
    return [round(max(0.0, mid - off), 2), round(min(1.0, mid + off), 2)]


def _summed(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    inside = sum(line["inside"] for line in lines)
    pairs, wrong = 0, []
    of_group = defaultdict(list)
    for line in lines:
        of_group[line["recorded"], line["case"]].append(line)
    for key, found in of_group.items():
        for one, other in itertools.permutations(found, 2):
            if one["measured"] * APART < other["measured"]:
                pairs += 1
                if one["high"] > other["high"]:
                    wrong.append([*key, one["policy"], other["policy"]])
    return {
        "n": len(lines),
        "inside": inside,
        "inside_bounds": _proportion(inside, len(lines)),
        "below": sum(line["measured"] < line["low"] for line in lines),
        "above": sum(line["measured"] > line["high"] for line in lines),
        "pairs": pairs,
        "wrong": len(wrong),
        "wrong_order": wrong,
    }


def main() -> None:
    """Record, or predict."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record", help="play the bounces")
    one.add_argument("folder", type=Path)
    one.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND")
    one.add_argument("--cases", nargs="+", choices=CASES, default=CASES, metavar="CASE")
    one.add_argument("--repeat", type=int, default=1)
    one.add_argument("--parallel", type=int, default=1, help="groups at the same time")
    one.add_argument("--members", type=int, default=4)
    one.add_argument("--partitions", type=int, default=12)
    one.add_argument("--down", type=float, default=2.0)
    two = commands.add_parser("predict", help="compare with replays of these recordings")
    two.add_argument("folders", type=Path, nargs="+")
    two.add_argument("--cost", action="append", default=[])
    two.add_argument("--recorded", type=int, help="histories of this repeat alone")
    two.add_argument("--truth", type=int, help="truth of this repeat alone")
    options = parser.parse_args()
    {"record": record, "predict": predict}[options.command](options)


if __name__ == "__main__":
    main()

"""Many seeds of lies: ``python -m tests.hostile.soak --seeds 20000`` prints JSON lines.

**Rules.** The seeds are dealt to the assignors in turn. A broken law is printed at once, as a line
of its own with its seed, and the exit code is then 1. Totals are printed every hundred seeds with
the number that ``--first`` takes to go on from there. Of every assignor every thousandth round that
is lied in is led again to measure its costs beside those of an honest turn. ``--only`` runs the
seeds of some assignors. ``--habit`` is a liar that always does the same.

**Strategy.** A seed is run, one JVM that lives as long as the run answers its rounds, then the laws
are applied. ``--no-java`` leaves Java out. Nothing of a seed forms a cycle that lives on, so the
garbage is collected every hundred seeds only.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections import Counter
from contextlib import nullcontext
from itertools import pairwise
from subprocess import Popen
from typing import Any

from tests.hostile.cost import ratios_of
from tests.hostile.group import (
    ASSIGNORS,
    N_LYING,
    REMEMBERING,
    TOPICS,
    HostileGroup,
    Round,
)
from tests.hostile.java import JavaAnswers, JavaAssignor
from tests.hostile.laws import JavaRound, broken_laws, kept
from tests.hostile.lies import HABITS

REPORTED = 100
EVERY = 1_000


class Totals:
    """Numbers of one assignor over all seeds so far."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.thrown: Counter[str] = Counter()
        self.least: dict[str, float] = {}
        self.worst: dict[str, float] = {}

    def add(self, rounds: list[Round], java: JavaAnswers | None) -> None:
        """Take the lying rounds of a seed."""
        for i, done in enumerate(rounds):
            owned = sum(map(len, done.before.values()))
            ours = kept(done)
            self.counts["owned"] += owned
            self.counts["kept"] += ours
            self._least("least kept in a round", ours / max(1, owned))
            if java is not None:
                self.counts["kept by Java"] += java.kept[i].honest
                self._least("least kept by Java in a round", java.kept[i].honest / max(1, owned))
                if java.kept[i].honest:
                    self._least("least ratio to Java", ours / java.kept[i].honest)
            if self.counts["rounds"] % EVERY == 0:
                self._measure(done)
            self.counts["rounds"] += 1
        if java is not None:
            self.thrown.update(why.split()[0] for why in java.thrown.values())

    def _least(self, name: str, value: float) -> None:
        self.least[name] = min(value, self.least.get(name, value))

    def _measure(self, done: Round) -> None:
        ratios = ratios_of(done.name, done.request, done.truth)
        for name, ratio in ratios.items():
            self.worst[name] = max(ratio, self.worst.get(name, 0))

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.counts,
            **{name: round(value, 3) for name, value in self.least.items()},
            "worst cost ratios": {name: round(value, 2) for name, value in self.worst.items()},
            "Java could not plan": dict(self.thrown.most_common()),
        }


def _asked(lying: list[Round]) -> list[JavaRound]:
    return [JavaRound(done.request.members) for done in lying]


def in_processes(options: argparse.Namespace) -> int:
    """Run neighbouring ranges of the seeds side by side; return the worst exit code."""
    edges = [i * options.seeds // options.processes for i in range(options.processes + 1)]
    more = ["--largest", str(options.largest), *["--no-java"] * options.no_java]
    more += ["--habit", options.habit]
    more += ["--only", *options.only] if options.only else []
    running = []
    for begin, end in pairwise(edges):
        part = ["--first", str(options.first + begin), "--seeds", str(end - begin)]
        running.append(Popen([sys.executable, "-m", "tests.hostile.soak", *part, *more]))
    return max(each.wait() for each in running)


def _run(
    name: str,
    seed: int,
    java: JavaAssignor | None,
    totals: Totals,
    *,
    largest: int,
    habit: str,
) -> int:
    """Run one seed and print the laws that it broke; return how many."""
    rounds = list(HostileGroup(name, seed, largest, habit).run())
    lying = rounds[:N_LYING]
    answers = None if java is None else java.ask(_asked(lying))
    try:
        if java is None or answers is None:
            laws = broken_laws(rounds)
        else:
            laws = broken_laws(rounds, answers.kept, java.kept)
    except Exception as error:  # the next seeds are run all the same
        laws = [f"the laws cannot be applied: {error!r}"]
    for law in laws:
        print(json.dumps({"assignor": name, "seed": seed, "broken": law}), flush=True)
    totals.add(lying, answers)
    return len(laws)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=100_000)
    parser.add_argument("--largest", type=int, default=1 << 16, help="bytes of the largest lie")
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument("--only", nargs="+", choices=list(ASSIGNORS), help="pass the others' seeds")
    parser.add_argument("--habit", default="", choices=list(HABITS), help="where members remember")
    parser.add_argument("--processes", type=int, default=1, help="each runs a part of the seeds")
    options = parser.parse_args()
    if options.processes > 1:
        return in_processes(options)
    totals = {name: Totals() for name in ASSIGNORS}
    n_broken = 0
    gc.disable()
    with nullcontext() if options.no_java else JavaAssignor() as java:
        for seed in range(options.first, options.first + options.seeds):
            name = list(ASSIGNORS)[seed % len(ASSIGNORS)]
            if name in (options.only or ASSIGNORS):
                n_broken += _run(
                    name,
                    seed,
                    java,
                    totals[name],
                    largest=options.largest,
                    habit=options.habit if name in REMEMBERING else "",
                )
            n_run = seed + 1 - options.first
            if n_run % REPORTED == 0 or n_run == options.seeds:
                gc.collect()
                report = {"seeds": n_run, "next": seed + 1, "partitions": sum(TOPICS.values())}
                report |= {each: total.to_dict() for each, total in totals.items()}
                print(json.dumps({**report, "broken": n_broken}), flush=True)
    return 1 if n_broken else 0


if __name__ == "__main__":
    sys.exit(main())

"""What Java's ``CooperativeStickyAssignor`` leaves to honest members, of the same bytes.

**Rules.** Java reads every subscription as a Java leader does. A round in which it throws leaves
nobody anything: the leader's exception ends the round, and its group has no assignment. Two more
kinds of answer count like that, because no group can follow them: a partition that goes to two
members, and one that does not exist (Java does not check the numbers that a member claims).

**Strategy.** One JVM answers any number of rounds, one line each (``AssignorOracle.java``).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.assignors.java_assignors import SOURCE
from tests.hostile.group import TOPICS, Round
from tests.hostile.laws import KeptByJava
from tests.hostile.lies import LIAR

from holdfast.jvm.jars import broker_jars
from holdfast.jvm.java import find_java


@dataclass(frozen=True, slots=True)
class JavaAnswers:
    """Partitions that honest members keep in each round, and why Java threw where it did."""

    kept: list[KeptByJava]
    thrown: dict[int, str]


def line_of(done: Round) -> str:
    """A round as the oracle reads it."""
    topics = ";".join(f"{topic}:{count}:-" for topic, count in TOPICS.items())
    members = ";".join(
        f"{m.member_id}:{m.instance_id or '-'}:{m.metadata.hex()}" for m in done.request.members
    )
    return f"kept\t{topics}\t{members}\n"


def ask_java(rounds: Iterable[Round]) -> JavaAnswers:
    """Let Java plan each of these rounds."""
    classpath = os.pathsep.join(map(str, broker_jars()))
    options = ("-Xmx512m", "-Dlog4j2.level=OFF", "-cp", classpath)  # it logs each double claim
    command = [str(find_java().executable), *options, str(SOURCE)]
    with tempfile.TemporaryFile("w+") as asked:
        asked.writelines(map(line_of, rounds))
        asked.seek(0)
        done = subprocess.run(
            command, stdin=asked, capture_output=True, text=True, timeout=3_000, check=True
        )
    return answers_of(done.stdout.splitlines())


def answers_of(lines: Iterable[str]) -> JavaAnswers:
    """Read what the oracle printed."""
    kept, thrown = [], {}
    for i, line in enumerate(lines):
        if line.startswith("!"):
            thrown[i] = line[1:]
            kept.append(KeptByJava(0, 0))
        else:
            counts = dict(_counts(line))
            unread = counts.pop("")
            in_all = sum(counts.values())
            kept.append(KeptByJava(in_all - counts.get(LIAR, 0), in_all, unread))
    return JavaAnswers(kept, thrown)


def _counts(line: str) -> Iterator[tuple[str, int]]:
    for row in line.split(";"):
        name, _, count = row.rpartition("=")
        yield name, int(count)

"""What Java's ``CooperativeStickyAssignor`` leaves to honest members, of the same bytes.

**Rules.** Java reads every subscription as a Java leader does. A round in which it throws leaves
nobody anything: the leader's exception ends the round, and its group has no assignment. Two more
kinds of answer count like that, because no group can follow them: a partition that goes to two
members, and one that does not exist (Java does not check the numbers that a member claims).

**Strategy.** One JVM answers any number of rounds, one line each (``AssignorOracle.java``). A
thread writes the rounds while the answers are read, so that neither pipe fills up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from subprocess import PIPE, Popen
from threading import Thread

from tests.assignors.java_assignors import SOURCE
from tests.hostile.group import TOPICS
from tests.hostile.laws import NOTHING_KEPT, JavaRound, KeptByJava
from tests.hostile.lies import LIAR

from holdfast.jvm.jars import broker_jars
from holdfast.jvm.java import find_java


@dataclass(frozen=True, slots=True)
class JavaAnswers:
    """Partitions that honest members keep in each round, and why Java threw where it did."""

    kept: list[KeptByJava]
    thrown: dict[int, str]


def line_of(asked: JavaRound) -> str:
    absent: dict[str, list[str]] = {topic: [] for topic in TOPICS}
    for topic, number in sorted(asked.absent):
        absent[topic].append(str(number))
    topics = ";".join(f"{t}:{count}:-:{','.join(absent[t])}" for t, count in TOPICS.items())
    members = ";".join(
        f"{m.member_id}:{m.instance_id or '-'}:{m.metadata.hex()}" for m in asked.members
    )
    return f"kept\t{topics}\t{members}\n"


class JavaAssignor:
    """One JVM that plans rounds for as long as the block lasts."""

    def __enter__(self) -> JavaAssignor:
        classpath = os.pathsep.join(map(str, broker_jars()))
        options = ("-Xmx512m", "-XX:+UseSerialGC", "-Dlog4j2.level=OFF")  # it logs double claims
        command = [str(find_java().executable), *options, "-cp", classpath, str(SOURCE)]
        self._process = Popen(command, stdin=PIPE, stdout=PIPE, text=True, encoding="utf-8")
        return self

    def __exit__(self, *failure: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, rounds: Sequence[JavaRound]) -> JavaAnswers:
        feeder = Thread(target=self._feed, args=(rounds,))
        feeder.start()
        lines = list(islice(self._answers(), len(rounds)))
        feeder.join()
        if len(lines) < len(rounds):
            raise RuntimeError(f"Java ended after {len(lines)} of {len(rounds)} rounds")
        return answers_of(lines)

    def kept(self, rounds: Sequence[JavaRound]) -> list[KeptByJava]:
        """What Java leaves to members in each of these rounds."""
        return self.ask(rounds).kept

    def _feed(self, rounds: Iterable[JavaRound]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.writelines(map(line_of, rounds))
        self._process.stdin.flush()

    def _answers(self) -> Iterable[str]:
        assert self._process.stdout is not None
        return (line.rstrip("\n") for line in self._process.stdout)


def answers_of(lines: Iterable[str]) -> JavaAnswers:
    kept, thrown = [], {}
    for i, line in enumerate(lines):
        if line.startswith("!"):
            thrown[i] = line[1:]
            kept.append(NOTHING_KEPT)
        else:
            *rows, (_, unread) = (row.rpartition("=")[::2] for row in line.split(";"))
            counts = {name: tuple(map(int, count.split(","))) for name, count in rows}
            honest = [count for name, count in counts.items() if name != LIAR]
            kept.append(
                KeptByJava(
                    honest=sum(n for n, _ in honest),
                    in_all=sum(n for n, _ in counts.values()),
                    disputed=sum(n for _, n in honest),
                    unread=int(unread),
                )
            )
    return JavaAnswers(kept, thrown)

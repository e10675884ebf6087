"""The document's event lists, played by the real leader and printed as the document prints them.

Each list stands in ``tests/transcripts``. After a change that is meant, run with
``HOLDFAST_REWRITE=1`` and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.sim.hand_played import HandPlayedGroup

from holdfast.core.machine.policy import Policy
from holdfast.core.model.constants import Design

FOLDER = Path(__file__).parents[1] / "transcripts"
SIMPLE = Policy(design=Design.SIMPLE)
DEFERRED = Policy(design=Design.DEFERRED, delay_ms=30_000)
INCREMENTAL = Policy(design=Design.INCREMENTAL, delay_ms=30_000, batch=1, interval_ms=5_000)


class Tape:
    """A play and what was said in it."""

    def __init__(self, policy: Policy, partitions: int, **owned: str):
        self.play = HandPlayedGroup.of(policy, {"T": partitions}, **owned)
        start = ", ".join(f"{name}({what})" for name, what in self.play.all_owned().items())
        self.lines = [f"Initial group and assignment: {start}"]

    def leave(self, name: str) -> None:
        self.play.leave(name)
        self.lines.append(f"{name} leaves")

    def join(self, name: str) -> None:
        self.play.join(name)
        self.lines.append(f"{name} joins")

    def wait(self, for_ms: int) -> None:
        self.play.now_ms += for_ms
        self.lines.append(f"{for_ms / 1000:g} s pass")

    def round(self) -> None:
        claims = [f"{name}(T,assigned:{own})" for name, own in self.play.all_owned().items()]
        done = self.play.round()
        wait = f"{done.delay_ms / 1000:g} s" if done.delay_ms else "-"
        told = [f"{name}({self.play.said(name)},{wait})" for name in self.play.all_owned()]
        self.lines += [
            f"Members join: {', '.join(claims)}",
            f"Leader sends: {', '.join(told)}{' and another round' if done.again else ''}",
        ]

    def rounds(self) -> None:
        while True:
            self.round()
            if not self.play.last.again:
                return


FOUR = {"A": "T0", "B": "T1", "C": "T2", "D": "T3"}
THREE = {"A": "T0,T3", "B": "T1", "C": "T2"}
TWO = {"A": "T0,T1,T2", "B": "T3,T4,T5"}

# Name of the transcript -> policy, who owns what at first, what happens.
LISTS: dict[str, tuple[Policy, dict[str, str], str]] = {
    "design_i_member_joins": (SIMPLE, THREE, "join D, rounds"),
    "design_i_member_leaves": (SIMPLE, FOUR, "leave D, rounds"),
    "design_i_member_bounces": (SIMPLE, FOUR, "leave D, rounds, join D2, rounds"),
    "design_i_leader_exits": (SIMPLE, FOUR, "leave A, rounds, join E, rounds"),
    "design_ii_member_joins": (DEFERRED, THREE, "join D, rounds"),
    "design_ii_member_leaves": (DEFERRED, FOUR, "leave D, round, wait 30000, round"),
    "design_ii_member_bounces": (DEFERRED, FOUR, "leave D, round, wait 12000, join D2, round"),
    "design_ii_leader_exits": (
        DEFERRED,
        FOUR,
        "leave D, round, wait 12000, leave A, round, wait 18000, round, wait 12000, round",
    ),
    "design_iii_scale_up": (
        INCREMENTAL,
        TWO,
        "join C, rounds, wait 5000, rounds, wait 5000, rounds",
    ),
}


def played(policy: Policy, owned: dict[str, str], events: str) -> Tape:
    tape = Tape(policy, sum(len(what.split(",")) for what in owned.values()), **owned)
    for event in events.split(", "):
        match event.split():
            case ["join", name]:
                tape.join(name)
            case ["leave", name]:
                tape.leave(name)
            case ["wait", for_ms]:
                tape.wait(int(for_ms))
            case ["round"]:
                tape.round()
            case ["rounds"]:
                tape.rounds()
            case _:
                raise AssertionError(event)
    return tape


@pytest.mark.parametrize("name", LISTS)
def test_an_event_list(name):
    text = "\n".join(played(*LISTS[name]).lines) + "\n"
    file = FOLDER / f"{name}.txt"
    if os.environ.get("HOLDFAST_REWRITE"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text


def test_every_transcript_is_played():
    assert sorted(f.stem for f in FOLDER.glob("*.txt")) == sorted(LISTS)

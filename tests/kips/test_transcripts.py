"""The document's event lists, played by the real leader and printed as the document prints them.

Each list stands in ``tests/transcripts``. After a change that is meant, run with
``HOLDFAST_REWRITE=1`` and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.machine.rounds import Play

from holdfast.machine.policy import Policy
from holdfast.wire.incremental import Design

FOLDER = Path(__file__).parents[1] / "transcripts"
SIMPLE = Policy(design=Design.SIMPLE)
DEFERRED = Policy(design=Design.DEFERRED, delay_ms=30_000)
INCREMENTAL = Policy(design=Design.INCREMENTAL, delay_ms=30_000, batch=1, interval_ms=5_000)


class Tape:
    """A play and what was said in it."""

    def __init__(self, policy: Policy, partitions: int, **owned: str):
        self.play = Play.of(policy, {"T": partitions}, **owned)
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


def design_i_member_joins() -> Tape:
    tape = Tape(SIMPLE, 4, A="T0,T3", B="T1", C="T2")
    tape.join("D")
    tape.rounds()
    return tape


def design_i_member_leaves() -> Tape:
    tape = Tape(SIMPLE, 4, A="T0", B="T1", C="T2", D="T3")
    tape.leave("D")
    tape.rounds()
    return tape


def design_i_member_bounces() -> Tape:
    tape = Tape(SIMPLE, 4, A="T0", B="T1", C="T2", D="T3")
    tape.leave("D")
    tape.rounds()
    tape.join("D2")
    tape.rounds()
    return tape


def design_i_leader_exits() -> Tape:
    tape = Tape(SIMPLE, 4, A="T0", B="T1", C="T2", D="T3")
    tape.leave("A")
    tape.rounds()
    tape.join("E")
    tape.rounds()
    return tape


def design_ii_member_joins() -> Tape:
    tape = Tape(DEFERRED, 4, A="T0,T3", B="T1", C="T2")
    tape.join("D")
    tape.rounds()
    return tape


def design_ii_member_leaves() -> Tape:
    tape = Tape(DEFERRED, 4, A="T0", B="T1", C="T2", D="T3")
    tape.leave("D")
    tape.round()
    tape.wait(30_000)
    tape.round()
    return tape


def design_ii_member_bounces() -> Tape:
    tape = Tape(DEFERRED, 4, A="T0", B="T1", C="T2", D="T3")
    tape.leave("D")
    tape.round()
    tape.wait(12_000)
    tape.join("D2")
    tape.round()
    return tape


def design_ii_leader_exits() -> Tape:
    tape = Tape(DEFERRED, 4, A="T0", B="T1", C="T2", D="T3")
    tape.leave("D")
    tape.round()
    tape.wait(12_000)
    tape.leave("A")
    tape.round()
    tape.wait(18_000)
    tape.round()
    tape.wait(12_000)
    tape.round()
    return tape


def design_iii_scale_up() -> Tape:
    tape = Tape(INCREMENTAL, 6, A="T0,T1,T2", B="T3,T4,T5")
    tape.join("C")
    for _ in range(2):
        tape.rounds()
        tape.wait(5_000)
    tape.rounds()
    return tape


LISTS: dict[str, Callable[[], Tape]] = {
    play.__name__: play
    for play in (
        design_i_member_joins,
        design_i_member_leaves,
        design_i_member_bounces,
        design_i_leader_exits,
        design_ii_member_joins,
        design_ii_member_leaves,
        design_ii_member_bounces,
        design_ii_leader_exits,
        design_iii_scale_up,
    )
}


@pytest.mark.parametrize("name", LISTS)
def test_an_event_list(name):
    text = "\n".join(LISTS[name]().lines) + "\n"
    file = FOLDER / f"{name}.txt"
    if os.environ.get("HOLDFAST_REWRITE"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text


def test_every_transcript_is_played():
    assert sorted(f.stem for f in FOLDER.glob("*.txt")) == sorted(LISTS)

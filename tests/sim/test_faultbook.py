"""The book of fault scenarios: each number is played once, under its own name."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.sim.faultbook import TITLES, slug
from holdfast.sim.soak import Faults

PLAYED = re.compile(r"^def test_(\d\d)_(\w+)\(", re.M)


def test_every_number_is_played_once_by_its_name():
    found = []
    for file in sorted(Path(__file__).parent.glob("test_faults_*.py")):
        found += PLAYED.findall(file.read_text(encoding="utf-8"))
    assert sorted(int(n) for n, _ in found) == sorted(TITLES) == list(range(1, 73))
    names = {int(number): name for number, name in found}
    assert {n: name for n, name in names.items() if name != slug(n)} == {}


def test_random_faults_are_the_same_world_twice():
    a, b = (Faults(5, None, None, trace=True).play().trace for _ in range(2))
    assert a == b

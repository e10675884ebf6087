"""Fault scenarios by number: every one of them is played, and the scenes come as they expect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.sim.fault_scripts import SCRIPTS, by_number
from holdfast.sim.faultbook import TITLES, slug
from holdfast.sim.scenarios import Setup
from holdfast.sim.scene import Scene, until
from holdfast.sim.scenes import LIVE, SCENES, play_scene
from holdfast.sim.soak import Faults

PLAYED = re.compile(r"^def test_(\d\d)_(\w+)\(", re.M)


def test_every_number_is_a_script_or_a_scene_or_says_what_checks_it():
    assert sorted([*SCRIPTS, *SCENES, *LIVE]) == sorted(TITLES) == list(range(1, 73))


def test_a_scene_has_no_script():
    with pytest.raises(ConfigError, match=r"38, three claim it, .*: it is a scene"):
        by_number(Setup(), 38)


def test_scripts_and_what_is_checked_elsewhere_have_tests_by_their_names():
    found = []
    for file in sorted(Path(__file__).parent.glob("test_faults_*.py")):
        found += PLAYED.findall(file.read_text(encoding="utf-8"))
    names = {int(number): name for number, name in found}
    assert len(names) == len(found)
    assert names.keys() >= {*SCRIPTS, *LIVE}
    assert {n: name for n, name in names.items() if name != slug(n)} == {}


@pytest.mark.parametrize("number", SCENES, ids=lambda n: f"{n:02}_{slug(n)}")
def test_a_scene(number):
    scene = play_scene(number)
    assert [e.text for e in scene.expected if not e.holds] == []
    assert scene.violations == ()
    assert scene.expected
    title = (SCENES[number].__doc__ or "").strip()
    assert title.removesuffix(".").lower() == TITLES[number].lower()


def test_a_scene_that_does_not_come_as_expected_says_so():
    def never(scene: Scene) -> None:
        w = scene.world()
        scene.expect(w.rounds == 0, "there was no round")
        until(w, lambda: False, 10)

    scene = Scene().play(never)
    assert not scene.well
    failed = [e.text for e in scene.expected if not e.holds]
    assert failed == ["there was no round", "it never came to that"]


def test_random_faults_are_the_same_world_twice():
    a, b = (Faults(5, None, None, trace=True).play().trace for _ in range(2))
    assert a == b

"""Fault scenarios by number: every one of them is played, and the scenes come as they expect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.proof.random_runs import Faults
from tests.sim.faults.scene import Scene, until
from tests.sim.faults.scenes import LIVE, SCENES, play_scene
from tests.sim.faults.scripts import SCRIPTS, by_number
from tests.sim.faults.titles import TITLES, slug

from holdfast.sim.scenarios import Setup, simulate

PLAYED = re.compile(r"^def test_(\d\d)_(\w+)\(", re.M)


def test_every_number_is_a_script_or_a_scene_or_says_what_checks_it():
    assert sorted([*SCRIPTS, *SCENES, *LIVE]) == sorted(TITLES) == list(range(1, 76))


def test_scripts_and_what_is_checked_elsewhere_have_tests_by_their_names():
    found = []
    for file in sorted(Path(__file__).parent.glob("test_faults_*.py")):
        found += PLAYED.findall(file.read_text(encoding="utf-8"))
    names = {int(number): name for number, name in found}
    assert len(names) == len(found)
    assert names.keys() >= {*SCRIPTS, *LIVE}
    assert {n: name for n, name in names.items() if name != slug(n)} == {}


SCRIPTS_PLAYED = [
    *((number, "deferred") for number in SCRIPTS),
    *((number, "incremental") for number in (16, 22, 48, 61)),
    (15, "eager"),
]


@pytest.mark.parametrize(
    ("number", "policy"),
    SCRIPTS_PLAYED,
    ids=[f"{number:02}_{slug(number)}-{policy}" for number, policy in SCRIPTS_PLAYED],
)
def test_a_script(number, policy):
    report = simulate(by_number(Setup(policy=policy, members=4, partitions=8), number))
    assert report.scenario == f"{number:02}_{slug(number)}"
    assert report.violations == ()


@pytest.mark.parametrize("number", [7, 27, 38, 64, 72])
def test_a_scene_repeats(number):
    first, again = play_scene(number), play_scene(number)
    assert (first.expected, first.trace) == (again.expected, again.trace)


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

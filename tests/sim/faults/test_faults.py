"""Fault scenarios by number: every one of them is played, and the scenes come as they expect."""

from __future__ import annotations

import pytest
from tests.proof.random_runs import Faults
from tests.sim.faults.scene import Scene, until
from tests.sim.faults.scenes import SCENES, play_scene
from tests.sim.faults.titles import TITLES, slug
from tools.pages.faults import played_by_number


def test_every_number_is_a_scene_or_a_test_with_its_title():
    tests = played_by_number()
    assert sorted([*SCENES, *tests]) == sorted(TITLES) == list(range(1, 76))
    for number, test in tests.items():
        assert test.endswith(f"::test_{number:02}_{slug(number)}")


@pytest.mark.parametrize("number", [7, 27, 38, 64])
def test_a_scene_repeats(number):
    first, again = play_scene(number), play_scene(number)
    assert (first.expected, first.trace) == (again.expected, again.trace)


@pytest.mark.parametrize("number", SCENES, ids=lambda n: f"{n:02}_{slug(n)}")
def test_a_scene(number):
    scene = play_scene(number)
    assert [e.text for e in scene.expected if not e.holds] == []
    assert scene.violations == ()
    assert scene.expected


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

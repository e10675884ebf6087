"""Colours against simulated colour blindness (Machado, Oliveira, Fernandes 2009, severity 1)."""

import itertools
import re

import numpy as np
import pytest

from holdfast.fleet.analysis.group.lag_over_time import MOST_TOPICS
from holdfast.fleet.report.drawing.markup import asset
from holdfast.fleet.report.drawing.payload import COLOURS, HUES

MACHADO = {
    "none": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    ratio = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", MACHADO)
def test_the_first_colours_differ_for_every_kind_of_sight(sight: str) -> None:
    seen = [lab(np.array(MACHADO[sight]) @ linear(c)) for c in COLOURS[: len(HUES)]]
    # A difference (CIE76) of 2.3 is just noticeable; 11 is told apart at a glance.
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 11


@pytest.mark.parametrize(("surface", "least"), [("#ffffff", 1.15), ("#161f1c", 1.8)])
def test_every_colour_stands_out_on_paper_and_in_the_dark(surface: str, least: float) -> None:
    def luminance(colour: str) -> float:
        return float(TO_XYZ[1] @ linear(colour)) + 0.05

    for colour in COLOURS:
        low, high = sorted((luminance(colour), luminance(surface)))
        assert high / low >= least, colour


def test_lines_of_charts_stand_out_in_both_themes() -> None:
    """By WCAG 2.1, 1.4.11: a graphical object has a contrast of 3 to 1."""
    themes = re.findall(
        r"--paper: (#\w+); --surface: (#\w+);.*?--c0: ([^}]*)}", asset("style.css"), re.S
    )
    assert len(themes) == 3  # light, dark by the system, dark by choice
    for paper, surface, rest in themes:
        lines = re.findall(r"#\w{6}", rest)
        assert len(lines) == MOST_TOPICS + 1
        for line, ground in itertools.product(lines, (paper, surface)):
            low, high = sorted(TO_XYZ[1] @ linear(one) + 0.05 for one in (line, ground))
            assert high / low >= 3, (line, ground)


def test_all_colours_are_distinct() -> None:
    assert len(set(COLOURS)) == len(COLOURS) == 3 * len(HUES)

"""Downtime in words: one number, in units that a person can use."""

from __future__ import annotations

import math
import re

import pytest

from holdfast.fleet.report.drawing.markup import (
    WIDE,
    bounds,
    cost_bar,
    downtime,
    first_words,
    span,
    spark,
)


@pytest.mark.parametrize(
    ("lower", "upper", "said"),
    [
        (0.0, 6_540.0, "up to 1 h 49 min"),
        (720.0, 800.0, "up to 13 min"),
        (12.0, 265_239.0, "up to 3.1 days"),
        (720.0, 725.0, "12 min"),  # to the minute they are one
        (0.0, 0.0, "0 s"),
        (0.0, math.nan, "–"),
    ],
)
def test_one_number_stands_for_a_downtime(lower, upper, said):
    assert downtime(lower, upper) == said


@pytest.mark.parametrize(
    ("lower", "upper", "said"),
    [
        (0.0, 469.0, "at most 469"),
        (12.0, 469.0, "12.0 to 469"),
        (0.0, 0.0, "0"),
        (3.0, 3.0, "3.0"),
        (0.0, math.nan, "–"),
    ],
)
def test_a_cell_leaves_out_a_lower_bound_of_nothing(lower, upper, said):
    assert bounds(lower, upper) == said


@pytest.mark.parametrize(
    ("lower", "upper", "by_cause", "n_rebalances", "said"),
    [
        (
            0.0,
            6_540.0,
            {"restart": 540.0, "join": 180.0},
            2_269,
            "2,269 rebalances in 3 h and downtime of up to 1 h 49 min a partition, mostly while "
            "members restarted.",
        ),
        (
            6.0,
            6.0,
            {"spurious": 6.0},
            1,
            "1 rebalance in 3 h and downtime of 6.0 s a partition, mostly with the cause spurious.",
        ),
        (
            0.0,
            9.0,
            {"join": 1, "leave": 1},
            7,
            "7 rebalances in 3 h and downtime of up to 9.0 s a partition.",
        ),
        (0.0, 0.0, {}, 7, "7 rebalances in 3 h."),
        (0.0, math.nan, {}, 0, "no rebalances in 3 h."),
    ],
)
def test_the_first_words(lower, upper, by_cause, n_rebalances, said):
    given = ("etl", (lower, upper), by_cause, 10_800.0)
    told = [
        re.sub(r"<[^>]*>", "", first_words(*given, n_rebalances=n_rebalances, found=found))
        for found in ("crash loop", "")
    ]
    assert told == [f"etl: crash loop, with {said}", f"etl: {said}"]


@pytest.mark.parametrize(
    ("value_s", "said"),
    [
        (0.25, "0.25 s"),
        (119, "119 s"),
        (720, "12 min"),
        (3_599, "1 h"),
        (6_540, "1 h 49 min"),
        (10_800, "3 h"),
        (172_799, "48 h"),
        (200_000, "2.3 days"),
    ],
)
def test_a_span_has_the_unit_that_suits_it(value_s, said):
    assert span(value_s) == said


def test_a_line_leaves_out_what_is_not_known_and_bars_what_is_none():
    assert 'd="M36 17L60 9L84 1"' in spark([-1, 0, 5, 10], "lag", line=True)
    assert spark([0, 2, 0, 1], "n").count("M") == 2
    assert "<title>&lt;b&gt;</title>" in spark([1], "<b>")


def test_a_bar_is_in_the_scale_of_its_column():
    widths = [float(w) for w in re.findall(r'width="([\d.]+)"', cost_bar(25.0, 50.0, 100.0))]
    assert widths == [WIDE, WIDE / 2, WIDE / 4]
    assert cost_bar(0.0, math.nan, 10.0) == "" == cost_bar(0.0, 0.0, 0.0)

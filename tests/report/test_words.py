"""What stood still in words: what is known stands first, a bound that says nothing does not."""

from __future__ import annotations

import math
import re

import pytest

from holdfast.fleet.report.drawing.words import (
    WIDE,
    bounds,
    cost_bar,
    headline,
    span,
    spark,
    stood_still,
)


@pytest.mark.parametrize(
    ("lower", "upper", "said", "remark"),
    [
        (720.0, 800.0, "720 to 800 s", "at least to at most"),
        (0.0, 0.0, "0 s", "at least to at most"),
        (0.0, 265_239.0, "not known", "at most 265,239: the records bound it no better"),
        (12.0, 265_239.0, "12.0 s or more", "at most 265,239: "),
        (0.0, math.nan, "–", "partition-seconds"),
    ],
)
def test_a_bound_that_says_nothing_is_no_headline(lower, upper, said, remark):
    shown, told = headline(lower, upper)
    assert shown == said
    assert remark in told


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
    ("lower", "upper", "by_cause", "said"),
    [
        (
            720.0,
            800.0,
            {"restart": 540.0, "join": 180.0},
            "Partitions of etl stood still for 12 min together in 3.0 h, 9 min of it while members "
            "restarted. The first finding: crash loop.",
        ),
        (
            6.0,
            800.0,
            {"spurious": 6.0},
            "Partitions of etl stood still for at least 6.0 s together in 3.0 h, 6.0 s of it with "
            "the cause spurious. The first finding: crash loop.",
        ),
        (
            0.0,
            800.0,
            {},
            "etl rebalanced 7 times in 3.0 h; its partitions stood still for 13 min together at "
            "most. The first finding: crash loop.",
        ),
        *(
            (
                0.0,
                none,
                {},
                "No partition of etl is known to have stood still in 3.0 h. The first "
                "finding: crash loop.",
            )
            for none in (0.0, math.nan)
        ),
    ],
)
def test_the_first_words(lower, upper, by_cause, said):
    given = ("etl", lower, upper, by_cause, 10_800.0)
    told = [
        re.sub(r"<[^>]*>", "", stood_still(*given, n_rebalances=7, found=found))
        for found in ("crash loop", "")
    ]
    assert told == [said, said.replace(" The first finding: crash loop.", "")]


@pytest.mark.parametrize(
    ("value_s", "said"),
    [(0.25, "0.25 s"), (119, "119 s"), (720, "12 min"), (10_800, "3.0 h"), (200_000, "2.3 days")],
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

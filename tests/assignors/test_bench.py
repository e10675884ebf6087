"""``bench/assign.py``: what it says of a peer whose CPU clock is coarse."""

from __future__ import annotations

from bench.assign import RATIOS, ratios_to


def test_where_a_peers_clock_says_0_there_is_no_ratio() -> None:
    ours = dict.fromkeys(RATIOS.values(), 3.0)
    coarse = {**dict.fromkeys(RATIOS.values(), 4.0), "min_cpu_ms": 0.0}
    ratios = ratios_to(ours, coarse)
    assert ratios["ours_to_this_cpu"] is None
    assert ratios["ours_to_this"] == 0.75

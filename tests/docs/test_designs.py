"""The tables of docs/measured/designs.md compare the designs where they differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tools.pages.designs import DEATHS, RESTARTS_S, SHORT, characteristic, winners
from tools.write_pages import ROOT

from holdfast.sim.scenarios import SIMULATED, Report, simulate
from holdfast.sim.scenarios import Setup as Scenario

PAGE = (ROOT / "docs/measured/designs.md").read_text(encoding="utf-8")
RUN = simulate(Scenario(scenario="scale-up", policy="eager"))


def runs(**stopped: float) -> dict[str, Report]:
    """One table: 50 stopped seconds where nothing else is said."""
    return {
        p: replace(RUN, moved=0, partition_seconds_stopped=stopped.get(p, 50.0)) for p in SIMULATED
    }


@pytest.mark.parametrize("winner", SHORT)
def test_the_policy_that_stops_least_wins(winner):
    assert winners(runs(**{winner: 10.0})) == SHORT[winner]


def test_a_characteristic_is_computed():
    found = runs(eager=100.0, deferred=90.0, simple=90.0, incremental=100.0)
    found["simple"] = replace(found["simple"], moved=3)
    assert [characteristic(found, d) for d in ("simple", "deferred", "incremental")] == [
        "IMPROVED", "YES", "NO",
    ]  # fmt: skip


def test_a_death_is_measured_where_the_designs_differ():
    rows = PAGE.split("### By restart, session and delay")[1].split("\n## ")[0].splitlines()
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in rows if "| " in line][2:]
    assert [tuple(map(int, row[:4])) for row in rows] == [
        (*death, restart) for death in DEATHS for restart in RESTARTS_S
    ]
    assert {row[3] for row in rows} == {"3", "10", "20", "40"}
    best = {row[-1] for row in rows}
    assert {"Design I", "Design II"} <= best  # each wins somewhere, alone
    for row in rows:
        numbers = dict(zip(("eager, new listener", "Design I", "Design II"), row[4:7], strict=True))
        least = min(map(float, numbers.values()))
        assert row[-1] == ", ".join(n for n, s in numbers.items() if float(s) == least)

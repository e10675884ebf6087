"""The verdicts of docs/measured/designs.md follow from the runs above them, and turn with them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tools.pages.designs import CHEAP, DEATHS, RESTARTS_S, when_each_pays
from tools.pages.verdicts import SHORT, characteristic, winners
from tools.write_pages import ROOT

from holdfast.sim.scenarios import SIMULATED, Report

TITLES = ("Rolling bounce", "Kubernetes process death", "Scale up", "Scale down", CHEAP)
PAGE = (ROOT / "docs/measured/designs.md").read_text(encoding="utf-8")


def report(policy: str, stopped: float, moved: int = 0, **fields) -> Report:
    values = {
        "scenario": "s",
        "policy": policy,
        "seed": 0,
        "members": 6,
        "partitions": 24,
        "rounds": 12,
        "moved": moved,
        "moved_to_third": 0,
        "partition_seconds_unowned": 0.0,
        "partition_seconds_stopped": stopped,
        "longest_stop_seconds": 1.0,
        "time_to_balance_seconds": 1.0,
        "bytes_per_round": 100,
        "largest_round_bytes": 100,
    }
    return Report(**(values | fields), violations=())


def tables(**stopped: float) -> dict[str, dict[str, Report]]:
    """The same runs in every table; 50 stopped seconds where nothing else is said."""
    runs = {policy: report(policy, stopped.get(policy, 50.0)) for policy in SIMULATED}
    return {title: dict(runs) for title in TITLES}


def sentence(found: dict, name: str) -> str:
    text = " ".join(" ".join(when_each_pays(found)).split())
    return next(s for s in text.split(" - **") if s.startswith(name))


@pytest.mark.parametrize("winner", SHORT)
def test_whoever_stops_least_is_named_and_nobody_else(winner):
    found = tables(**{winner: 10.0})
    for runs in found.values():
        assert winners(runs) == SHORT[winner]
    assert ("fewest stopped seconds in no table" in sentence(found, "Design I**")) == (
        winner != "simple"
    )
    assert ("fewest stopped seconds in no table" in sentence(found, "Design II**")) == (
        winner != "deferred"
    )
    assert ("is the best in no table" in sentence(found, "Eager**")) == (
        winner not in ("eager", "eager-sticky")
    )


@pytest.mark.parametrize(("eager", "word"), [(34.1, "more than"), (20.0, "less than")])
def test_eager_is_compared_by_its_number_where_members_cost_nothing(eager, word):
    found = tables(eager=eager, **{"eager-sticky": eager + 1}, simple=27.9)
    assert f"{eager:g} s stopped, {word} the 27.9" in sentence(found, "Eager**")


@pytest.mark.parametrize("moved", [48, 12])
def test_the_price_of_a_bounce_is_counted_per_member(moved):
    found = tables()
    found["Rolling bounce"]["simple"] = report("simple", 50.0, moved, rounds=18)
    assert f"moves {moved // 6:+d}, rounds +1." in sentence(found, "Design I**")


def test_a_characteristic_is_computed():
    runs = tables(eager=100.0, deferred=90.0, simple=90.0, incremental=100.0)["Scale up"]
    runs["simple"] = replace(runs["simple"], moved=3)
    assert [characteristic(runs, d) for d in ("simple", "deferred", "incremental")] == [
        "IMPROVED", "YES", "NO",
    ]  # fmt: skip


def cells(title: str) -> dict[str, list[str]]:
    """The rows of a table of the page by policy."""
    lines = PAGE.split(f"## {title}\n")[1].split("\n## ")[0].splitlines()
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in lines if "|" in line]
    return {row[0]: row[1:] for row in rows}


def test_the_sentences_of_the_page_have_the_numbers_of_its_tables():
    text = " ".join(PAGE.split("## When each design pays")[1].split("\n## ")[0].split())
    free, bounce = cells(CHEAP), cells("Rolling bounce")
    eager = min(float(row[4]) for name, row in free.items() if name.startswith("eager"))
    design_i = float(free["Design I, as holdfast-simple"][4])
    word = "more than" if eager > design_i else "less than"
    assert f"{eager:g} s stopped, {word} the {design_i:g} under Design I" in text
    moves = int(bounce["Design I, as holdfast-simple"][1]) - int(bounce["Design II"][1])
    assert f"moves {moves / 6:+g}, rounds" in text


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
        assert row[-1] == " and ".join(n for n, s in numbers.items() if float(s) == least)

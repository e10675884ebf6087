"""Processes that come and go under new names: a deploy (HF102), an autoscaler (HF132)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.report.fleet import START_MS, Script, deal, examine_all, tables

from holdfast.fleet.analysis.findings.finding import Finding, Severity
from holdfast.fleet.tables.reading import read_tables

TOPICS = {"t": 12}


def lived(steps: Sequence[tuple[float, Sequence[str]]]) -> tuple[Script, float]:
    """A group that has these pods from these seconds on, each with a client id of its own."""
    script, at = Script("g", TOPICS), 0.0
    for at, pods in steps:
        ids = [f"{pod}-0" for pod in pods]
        people = [(m, {"client_host": f"/10.0.0.{sum(map(ord, m)) % 250}"}) for m in ids]
        script.settle(at, people, deal(TOPICS, ids), gap=(1, 2), cooperative=False)
    return script, at


def found_in(played: tuple[Script, float]) -> list[Finding]:
    script, end_s = played
    held = read_tables(tables(script))
    (found,) = examine_all(held, last_ms=START_MS + round(1000 * (end_s + 60)))
    return [f for f in found.findings if f.severity is not Severity.INFO]


def deployment(pods: int = 4, *, surge: bool = True, every_s: float = 30) -> tuple[Script, float]:
    """Old pods give way to new ones, one by one: with a surge a new one comes first."""
    old, new = [f"old{i}" for i in range(pods)], [f"new{i}" for i in range(pods)]
    steps: list[tuple[float, Sequence[str]]] = [(0, old)]
    at = 100.0
    for i in range(pods):
        between = old[i:] + new[: i + 1] if surge else old[i + 1 :] + new[:i]
        steps += [(at, between), (at + 10, old[i + 1 :] + new[: i + 1])]
        at += every_s
    return lived(steps)


def scaled(times: int = 3, more: int = 2, every_s: float = 60) -> tuple[Script, float]:
    """Two pods stay, and others come and go."""
    base, at = ["base0", "base1"], 100.0
    steps: list[tuple[float, Sequence[str]]] = [(0, base)]
    for i in range(times):
        extra = [f"more{i}x{k}" for k in range(more)]
        steps += [(at, base + extra), (at + every_s, base)]
        at += 2 * every_s
    return lived(steps)


@pytest.mark.parametrize("surge", [True, False])
@pytest.mark.parametrize("pods", [2, 4, 8])
def test_a_deploy_under_new_names_is_a_deploy(pods: int, surge: bool) -> None:
    first, *others = found_in(deployment(pods, surge=surge))
    assert first.code == "HF102"
    assert f"{pods} members were replaced" in first.text
    assert set(first.evidence.members.shown) <= {f"old{i}" for i in range(pods)}
    assert "HF132" not in {f.code for f in others}
    assert all(f.follows == "HF102" for f in others if f.code in ("HF101", "HF103"))


def test_a_storm_of_deploys_follows_from_them() -> None:
    found = {f.code: f for f in found_in(deployment(8, every_s=20))}
    assert found["HF101"].follows == "HF102"


@pytest.mark.parametrize(("n", "is_deploy"), [(4, True), (2, False)])
def test_half_a_deploy_is_one_and_less_is_not(n: int, is_deploy: bool) -> None:
    """One pod that is moved to another node is no deploy."""
    pods = ["abcde", "bcde", "bcdef", "cdef"]
    steps = [(100.0 + 10 * i, [*names]) for i, names in enumerate(pods[:n])]
    found = found_in(lived([(0, [*"abcd"]), *steps]))
    assert ("HF102" in {f.code for f in found}) is is_deploy


def test_an_autoscaler_that_flaps_is_no_deploy() -> None:
    first, *others = found_in(scaled())
    assert first.code == "HF132"
    assert "6 members joined and left" in first.text and "2 to 4 members" in first.text
    assert first.evidence.figures["longest_stay_s"] == 60
    assert "HF102" not in {f.code for f in others}
    assert all(f.follows == "HF132" for f in others if f.code in ("HF101", "HF119"))


def test_a_group_that_grows_once_or_starts_in_steps_has_neither() -> None:
    grown, end_s = lived([(0, ["a"]), (4, ["a", "b"]), (200, ["a", "b", "c", "d"])])
    assert not {"HF102", "HF132"} & {f.code for f in found_in((grown, end_s))}
    assert not {"HF102", "HF132"} & {f.code for f in found_in(scaled(1))}

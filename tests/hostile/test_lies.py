"""A member that lies for 50 rounds: laws, and Java's assignor beside us."""

from __future__ import annotations

import pytest
from tests.hostile.group import ASSIGNORS, N_LYING, HostileGroup
from tests.hostile.java import ask_java
from tests.hostile.laws import broken_laws, kept

SEEDS = range(30)
"""Of each assignor; ``python -m tests.hostile.soak`` runs as many as it is asked for."""


@pytest.mark.broker
@pytest.mark.parametrize("name", ASSIGNORS)
def test_one_liar_costs_the_others_no_more_than_in_java(name: str) -> None:
    runs = {seed: list(HostileGroup(ASSIGNORS[name], seed).run()) for seed in SEEDS}
    lying = [done for rounds in runs.values() for done in rounds[:N_LYING]]
    java = ask_java(lying)
    assert len(java.kept) == len(lying) == N_LYING * len(SEEDS)
    broken = {
        seed: broken_laws(rounds, java.kept[i * N_LYING : (i + 1) * N_LYING])
        for i, (seed, rounds) in enumerate(runs.items())
    }
    assert {seed: laws for seed, laws in broken.items() if laws} == {}
    assert sum(map(kept, lying)) > sum(java.kept)
    assert len(java.thrown) < len(lying) / 2


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ASSIGNORS)
def test_one_liar_breaks_no_law(name: str, seed: int) -> None:
    rounds = list(HostileGroup(ASSIGNORS[name], 1_000 + seed).run())
    assert broken_laws(rounds) == []
    assert len(rounds) > N_LYING

"""Designs II and III in real groups: what a killed member had waits for it."""

from __future__ import annotations

import time

import pytest
from tests.live.processes import Crew, crew
from tests.live.waiting import until

pytestmark = pytest.mark.broker

DELAY_MS = 25_000
SESSION_MS = 3_000


def start(group: Crew, strategy: str) -> dict[str, set[int]]:
    """Three members; the first one leads."""
    for name in ("a", "b", "c"):
        group.python(name, strategy, session_ms=SESSION_MS)
        group.await_balance()
    assert set(group.led()) == {"a"}
    return group.holdings()


def await_round_after_death(group: Crew, n_led: int) -> None:
    """The coordinator dropped the dead member, and a leader took its turn without it."""
    until(lambda: len(group.led()) > n_led, "a round without the dead member")


@pytest.mark.parametrize("victim", ["c", "a"], ids=["follower", "leader"])
@pytest.mark.parametrize(
    "strategy",
    [
        f"Deferred(delay_ms={DELAY_MS})",
        f"Incremental(delay_ms={DELAY_MS}, batch=6, interval_ms=200)",
    ],
    ids=["deferred", "incremental"],
)
def test_killed_and_back_in_time(broker, tmp_path, strategy, victim):
    """It gets exactly what it had; the others keep theirs, whoever led before and after."""
    with crew(broker.bootstrap, 6, tmp_path) as group:
        before = start(group, strategy)
        had = before.pop(victim)
        n_led = len(group.led())
        killed = group.kill(victim)
        await_round_after_death(group, n_led)
        assert group.holdings() == before
        if victim == "a":
            assert group.led()[-1] != "a"
        group.python("back", strategy, session_ms=SESSION_MS)
        after = group.await_holdings(lambda held: held["back"] == had, "it has them back")
        assert {name: own for name, own in after.items() if name != "back"} == before
        assert time.time() - killed < DELAY_MS / 1000
        moved = [
            e for e in group.journal.read() if e.event == "revoked" and e.time_seconds > killed
        ]
        assert moved == []


@pytest.mark.parametrize("victim", ["c", "a"], ids=["follower", "leader"])
def test_killed_and_never_back(broker, tmp_path, victim):
    """When the delay is over the others take it, by their own timers; not before."""
    delay_ms = 6_000
    with crew(broker.bootstrap, 6, tmp_path) as group:
        start(group, f"Deferred(delay_ms={delay_ms})")
        n_led = len(group.led())
        group.kill(victim)
        await_round_after_death(group, n_led)
        noticed = next(e for i, e in enumerate(led_entries(group)) if i == n_led).time_seconds
        group.await_balance()
        taken = [
            e.time_seconds
            for e in group.journal.read()
            if e.event == "assigned" and e.partitions and e.time_seconds > noticed
        ]
        # Coordinators count from the round that noticed the loss; clocks and polls cost a little.
        assert min(taken) - noticed >= delay_ms / 1000 - 0.2


def led_entries(group: Crew) -> list:
    return [entry for entry in group.journal.read() if entry.event == "led"]

"""How long a revocation waits, by the configuration of each class."""

from __future__ import annotations

import pytest
from tests.members.configured import CLIENTS, NEEDED

from holdfast.core.machine.member.member_data import LAST_COMMIT_MS
from holdfast.members.config.policy import assignors_of, make_member

POLL, DRAIN = "max.poll.interval.ms", "holdfast.drain.timeout.ms"


def options_of(client, config):
    settings = CLIENTS[client]({**NEEDED, **config})
    return make_member(settings, assignors_of(settings)).data.options


def called(client, key):
    return key.replace(".", "_") if client in ("kafka", "aiokafka") else key


@pytest.mark.parametrize("client", [client for client in CLIENTS if client != "aiokafka"])
def test_a_revocation_waits_as_long_as_the_application_may_work(client):
    for config, poll_ms in (({}, 300_000), ({POLL: 400_000}, 400_000)):
        options = options_of(client, config)
        assert (options.drain_timeout_ms, options.max_poll_interval_ms) == (poll_ms, poll_ms)
        assert options.drain_setting == options.poll_setting == called(client, POLL)
        least_ms = poll_ms + options.heartbeat_interval_ms + LAST_COMMIT_MS
        assert options.rebalance_timeout_ms >= least_ms


@pytest.mark.parametrize("client", CLIENTS)
def test_the_key_of_ours_makes_the_wait_shorter_and_never_longer(client):
    shorter = options_of(client, {DRAIN: 2_000})
    assert (shorter.drain_timeout_ms, shorter.drain_setting) == (2_000, called(client, DRAIN))
    longer = options_of(client, {DRAIN: 900_000})
    assert (longer.drain_timeout_ms, longer.drain_setting) == (300_000, called(client, POLL))


def test_a_revocation_of_aiokafka_waits_as_long_as_it_tells_the_group():
    session = options_of("aiokafka", {"session.timeout.ms": 45_000})
    assert (session.drain_timeout_ms, session.drain_setting) == (45_000, "session_timeout_ms")
    rebalance = options_of("aiokafka", {"rebalance.timeout.ms": 120_000})
    assert (rebalance.drain_timeout_ms, rebalance.drain_setting) == (
        120_000,
        "rebalance_timeout_ms",
    )
    assert rebalance.rebalance_timeout_ms > 120_000

"""How long a hand-over waits, by the configuration of each class, and what sets it."""

from __future__ import annotations

import asyncio

import pytest
from kafka import KafkaConsumer as OriginalKafkaConsumer

from holdfast.aiokafka import AIOKafkaConsumer
from holdfast.cluster.settings import Settings
from holdfast.core.machine.member.options import LAST_COMMIT_MS
from holdfast.members.drop_in.confluent.settings import route
from holdfast.members.drop_in.kafka.settings import settings_of
from holdfast.members.member.membership import assignors_of, make_member

PLACE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
POLL, DRAIN = "max.poll.interval.ms", "holdfast.drain.timeout.ms"


def ours(**keys):
    return Settings.parse(PLACE | {word.replace("_", "."): value for word, value in keys.items()})


def confluent(**keys):
    return route(PLACE | {word.replace("_", "."): value for word, value in keys.items()}).settings()


def kafka(**words):
    given = {word: words.pop(word) for word in list(words) if word.startswith("holdfast")}
    place = {"bootstrap_servers": "127.0.0.1:1", "group_id": "g"}
    options = {**OriginalKafkaConsumer.DEFAULT_CONFIG, **place, **words}
    return settings_of(options, given, strategies=["range"])


def aiokafka(**words):
    async def made():
        place = {"bootstrap_servers": "127.0.0.1:1", "group_id": "g"}
        consumer = AIOKafkaConsumer("t", **place, **words)
        await consumer.stop()
        return consumer._member_settings

    return asyncio.run(made())


def options_of(settings):
    return make_member(settings, assignors_of(settings)).data.options


def called(kind, key):
    return key.replace(".", "_") if kind in (kafka, aiokafka) else key


@pytest.mark.parametrize("kind", [ours, confluent, kafka])
def test_a_hand_over_waits_as_long_as_the_application_may_work(kind):
    for words, poll_ms in (({}, 300_000), ({"max_poll_interval_ms": 400_000}, 400_000)):
        options = options_of(kind(**words))
        assert (options.drain_timeout_ms, options.max_poll_interval_ms) == (poll_ms, poll_ms)
        assert options.drain_setting == options.poll_setting == called(kind, POLL)
        least_ms = poll_ms + options.heartbeat_interval_ms + LAST_COMMIT_MS
        assert options.rebalance_timeout_ms >= least_ms


@pytest.mark.parametrize("kind", [ours, confluent, kafka, aiokafka])
def test_the_key_of_ours_makes_the_wait_shorter_and_never_longer(kind):
    shorter = options_of(kind(holdfast_drain_timeout_ms=2_000))
    assert (shorter.drain_timeout_ms, shorter.drain_setting) == (2_000, called(kind, DRAIN))
    longer = options_of(kind(holdfast_drain_timeout_ms=900_000))
    assert (longer.drain_timeout_ms, longer.drain_setting) == (300_000, called(kind, POLL))


def test_a_hand_over_of_aiokafka_waits_as_long_as_it_tells_the_group():
    session = options_of(aiokafka(session_timeout_ms=45_000))
    assert (session.drain_timeout_ms, session.drain_setting) == (45_000, "session_timeout_ms")
    rebalance = options_of(aiokafka(rebalance_timeout_ms=120_000))
    assert (rebalance.drain_timeout_ms, rebalance.drain_setting) == (
        120_000,
        "rebalance_timeout_ms",
    )
    assert rebalance.rebalance_timeout_ms > 120_000

"""The text of whatever holds a member's settings shows no password."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from tests.live.security import PLANTED

import holdfast
import holdfast.aiokafka
import holdfast.confluent
from holdfast.cluster.cluster import LiveCluster
from holdfast.cluster.settings import Settings

CONFIG = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": PLANTED,
}


def ours(what: object, seen: set[int]) -> Iterator[object]:
    """An object of a class of ours, and those that its attributes hold."""
    if id(what) in seen or not type(what).__module__.startswith("holdfast"):
        return
    seen.add(id(what))
    yield what
    names = set(getattr(what, "__dict__", ()))
    names.update(*(cls.__dict__.get("__slots__", ()) for cls in type(what).__mro__))
    for name in names:
        with suppress(AttributeError):
            yield from ours(getattr(what, name), seen)


def check(what: object) -> None:
    found = list(ours(what, set()))
    assert found
    for one in found:
        assert PLANTED not in repr(one), type(one)


def worker(config: dict[str, str]) -> holdfast.Worker:
    return holdfast.Worker(config, {"shard": 1})


@pytest.mark.parametrize("make", [holdfast.Consumer, worker, holdfast.confluent.Consumer])
def test_no_text_of_a_member_shows_its_password(make: Callable[[dict[str, str]], Any]) -> None:
    with closing(make(CONFIG)) as member:
        check(member)


def test_no_text_of_a_cluster_or_of_settings_shows_the_password() -> None:
    check(LiveCluster(bootstrap="127.0.0.1:1", config=CONFIG))
    check(Settings.parse(CONFIG))


def test_no_text_of_aiokafkas_member_shows_its_password() -> None:
    async def look() -> None:
        consumer = holdfast.aiokafka.AIOKafkaConsumer(
            "t",
            bootstrap_servers="127.0.0.1:1",
            group_id="g",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="u",
            sasl_plain_password=PLANTED,
        )
        check(consumer)
        await consumer.stop()

    asyncio.run(look())

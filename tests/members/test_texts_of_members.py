"""No text of an object that holds a member's settings shows a password."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from tests.live.security import PLANTED, showing
from tests.members.configured import NEEDED
from tests.members.running import on_a_loop

import holdfast
import holdfast.aiokafka
import holdfast.confluent
from holdfast.cluster.cluster import LiveCluster
from holdfast.members.config.settings import Settings

CONFIG = {
    **NEEDED,
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": PLANTED,
}


def worker(config: dict[str, str]) -> holdfast.Worker:
    return holdfast.Worker(config, {"shard": 1})


@pytest.mark.parametrize("make", [holdfast.Consumer, worker, holdfast.confluent.Consumer])
def test_no_text_of_a_member_shows_its_password(make: Callable[[dict[str, str]], Any]) -> None:
    with closing(make(CONFIG)) as member:
        assert not showing(PLANTED, member)


def test_no_text_of_a_cluster_or_of_settings_shows_the_password() -> None:
    assert not showing(PLANTED, LiveCluster(bootstrap="127.0.0.1:1", config=CONFIG))
    assert not showing(PLANTED, Settings.parse(CONFIG))


@on_a_loop
async def test_no_text_of_aiokafkas_member_shows_its_password() -> None:
    consumer = holdfast.aiokafka.AIOKafkaConsumer(
        "t",
        bootstrap_servers="127.0.0.1:1",
        group_id="g",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="u",
        sasl_plain_password=PLANTED,
    )
    assert not showing(PLANTED, consumer)
    await consumer.stop()

"""One configuration, parsed for each client; without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import kafka

import holdfast.aiokafka
from holdfast.members.clients.confluent.config import route
from holdfast.members.clients.kafka import consumer as of_kafka
from holdfast.members.config.settings import Settings

NEEDED = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
QUICK = {"group.id": "alone", "session.timeout.ms": 100, "socket.timeout.ms": 100, "log_level": 0}
"""Of confluent-kafka: without brokers the original waits for its session when it is closed."""
STRATEGY = "partition.assignment.strategy"


def keys(**words: Any) -> dict[str, Any]:
    """Keys of Kafka's from words that have ``_`` for a point."""
    return {word.replace("_", "."): value for word, value in words.items()}


def settings_of(**words: Any) -> Settings:
    return Settings.parse({**NEEDED, **keys(**words)})


def keywords(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as a client of keywords spells it; a strategy is a list there."""
    spelled = {key.replace(".", "_"): value for key, value in config.items()}
    if STRATEGY in config:
        given = config[STRATEGY]
        spelled[STRATEGY.replace(".", "_")] = given if isinstance(given, list) else [given]
    return spelled


def of_confluent(config: Mapping[str, Any]) -> Settings:
    return route(config).settings()


def of_aiokafka(config: Mapping[str, Any]) -> Settings:
    async def made() -> Settings:
        consumer = holdfast.aiokafka.AIOKafkaConsumer(**keywords(config))
        await consumer.stop()
        return consumer._member_settings

    return asyncio.run(made())


def of_kafka_python(config: Mapping[str, Any]) -> Settings:
    """As the constructor does it, which would already ask a broker."""
    spelled = keywords(config)
    ours = {word: spelled.pop(word) for word in list(spelled) if word.startswith("holdfast")}
    whole = {**kafka.KafkaConsumer.DEFAULT_CONFIG, **spelled}
    return of_kafka.settings_of(whole, ours, written=spelled)


CLIENTS = {
    "holdfast": Settings.parse,
    "confluent": of_confluent,
    "aiokafka": of_aiokafka,
    "kafka": of_kafka_python,
}

"""The deserializing class and the asyncio class; without a broker."""

from unittest.mock import patch

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition, aio
from tests.members.configured import QUICK
from tests.members.running import on_a_loop

from holdfast.confluent import (
    AIOConsumer,
    AsyncDeserializingConsumer,
    Consumer,
    DeserializingConsumer,
)

ORIGINALS = (
    confluent_kafka.Consumer,
    confluent_kafka.DeserializingConsumer,
    aio.AIOConsumer,
    aio.AsyncDeserializingConsumer,
)
OURS = (Consumer, DeserializingConsumer, AIOConsumer, AsyncDeserializingConsumer)


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("original", "ours"),
    list(zip(ORIGINALS, OURS, strict=True)),
)
def test_every_public_name_of_the_original_is_there(original, ours):
    assert public(original) == public(ours)
    assert issubclass(ours, original)
    assert hasattr(original, "__class_getitem__") == hasattr(ours, "__class_getitem__")


def test_the_asyncio_deserializing_class_is_an_asyncio_consumer():
    assert issubclass(aio.AsyncDeserializingConsumer, aio.AIOConsumer)
    assert issubclass(AsyncDeserializingConsumer, AIOConsumer)


@pytest.mark.parametrize("kind", [confluent_kafka.DeserializingConsumer, DeserializingConsumer])
def test_types_of_keys_and_values_may_be_named(kind):
    class Named(kind[str, dict]):
        pass

    for made in (kind[str, dict](QUICK), Named(QUICK)):
        with made as consumer:
            assert isinstance(consumer, kind)


@pytest.mark.parametrize("kind", [aio.AsyncDeserializingConsumer, AsyncDeserializingConsumer])
@on_a_loop
async def test_types_of_keys_and_values_may_be_named_for_asyncio(kind):
    consumer = await kind[str, dict](dict(QUICK))
    assert isinstance(consumer, kind)
    await consumer.close()


@pytest.mark.parametrize("kind", [aio.AIOConsumer, AIOConsumer])
@on_a_loop
async def test_a_mock_of_confluent_kafkas_class_stays_below_an_asyncio_consumer(kind):
    with patch("confluent_kafka.Consumer") as mock:
        consumer = kind(dict(QUICK), max_workers=2)
        mock.assert_called_once_with(QUICK)
        mock.return_value.poll.return_value = "a message"
        assert await consumer.poll(timeout=1) == "a message"
        await consumer.close()
        mock.return_value.close.assert_called_once_with()


@pytest.mark.parametrize("kind", [confluent_kafka.DeserializingConsumer, DeserializingConsumer])
def test_a_deserializing_consumer_takes_its_keys_and_polls_one(kind):
    with kind({**QUICK, "value.deserializer": lambda value, _: value}) as consumer:
        assert isinstance(consumer, confluent_kafka.Consumer)
        consumer.subscribe(["a"])
        assert consumer.poll(0.01) is None
        with pytest.raises(NotImplementedError):
            consumer.consume()
        consumer.unsubscribe()


def test_a_deserializing_consumer_has_a_member():
    with DeserializingConsumer({**QUICK, "holdfast.policy": "deferred"}) as consumer:
        assert isinstance(consumer, Consumer)
    with pytest.raises(KafkaException, match="nonsense"):
        DeserializingConsumer({**QUICK, "holdfast.policy": "nonsense"})


@pytest.mark.parametrize("kind", [aio.AIOConsumer, AIOConsumer])
@on_a_loop
async def test_an_asyncio_consumer_has_the_answers_of_the_original(kind):
    told = []

    async def error_cb(error):
        told.append(error)

    with pytest.raises(ValueError, match="max_workers"):
        kind(dict(QUICK), max_workers=0)
    with pytest.raises(KafkaException):
        kind({**QUICK, "nonsense": 1})
    config = {**QUICK, "bootstrap.servers": "127.0.0.1:1", "error_cb": error_cb}
    async with kind(config, max_workers=2) as consumer:
        await consumer.subscribe(["a"], on_assign=print)
        assert await consumer.poll(0.01) is None
        assert await consumer.consume(2, 0.01) == []
        while not told:
            await consumer.poll(0.1)
        with pytest.raises(KafkaException) as raised:
            await consumer.commit(asynchronous=False)
        assert raised.value.args[0].code() == KafkaError._NO_OFFSET
        await consumer.unsubscribe()
        await consumer.assign([TopicPartition("a", 0)])
        assert len(await consumer.assignment()) == 1
    with pytest.raises(RuntimeError, match="Consumer closed"):
        await consumer.poll()


@pytest.mark.parametrize("kind", [aio.AsyncDeserializingConsumer, AsyncDeserializingConsumer])
@on_a_loop
async def test_an_asyncio_deserializing_consumer_builds_and_closes_its_deserializers(kind):
    steps = []

    class Serde:
        def __call__(self, value, _):
            return value

        async def close(self):
            steps.append("closed")

    class Builder:
        def build(self, conf, is_key):
            steps.append("built")
            assert conf.pop("registry") == "there"
            return Serde(), conf

    config = {**QUICK, "registry": "there", "value.deserializer.builder": Builder()}
    with pytest.raises(ValueError, match="both"):
        await kind({**config, "value.deserializer": Serde()})
    with pytest.raises(KafkaException, match="nonsense"):
        await kind({**config, "nonsense": 1})
    assert steps == ["built", "closed"]
    consumer = await kind(config, max_workers=2)
    await consumer.subscribe(["a"])
    assert await consumer.poll(0.01) is None
    assert await consumer.consume(1, 0.01) == []
    await consumer.close()
    await consumer.close()
    assert steps == ["built", "closed"] * 2


@on_a_loop
async def test_an_asyncio_deserializing_consumer_has_a_member():
    config = {**QUICK, "holdfast.policy": "deferred"}
    consumer = await AsyncDeserializingConsumer(config)
    assert type(consumer._consumer) is Consumer
    await consumer.close()

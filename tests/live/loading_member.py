"""A member in its own process that reports which thread loaded kafka-python and NumPy.

Arguments: CLIENT BOOTSTRAP TOPIC GROUP. It joins alone, so it leads and plans a round.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading

from tests.live.waiting import PATIENCE_SECONDS

client, bootstrap, topic, group = sys.argv[1:]
drop_in = importlib.import_module(f"holdfast.{client}")
COSTLY = ("kafka", "numpy")
LOADED_BY = {name: "the import" for name in COSTLY if name in sys.modules}


class Watch:
    """Python asks it for every module that is not loaded; it has none."""

    def find_spec(self, name, path=None, target=None):
        if name in COSTLY:
            LOADED_BY.setdefault(name, threading.current_thread().name)


sys.meta_path.insert(0, Watch())


def confluent():
    config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = drop_in.Consumer(config)
    consumer.subscribe([topic])
    assert consumer.poll(PATIENCE_SECONDS).error() is None
    consumer.close()


def kafka():
    options = {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    consumer = drop_in.KafkaConsumer(topic, **options)
    assert consumer.poll(PATIENCE_SECONDS * 1000)
    consumer.close()


async def aiokafka():
    options = {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    async with drop_in.AIOKafkaConsumer(topic, **options) as consumer:
        assert await asyncio.wait_for(consumer.getone(), PATIENCE_SECONDS)


if client == "aiokafka":
    asyncio.run(aiokafka())
else:
    {"confluent": confluent, "kafka": kafka}[client]()
print(LOADED_BY)

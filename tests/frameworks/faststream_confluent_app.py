"""A FastStream application on confluent-kafka. Arguments: BOOTSTRAP TOPIC GROUP NAME EVENT_LOG."""

import asyncio
import sys

import holdfast.confluent

holdfast.confluent.install({"holdfast.policy": "deferred"})

from event_log import EventLog
from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker, KafkaMessage

bootstrap, topic, group, name, path = sys.argv[1:]
event_log = EventLog(path, name)

broker = KafkaBroker(bootstrap, client_id=name)


@broker.subscriber(topic, group_id=group, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)
async def handle(message: KafkaMessage):
    record = message.raw_message
    event_log.write(record.partition(), record.offset())


asyncio.run(FastStream(broker).run())

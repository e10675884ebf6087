"""A Faust application. Arguments: BOOTSTRAP TOPIC GROUP NAME EVENT_LOG."""

import sys

import holdfast.aiokafka

holdfast.aiokafka.install(holdfast_policy="deferred", holdfast_whole_assignment=True)

import faust
from event_log import EventLog

bootstrap, topic, group, name, path = sys.argv[1:]
event_log = EventLog(path, name)

app = faust.App(
    group,
    broker=f"kafka://{bootstrap}",
    broker_client_id=name,
    consumer_auto_offset_reset="earliest",
    topic_disable_leader=True,
    web_enabled=False,
    datadir=f"{path}.data",
)


@app.agent(app.topic(topic, value_serializer="raw"))
async def handle(stream):
    async for event in stream.events():
        event_log.write(event.message.partition, event.message.offset)


faust.Worker(app, loglevel="INFO").execute_from_commandline()

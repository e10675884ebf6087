"""A Quix Streams application. Arguments: BOOTSTRAP TOPIC GROUP NAME EVENT_LOG."""

import sys

import holdfast.confluent

holdfast.confluent.install({"holdfast.policy": "deferred"})

from event_log import EventLog
from quixstreams import Application, message_context

bootstrap, topic, group, name, path = sys.argv[1:]
event_log = EventLog(path, name)

app = Application(
    broker_address=bootstrap,
    consumer_group=group,
    auto_offset_reset="earliest",
    consumer_extra_config={"client.id": name},
)


def handle(value):
    place = message_context()
    event_log.write(place.partition, place.offset)


app.dataframe(app.topic(topic)).update(handle)
app.run()

"""An Arroyo consumer. Arguments: BOOTSTRAP TOPIC GROUP NAME EVENT_LOG."""

import signal
import sys

import holdfast.confluent

holdfast.confluent.install()

from arroyo.backends.kafka import KafkaConsumer, build_kafka_consumer_configuration
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, RunTask
from arroyo.processing.strategies.abstract import ProcessingStrategyFactory
from arroyo.types import Topic
from event_log import EventLog

bootstrap, topic, group, name, path = sys.argv[1:]
event_log = EventLog(path, name)


def handle(message):
    record = message.value
    event_log.write(record.partition.index, record.offset)
    return message.payload


class Factory(ProcessingStrategyFactory):
    def create_with_partitions(self, commit, partitions):
        return RunTask(handle, CommitOffsets(commit))


consumer = KafkaConsumer(
    build_kafka_consumer_configuration(
        {"bootstrap.servers": bootstrap, "client.id": name},
        group_id=group,
        auto_offset_reset="earliest",
        override_params={"holdfast.policy": "deferred"},
    )
)
processor = StreamProcessor(consumer, Topic(topic), Factory())
signal.signal(signal.SIGTERM, lambda *_: processor.signal_shutdown())
processor.run()

"""``confluent_kafka.Consumer`` over a member of holdfast.

``consumer`` is the class, and ``group_calls`` and ``commit_calls`` are its calls about the group.
``adapter`` is librdkafka's client adapter, and ``recreation`` recreates a stalled client.
``config`` routes each configuration key. ``errors`` has holdfast's errors in confluent-kafka's
classes, codes and messages. ``async_consumer`` has the asyncio classes. ``forks`` keeps a child
process from its parent's consumers.
"""

from holdfast.cluster.client_versions import check

check("confluent-kafka")

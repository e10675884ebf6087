"""``confluent_kafka.Consumer`` over a member of holdfast.

``consumer`` is the class, ``state`` its calls and its member, ``session`` what a poll does, reports
and commits, and ``adapter`` its client adapter for librdkafka. ``config`` routes each configuration
key. ``errors`` has holdfast's errors in confluent-kafka's classes, codes and messages.
``async_consumer`` has the asyncio classes.
"""

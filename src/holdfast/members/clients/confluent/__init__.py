"""``confluent_kafka.Consumer`` over a member of holdfast.

``consumer`` is the class, ``state`` its calls and its member, and ``session`` what a poll does,
reports and commits, with the client adapter. ``config`` routes each configuration key. ``errors``
has holdfast's errors in confluent-kafka's classes, codes and messages. ``async_consumer`` has the
asyncio classes.
"""

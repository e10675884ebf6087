"""The output of Kafka's own command line tools about the offsets topic and groups, as input.

``dumps`` makes a dump of a printed text. ``dump_log`` reads ``kafka-dump-log``, ``console`` the
console consumer, ``described`` ``kafka-consumer-groups --describe``.
"""

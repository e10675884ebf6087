"""The output of Kafka's own command line tools about the offsets topic and groups, as input.

``dumps`` makes a dump of a printed text. ``dump_log`` reads ``kafka-dump-log``, ``console`` and
``old_console`` the console consumer since Kafka 4 and before. ``described`` reads
``kafka-consumer-groups --describe``.
"""

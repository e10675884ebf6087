"""The output of Kafka's own command line tools about the offsets topic and groups, as input.

``dumps`` makes a dump of a printed text, and ``lines`` is shared by its readers: ``dump_log``
reads ``kafka-dump-log``, ``console`` and ``old_console`` the console consumer since Kafka 4 and
before. ``kafka_json`` and ``old_texts`` make records of the printed values. ``described`` reads
``kafka-consumer-groups --describe``, and ``described_dump`` makes a dump of it.
"""

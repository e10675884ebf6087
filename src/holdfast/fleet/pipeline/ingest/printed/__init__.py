"""What Kafka's own command line tools print of the offsets topic and of groups, as input.

``dumps`` makes a dump of a printed text, and ``lines`` is what its readers share: ``dump_log``
reads ``kafka-dump-log``, ``console`` and ``old_console`` the console consumer since Kafka 4
and before.
``kafka_json`` and ``old_texts`` make records of the values that these print. ``described`` reads
``kafka-consumer-groups --describe``, and ``described_dump`` makes a dump of it.
"""

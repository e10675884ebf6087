"""Consumers of other clients with a member of ours inside: one import changes.

What an application calls, and records, errors and positions, stay those of its client. ``keywords``
and ``client_errors`` are what the clients have in common, ``in_place`` puts a class of ours in the
place of a client's, and ``module_names`` hands on what else the client's module has.

============== ======================================================================
``confluent/`` confluent-kafka's consumers; :mod:`holdfast.confluent` names them
``aiokafka/``  ``AIOKafkaConsumer``; :mod:`holdfast.aiokafka` names it
``kafka/``     kafka-python's ``KafkaConsumer``; :mod:`holdfast.kafka` names it
============== ======================================================================
"""

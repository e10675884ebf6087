"""Consumers of other clients over a member of holdfast: a program changes one import.

Calls, records, errors and positions stay those of the client. ``drop_in`` is what the consumers of
a client share besides their member, and ``client_assignor`` is shared by the assignors for the
clients' own consumers.

=============== ======================================================================
``librdkafka/`` librdkafka for ``holdfast.Consumer`` and ``holdfast.confluent``
``confluent/``  confluent-kafka's consumers; :mod:`holdfast.confluent` names them
``aiokafka/``   ``AIOKafkaConsumer``; :mod:`holdfast.aiokafka` names it
``kafka/``      kafka-python's ``KafkaConsumer``; :mod:`holdfast.kafka` names it
=============== ======================================================================
"""

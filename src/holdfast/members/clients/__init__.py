"""Consumers of other clients over a member of holdfast: a program changes one import.

Calls, records, errors and positions stay those of the client. ``keywords`` and ``client_errors``
are shared by the clients, ``replacement`` replaces a client's class by holdfast's,
``module_names`` forwards the other names of a client's module, and ``stock_assignor`` is what the
assignors for the clients' own consumers share.

=============== ======================================================================
``librdkafka/`` librdkafka for ``holdfast.Consumer`` and ``holdfast.confluent``
``confluent/``  confluent-kafka's consumers; :mod:`holdfast.confluent` names them
``aiokafka/``   ``AIOKafkaConsumer``; :mod:`holdfast.aiokafka` names it
``kafka/``      kafka-python's ``KafkaConsumer``; :mod:`holdfast.kafka` names it
=============== ======================================================================
"""

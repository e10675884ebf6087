"""The only code that talks to Kafka clients and sockets; what it decides comes from the machines.

Faces: ``consumer`` and ``async_consumer`` (members for topics: ``holdfast.Consumer``,
``AsyncConsumer``), ``worker`` (the member for anything else: ``holdfast.Worker``), ``settings``
(their configuration), ``kafka_python`` and ``kafka_python_attach`` (plug-ins for kafka-python, and
all private access to it), ``aiokafka_assignor`` (plug-ins for aiokafka).

===============  ==================================================================
``member/``      one member put together: its thread, its requests and answers
``records/``     records on their way to the application, and the client that fetches
``cluster/``     kafka-python's network layer, and what is asked over it
``broker/``      a real Kafka on this machine
===============  ==================================================================
"""

"""The only code that talks to Kafka clients and sockets; what it decides comes from the machines.

====================================  ==========================================================
``consumer``, ``async_consumer``      members for topics: ``holdfast.Consumer``, ``AsyncConsumer``
``worker``                            the member for anything else: ``holdfast.Worker``
``settings``, ``render``              their configuration, and how each client library spells it
``assembly``, ``host``, ``mailbox``   one member put together: its thread, queue and clock
``membership``, ``link``              what its machine asks for, as requests and answers
``connections``, ``lookup``           kafka-python's network layer, and what is asked over it
``refused``                           connections that kafka-python leaves behind
``topic_duties``, ``delivery``        records on their way to the application, and their commits
``data_plane``, ``data_plane_*``       the client that fetches
``lag_source``, ``broker_lags``       lags for assignors that want them
``metrics``, ``member_log``           what is counted and logged
``kafka_python``, ``kafka_python_*``   plug-ins for kafka-python, and all private access to it
``aiokafka_assignor``                 plug-ins for aiokafka
``broker``, ``broker_guard``          a real Kafka on this machine
``cluster``                           topics and offsets of a live cluster
====================================  ==========================================================
"""

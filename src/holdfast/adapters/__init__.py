"""The only code that talks to Kafka clients and sockets; the machines make the decisions.

``consumer`` and ``async_consumer`` are the members for topics (``holdfast.Consumer``,
``AsyncConsumer``), ``consumer_questions`` is what they ask brokers, ``worker`` is the member for
other resources (``holdfast.Worker``), ``settings`` holds their configuration, and ``own_assignors``
takes a user's own assignor. ``kafka_python`` and ``aiokafka_assignor`` are plug-ins for these
clients; ``kafka_python_attach`` has all their private access to kafka-python, and ``readable``
keeps odd subscriptions from both clients. ``kafka_python_fetches`` keeps kafka-python's consumer
from waiting beside records that could be read. ``client_versions`` says which versions of the
clients are needed, ``credentials`` reads logins and TLS in the spelling of any client, and
``login_log`` keeps them out of the logs of these clients. ``client_keys`` says what becomes of
every other key of these clients. ``arguments`` checks what an application gives to a consumer's
calls.

================ ==================================================================
``member/``      one running member: its thread, its requests and answers
``records/``     records between the client that fetches them and the application
``drop_in/``     the consumers of other clients, with a member of ours inside
``cluster/``     kafka-python's network layer, and questions to a cluster
``broker/``      a real Kafka on this machine
================ ==================================================================
"""

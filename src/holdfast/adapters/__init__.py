"""The only code that talks to Kafka clients and sockets; the machines make the decisions.

``consumer`` is the member for topics (``holdfast.Consumer``), ``consumer_hands`` is what librdkafka
does for it (``parked`` for an eager member), and ``consumer_questions`` what it asks brokers;
``worker`` is the member for other resources (``holdfast.Worker``), ``settings`` holds their
configuration, and ``own_assignors`` takes a user's own assignor. ``kafka_python`` and
``aiokafka_assignor`` have assignors for the stock consumers of these clients. ``client_versions``
says which versions of the clients are needed, ``credentials`` reads logins and TLS in the spelling
of any client, and ``login_log`` keeps them out of the logs of these clients. ``client_keys`` says
what becomes of every other key of these clients. ``arguments`` checks what an application gives to
a consumer's calls.

================ ==================================================================
``member/``      one running member: its thread, its requests and answers
``seat/``        what every member of ours does, whatever client fetches for it
``drop_in/``     the consumers of other clients, with a member of ours inside
``cluster/``     kafka-python's network layer, and questions to a cluster
``broker/``      a real Kafka on this machine
================ ==================================================================
"""

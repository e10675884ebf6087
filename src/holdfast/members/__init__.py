"""The members: groups on real brokers, over Kafka's client libraries.

``consumer`` is the member for topics (``holdfast.Consumer``), ``consumer_hands`` is what librdkafka
does for it (``retained`` for an eager member), and ``consumer_questions`` what it asks brokers;
``worker`` is the member for other resources (``holdfast.Worker``), and ``own_assignors`` takes a
user's own assignor. ``kafka_python`` and ``aiokafka_assignor`` have assignors for the stock
consumers of these clients, and ``stock_assignor`` what the two share. ``arguments`` checks what an
application gives to a consumer's calls.

================ ==================================================================
``drop_in/``     the consumers of other clients, with a member of ours inside
``resources/``   the work on a worker's resources: begun, ended, begun again where it failed
``session/``        what every member of ours does, whatever client fetches for it
``member/``      one running member: its thread, its requests and answers
================ ==================================================================
"""

"""Records on their way to the application.

``data_plane`` is the client that fetches (confluent-kafka), ``data_plane_aiokafka`` another one;
``delivery`` hands records out and commits them, ``topic_duties`` does what the machine asks of a
consumer of topics.
"""

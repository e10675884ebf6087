"""Records between the client that fetches them and the application.

``data_plane`` fetches with confluent-kafka or kafka-python, ``data_plane_aiokafka`` with aiokafka.
``silence`` tells when a client is deaf. ``delivery`` hands records out and knows which are
processed. ``terms`` knows which of them may still be committed. ``topic_duties`` does the machine's
actions for a consumer of topics.
"""

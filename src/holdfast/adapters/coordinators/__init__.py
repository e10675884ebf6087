"""A member of ours in the place of the group coordinator of another client.

``holdfast.aiokafka`` and ``holdfast.kafka`` hand these classes out. Records, errors and positions
stay those of the client. ``aiokafka_consumer`` is the class, ``aiokafka_settings`` reads its
keywords, ``aiokafka_coordinator`` has the member, ``aiokafka_state`` what the consumer has, and
``aiokafka_fetcher`` hands out lists of records.
``kafka_consumer``, ``kafka_settings`` and ``kafka_coordinator`` are the same for kafka-python, and
``kafka_commits`` are the commits of its member.
``loop_duties`` carries a member's duties to an event loop, ``poll_duties`` into the application's
poll, and ``fetching_duties`` is what both leave to the client. ``keywords`` and ``client_errors``
are what the two clients have in common; ``foreign`` offers an assignor that is written for the
client.
"""

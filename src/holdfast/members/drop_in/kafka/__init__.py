"""kafka-python's ``KafkaConsumer`` with a member of ours in the place of its group coordinator.

``consumer`` is the class, ``settings`` reads its keywords, ``coordinator`` answers what the client
asks about its group and commits, ``hands`` are the client's for :mod:`holdfast.members.seat`, and
``errors`` has kafka-python's classes for ours.
"""

from holdfast.cluster.client_versions import check

check("kafka-python")

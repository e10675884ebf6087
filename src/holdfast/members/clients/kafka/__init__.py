"""kafka-python's ``KafkaConsumer`` with a member of ours in the place of its group coordinator.

``consumer`` is the class, ``settings`` reads its keywords, ``coordinator`` answers what the client
asks about its group and commits, ``adapter`` are the client's for :mod:`holdfast.members.session`,
and ``errors`` has kafka-python's classes for ours.
"""

from holdfast.cluster.client_versions import check

check("kafka-python")

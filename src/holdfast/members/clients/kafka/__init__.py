"""kafka-python's ``KafkaConsumer`` with a member of holdfast instead of its group coordinator.

``consumer`` is the class, ``config`` reads its keywords, ``coordinator`` answers the client's calls
about its group and commits, ``adapter`` is its client adapter for :mod:`holdfast.members.session`,
and ``errors`` has kafka-python's classes for holdfast's errors. ``assignors`` are for
kafka-python's own consumer.
"""

from holdfast.cluster.client_versions import check

check("kafka-python")

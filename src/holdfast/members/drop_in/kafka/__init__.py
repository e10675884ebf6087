"""kafka-python's ``KafkaConsumer`` with a member of ours in the place of its group coordinator.

``consumer`` is the class, ``settings`` reads its keywords, ``coordinator`` answers what the client
asks about its group, ``hands`` are the client's for :mod:`holdfast.members.seat`, ``starts`` finds
where partitions begin, ``commit_calls`` are commits and their callbacks, ``errors`` has
kafka-python's classes for ours, and ``fetches`` keeps the client from waiting beside records that
could be read.
"""

from holdfast.cluster.client_versions import check

check("kafka-python")

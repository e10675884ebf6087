"""``AIOKafkaConsumer`` with a member of ours in the place of its group coordinator.

``consumer`` is the class, ``coordinator`` what aiokafka wants in that place, answered from the
seat. ``hands`` is what aiokafka does for the seat, ``commit_calls`` are commits and questions for
committed offsets, ``errors`` has aiokafka's classes for errors, and ``settings`` reads the
keywords. ``state`` is what the consumer has, ``fetcher`` hands out lists of records, and
``foreign`` offers an assignor written for the client.
"""

from holdfast.cluster.client_versions import check

check("aiokafka")

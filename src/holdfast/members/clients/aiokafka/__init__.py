"""``AIOKafkaConsumer`` with a member of ours in the place of its group coordinator.

``consumer`` is the class, ``coordinator`` what aiokafka wants in that place, answered from the
seat. ``adapter`` is what aiokafka does for the seat and its record of what the consumer has,
``fetcher`` hands out lists of records, ``errors`` has aiokafka's classes for errors, and
``settings`` reads the keywords.
"""

from holdfast.cluster.client_versions import check

check("aiokafka")

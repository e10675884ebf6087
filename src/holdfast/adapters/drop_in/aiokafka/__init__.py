"""``AIOKafkaConsumer`` with a member of ours in the place of its group coordinator.

``consumer`` is the class, ``settings`` reads its keywords, ``coordinator`` has the member and
``loop_duties`` carries the member's duties to the event loop. ``state`` is what the consumer has,
``fetcher`` hands out lists of records, and ``foreign`` offers an assignor written for the client.
"""

from holdfast.adapters.client_versions import check

check("aiokafka")

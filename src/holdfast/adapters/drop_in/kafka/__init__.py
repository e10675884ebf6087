"""kafka-python's ``KafkaConsumer`` with a member of ours in the place of its group coordinator.

``consumer`` is the class, ``settings`` reads its keywords, ``coordinator`` has the member,
``opening`` connects it, ``commits`` are the member's commits, and ``poll_duties`` carries its
duties into the application's poll.
"""

from holdfast.adapters.client_versions import check

check("kafka-python")

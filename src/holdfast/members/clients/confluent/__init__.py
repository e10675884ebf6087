"""``confluent_kafka.Consumer`` with a member of ours behind it.

``consumer`` is the class, and ``group_calls`` and ``commit_calls`` are its calls about the group.
``adapter`` is what librdkafka does for the seat, and ``recreation`` notices that it is deaf and
makes it anew. ``settings`` sends each configuration key where it belongs. ``errors`` has errors of
ours in confluent-kafka's classes, codes and messages. ``asynchronous`` has the asyncio classes.
``forks`` keeps a fork's child away from what is its parent's.
"""

from holdfast.cluster.client_versions import check

check("confluent-kafka")

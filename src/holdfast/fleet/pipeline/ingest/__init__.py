"""Records of a cluster or a dump, to Arrow columns.

``offsets_topic`` reads a cluster, span by span; ``topic_reader`` does so without Spark and follows
open transactions, whose records ``transactions`` keeps. ``polled_feed`` polls coordinators instead
of the topic, ``known_groups`` finds what a poll changes, ``described_records`` writes it.
``source`` opens a dump and reads it, ``dump`` writes one, ``merge`` makes one of several.
``deletions`` finds keys that were deleted without a tombstone. ``selection`` chooses groups.
``split`` separates commits from other records, and makes rows and positions of them. ``decode``
reads records without Spark, ``decode_groups`` and ``decode_classic`` those of groups;
``decode_tasks`` reads assignments of more than topic-partitions (:mod:`holdfast.core.kinds`).
``share_positions`` has the positions of share groups. ``generations`` is the common form of group
records. ``json_records`` shows records as text, to people. ``envelopes`` removes what collectors
add to the lines of a log. ``printed/`` reads the output of Kafka's own tools about the topic.
"""

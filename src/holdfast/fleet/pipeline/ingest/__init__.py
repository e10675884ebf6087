"""Records of a cluster or a dump, to Arrow columns.

``offsets_topic`` reads a cluster, span by span, and follows open transactions, whose records
``transactions`` keeps. ``polled_feed`` polls coordinators instead of the topic,
``described_records`` writes what they answer. ``source`` opens a dump and reads it, ``dump`` writes
one, ``merge`` makes one of several. ``deletions`` finds keys that were deleted without a tombstone.
``split`` separates commits from other records, and makes rows and positions of them. ``decode``
chooses groups and reads records without Spark, ``decode_classic`` those of classic groups.
``generations`` is the common form of group records. ``envelopes`` removes what collectors add to
the lines of a log. ``printed/`` reads the output of Kafka's own tools about the topic.
"""

"""Records of a cluster or a dump, to Arrow columns.

``offsets_topic`` reads a cluster, span by span; ``topic_reader`` does so without Spark and follows
open transactions, of which ``transactions`` keeps the records. ``source`` opens a dump and reads
it, ``dump`` writes one, ``merge`` makes one of several. ``deletions`` finds keys that are gone
without a tombstone, and ``last_of_keys`` those that several dumps prove. ``selection`` chooses
groups. ``split`` tells commits
from other records, and makes rows and positions of them. ``decode`` reads records without Spark,
``decode_groups`` and ``decode_classic`` those of groups; ``decode_tasks`` has what members were
given that is more than partitions of topics (:mod:`holdfast.core.kinds`). ``share_positions`` says
where share groups are. ``generations`` is the common form of group records. ``json_records`` shows
records as text, to people. ``envelopes`` takes off what collectors put around the lines of a log.
``printed/`` reads what Kafka's own tools printed of the topic.
"""

"""Records of a cluster or a dump, to Arrow columns.

``offsets_topic`` reads a cluster, span by span. ``source`` opens a dump and reads it, ``dump``
writes one, ``merge`` makes one of several, ``selection`` chooses groups. ``split`` tells commits
from other records, and makes rows and positions of them. ``decode`` reads records without Spark,
``decode_groups`` and ``decode_classic`` those of groups; ``decode_tasks`` has what members were
given that is more than partitions of topics (:mod:`holdfast.core.kinds`). ``share_positions`` says
where share groups are. ``generations`` is the common form of group records. ``json_records`` shows
records as text, to people. ``envelopes`` takes off what collectors put around the lines of a log.
"""

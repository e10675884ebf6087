"""Records of a cluster or a dump, to Arrow columns.

``offsets_topic`` reads a cluster, span by span. ``source`` opens a dump, ``dump`` writes one,
``merge`` makes one of several, ``pieces`` reads their files in tasks, ``selection`` chooses groups.
``decode`` and ``decode_classic`` read records without Spark, with ``arrow_columns``;
``decode_tasks`` has what members were given that is more than partitions of topics
(:mod:`holdfast.core.kinds`). ``positions`` are committed offsets, reduced to the latest ones;
``share_positions`` says where share groups are. ``generations`` is the common form of group
records. ``json_records`` shows records as text, to people.
"""

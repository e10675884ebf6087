"""Records of a cluster or a dump, to Arrow columns.

``source`` opens one, ``dump`` writes one, ``selection`` says which groups are read; ``decode`` and
``decode_classic`` read records without Spark, ``records`` puts them into a job; ``arrow_columns``
are helpers for columns, ``positions`` are committed offsets and log ends.
"""

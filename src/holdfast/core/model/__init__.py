"""Groups, topics and assignments as columns, and every reported number about them.

``topics`` and ``group`` hold a consumer group. ``reported`` turns reports of members into columns,
``partitions`` has the shapes of a set of partitions, ``measure`` has the checked owner column and,
with ``lag``, the numbers. ``columns`` has the dtypes, ``constants`` numbers and names of Kafka's
messages and of the three designs.
"""

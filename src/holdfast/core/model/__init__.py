"""Groups, topics and assignments as columns, and every reported number about them.

``topics`` and ``group`` hold a consumer group. ``reported`` turns reports of members into columns,
``partitions`` has the shapes of a set of partitions, ``snapshot`` reads JSON. ``assignment`` is a
checked owner column. ``measure``, ``lag`` and ``fidelity`` define the numbers. ``columns`` has the
dtypes, ``limits`` special numbers of Kafka, ``designs`` their numbers and names, ``memoized`` a
cache whose bytes are bounded. ``poll_interval`` recognises a member that polled too rarely.
"""

"""From the offsets topic to tables: every rebalance of every group.

No other package uses Spark, except ``holdfast.spark``, for people who have a session. ``steps``
runs a step in this process or on Spark. ``session`` starts a Spark session, and explains what Spark
could not read. A package imports those below it in this table; ``plan``, ``replay/`` and
``batches/`` do not import each other.

=============  ==========================================================================
``replay/``    costs of another policy
``plan``       another assignment, and its cost
``batches/``   a dump at once or a stream batch after batch: the steps, their state
``history/``   history of groups: moves, causes, ownership gaps, lag
``ingest/``    records of a cluster or a dump, to Arrow columns
=============  ==========================================================================
"""

"""From the offsets topic to tables with Spark: every rebalance of every group.

No other package uses Spark, but for ``holdfast.spark``, which is for people who have a session.
``steps`` runs a step in this process or on Spark. ``session`` starts a Spark session, and
``command_session`` starts one for a command. ``spark_errors`` says what Spark could not read.
``arrow_types`` names the Arrow values that the rooms pass to each other. A room imports those below
it in this table; ``plan/``, ``replay/`` and ``batches/`` stand side by side.

=============  ==========================================================================
``replay/``    what another policy would have cost
``plan/``      what another assignment would be
``batches/``   a dump at once or a stream batch after batch: the steps, their state
``history/``   what happened to groups: moves, causes, pauses, lag
``ingest/``    records of a cluster or a dump, to Arrow columns
=============  ==========================================================================
"""

"""The offsets topic to tables with Spark: every rebalance of every group. The only user of Spark.

``session`` and ``command_session`` say where a session comes from.

=============  ==========================================================================
``ingest/``    records of a cluster or a dump, to Arrow columns
``history/``   what groups went through: generations, moves, causes, pauses, lag
``batches/``   all at once or batch after batch: the jobs, what a stream keeps, tables
``plan/``      what another assignment would be
``replay/``    what another policy would have done
=============  ==========================================================================
"""

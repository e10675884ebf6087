"""From the offsets topic to tables with Spark: every rebalance of every group.

No other package uses Spark. ``session`` starts a Spark session, and ``command_session`` starts one
for a command. ``call_log`` keeps logins out of the log of calls into the JVM. ``arrow_types`` names
the Arrow values that the rooms pass to each other.

=============  ==========================================================================
``ingest/``    records of a cluster or a dump, to Arrow columns
``history/``   what happened to groups: generations, moves, causes, pauses, lag
``batches/``   a dump at once or a stream batch after batch: the jobs, their state
``plan/``      what another assignment would be
``replay/``    what another policy would have cost
=============  ==========================================================================
"""

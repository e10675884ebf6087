"""The offsets topic to tables with Spark: every rebalance of every group. The only user of Spark.

================================================  ==============================================
``session``, ``command_session``                  where a session comes from
``source``, ``dump``, ``selection``               records of a cluster or a dump; which groups
``decode``, ``decode_classic``                    records to Arrow, without Spark
``arrow_columns``, ``records``                    their columns
``history``, ``watch``                            all at once, or batch after batch
``jobs``, ``split``, ``tasks``, ``state``         the steps of a batch, and what a stream keeps
``generations``, ``consumer_groups``, ``dense``   what groups went through, as columns
``movements``, ``rebalances``, ``needed``         what moved, why, and whether it had to
``pauses``, ``reconciled``                        what stood still
``broker_log``                                    causes that a broker states
``lag``, ``positions``                            how far groups are behind
``plan``, ``plan_rows``                           what another assignment would be
``plan_equal``, ``plan_spread``                   the same for thousands of groups at once
``replay``, ``replay_*``                          what another policy would have done
``storage``, ``delta``, ``schemas``, ``views``    tables on disk, and reading them
================================================  ==============================================
"""

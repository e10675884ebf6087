"""One running member of a group.

``leadership`` makes the machine from a configuration and plans rounds for a leader.
``member_thread`` runs the machine on its own thread, with ``mailbox`` as its queue;
``application_tasks`` are done by the application's thread. ``coordinator_client`` sends the
machine's requests and returns the answers; ``offsets`` has the offsets of a commit,
``group_metadata`` the metadata for a transactional producer. ``location`` names where the member
runs. ``member_runtime`` opens and closes all of it, ``metadata_watch`` keeps partition counts up to
date, and ``process`` refuses calls in a fork. ``closing`` decides which call ends a member and
when, ``signals`` handles SIGTERM and SIGINT. ``readiness`` keeps the file for a probe, ``waits``
reports which partitions wait for which departed member, ``member_log`` logs, ``missing_topics``
warns of the topics that a leader leaves out. ``broker_lags`` and ``lag_source`` get lags.
"""

"""One running member of a group.

``membership`` makes the machine from a configuration and plans rounds for a leader.
``member_thread`` runs the machine on its own thread, with ``mailbox`` as its queue, and ``tasks``
are what the application's thread does for it. ``coordinator`` sends the machine's requests and
returns the answers; ``offsets`` is what a commit says, ``group_metadata`` what the producer of a
transaction takes. ``place`` says where the member lives. ``runtime`` opens and closes all of it,
``metadata_watch`` keeps partition counts up to date, and ``process`` refuses the calls of a fork.
``closing`` decides which call ends a member and when, ``end_signals`` what SIGTERM and SIGINT do.
``readiness`` keeps the file for a probe. ``metrics`` counts, ``waits`` tells what waits for whom,
``member_log`` logs, ``missing_topics`` warns of the topics that a leader leaves out.
``broker_lags`` and ``lag_source`` ask for lags, and ``in_time`` calls a function of the user with a
deadline.
"""

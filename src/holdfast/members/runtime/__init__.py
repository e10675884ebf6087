"""One running member of a group.

``member_runtime`` opens and closes all of it. ``member_thread`` runs the machine on its own thread;
``application_tasks`` are done by the application's thread, and has the mailbox in which both get
their work. ``coordinator_client`` sends the machine's requests and returns the responses.
``leader_planner`` plans rounds for a member that leads, ``lags`` gets the
lags that a plan may use, and ``metadata_watch`` keeps partition counts up to date.
``application_calls`` has the running calls of a consumer, and its end by a close or a signal.
``readiness`` keeps the file for a probe, and ``member_log`` has the snapshot of a member and logs.
"""

"""One running member of a group.

``member_runtime`` opens and closes all of it, and keeps partition counts up to date.
``member_thread`` runs the machine on its own thread. ``coordinator_client`` sends the machine's
requests and returns the responses, and gets the lags that a plan may use. ``leader_planner`` plans
rebalances for a member that leads. ``application_calls`` has the running calls of a consumer, the
tasks that they do for the member, and the consumer's end by a close or a signal. ``member_status``
has the snapshot of a member, its log, and the file for a readiness probe.
"""

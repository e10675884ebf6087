"""One group's tables as columns, for the page, the doctor, the metrics and the trace.

``timeline`` has the owner of each partition over time, ``identity`` the member ids of each process,
``history`` the group's rebalances, ``rebuilding`` what a move costs, and ``given`` what the members
have now, by role.
"""

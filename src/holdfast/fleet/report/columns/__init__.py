"""One group's tables as columns, for the page, the doctor, the metrics and the trace.

``timeline`` has the owner of each partition over time and what the members have now, by role,
``identity`` the member ids of each process, ``history`` the group's rebalances, and ``rebuilding``
what a move costs. ``departures`` has the members that went, ``turnover`` the processes that came
and went for good. ``live`` is what coordinators say of groups, and since when; ``spans`` writes
lengths of time.
"""

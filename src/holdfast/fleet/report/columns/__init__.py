"""One group's tables as columns, for the page, the doctor, the metrics and the trace.

``timeline`` has the owner of each partition over time and what the members have now, by role,
``identity`` the member ids of each process, ``history`` the group's rebalances, and ``rebuilding``
the cost of a move. ``departures`` has departed members, ``turnover`` the processes that joined and
left for good. ``live`` has the coordinators' answers about groups over time; ``spans`` formats
durations.
"""

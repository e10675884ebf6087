"""The history of one group as columns, for the doctor, the page, the metrics and the trace.

``group_history`` is the whole history. ``timeline`` has the owner of each partition over time,
``identity`` the member ids of each process, ``presence`` the members of each generation,
``rebalances`` the group's rebalances, ``lag`` its lag now, ``lag_over_time`` the readings of a time
range, and ``rebuilding`` the cost of a move. ``overview`` has the figures of many groups.
``present_members`` has a row for each present member, and ``client_library`` recognises the library
that a member runs. ``live`` has the coordinators' answers about groups over time.
"""

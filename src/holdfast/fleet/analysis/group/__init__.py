"""The history of one group as columns, for the doctor, the page, the metrics and the trace.

``group_history`` is the whole history. ``timeline`` has the owner of each partition over time,
``presence`` the generations, their members, and the processes behind member ids, ``rebalances``
the group's rebalances and the cost of a move, ``lag`` its lag now, and ``lag_over_time`` the
readings of a time range. ``overview`` has the figures of many groups.
``present_members`` has a row for each present member, and ``client_library`` recognises the library
that a member runs. ``live`` has the coordinators' answers about groups over time.
"""

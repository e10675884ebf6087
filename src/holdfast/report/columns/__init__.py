"""One group's tables as columns, for the page, the doctor, the metrics and the trace.

``timeline`` is who owned what and when, ``identity`` which member ids are the same process, and
``history`` the group's rebalances and moves.
"""

"""Finding the optimum: flows, chains and closed forms.

``sticky_equal`` (equal subscriptions, one pass), ``sticky_flow`` (any, as a flow) and
``sticky_spread`` (each topic evenly) are the steps of ``sticky``. The flow is ``flow_graph``,
``flow_even``, ``flow_levels`` and ``flow_moves``. Lags: ``placing``, ``chains``, ``exchange``.
"""

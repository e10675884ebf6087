"""Finding the optimum: flows, chains and closed forms.

``sticky`` uses ``sticky_equal``, ``flow_graph``, ``sticky_flow``, ``flow_even``, ``flow_levels``,
``flow_moves`` and ``sticky_spread``; :mod:`holdfast.assignors.sticky` says what each one does.
``lag-sticky`` uses ``placing``, ``chains`` and ``exchange``; ``fairest-sticky`` uses the first two.
"""

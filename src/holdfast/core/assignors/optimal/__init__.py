"""Searches for the best assignment: flows, chains and a closed form.

``sticky`` uses ``sticky_equal``, ``flow_graph``, ``sticky_flow``, ``flow_moves`` and
``sticky_spread``; :mod:`holdfast.core.assignors.sticky` describes each file. ``previous_owners``
gives partitions that must move to members that had them before. ``lag-sticky`` uses ``levelling``
and ``exchange``; ``fairest-sticky`` uses the first.
"""

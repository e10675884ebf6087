"""What happened to groups, as columns.

``consumer_groups`` reads records of groups whose assignments the broker computes
(:mod:`holdfast.core.kinds.rows` lists them); ``dense`` lays out owners. ``movements`` finds what
moved, ``needed`` how much had to move, ``rebalances`` the causes, ``signs`` who went and how,
``broker_log`` causes that a broker states in the texts of ``broker_texts``, ``gaps`` what had no
owner, ``lag`` how far groups are behind, and for how long, ``lag_slope`` how fast that changes.
"""

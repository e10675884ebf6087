"""The history of groups, as columns.

``consumer_groups`` reads records of groups whose assignments the broker computes
(:mod:`holdfast.core.kinds` lists them); ``dense`` lays out owners. ``movements`` finds moves,
``needed`` the least number of them, ``rebalances`` the causes, ``departures`` departed members and
why, ``broker_log`` causes that a broker states in the texts of ``broker_texts``,
``ownership_gaps`` partitions without an owner, ``lag`` how far and for how long groups are behind.
"""

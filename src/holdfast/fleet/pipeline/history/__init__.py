"""The history of groups, as columns.

``consumer_groups`` reads records of groups whose assignments the broker computes
(:mod:`holdfast.core.kinds` lists them). ``movements`` compares generations and finds moves,
``departures`` joined and departed members, ``rebalances`` causes and the least number of moves,
``broker_log`` causes that a broker states in the texts of ``broker_texts``, ``ownership_gaps``
partitions without an owner, ``lag`` how far and for how long groups are behind.
"""

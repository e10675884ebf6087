"""The doctor: examines a fleet by rules.

The input of a rule is the history of a group. ``finding`` has the decorator that registers a rule.
``rules_rebalances``, ``rules_pollers``, ``rules_scaling``, ``rules_members``, ``rules_anomalies``,
``rules_lag`` and ``rules_now`` contain the rules. ``examination`` runs all rules over one group,
and has the rows of the table ``findings``; ``doctor`` examines a fleet.
"""

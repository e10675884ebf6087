"""The doctor: ``doctor`` examines a fleet by rules.

``facts`` is what the rules look at. ``finding`` has the decorator that registers a rule.
``rules_rebalances``, ``rules_pollers``, ``rules_scaling``, ``rules_members``, ``rules_places``,
``rules_workers``, ``rules_lag`` and ``rules_now`` hold the rules; ``of_rebalances`` makes symptoms
of rebalances.
``examination`` runs all of them over one group.
"""

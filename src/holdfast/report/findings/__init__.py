"""The doctor: ``doctor`` examines a fleet by rules.

``findings`` says what a rule is and lists all of them: ``rules_rebalances``, ``rules_members``,
``rules_lag``; ``facts`` is what they look at.
"""

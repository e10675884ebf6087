"""Members, leaders and a coordinator as state machines: events in, actions out, no clock.

``states`` has the transition tables, ``events`` and ``actions`` the inputs and outputs of a member,
``shared_values`` what a consumer's session shares with them, ``codes`` Kafka's errors. ``policy``
has the table of policies and the settings of the designs, and makes a policy of a user's function;
``policy_laws`` checks it. ``supported_protocols`` makes the protocols that members support.
``upgrade`` checks changes of assignor step by step.

================  =================================================================
``member/``       a member of a group
``leader/``       the leader's round, and the assignors that members support
``coordinator/``  Kafka's classic group coordinator
================  =================================================================
"""

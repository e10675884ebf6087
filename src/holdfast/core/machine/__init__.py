"""Members, leaders and a coordinator as state machines: events in, actions out, no clock.

``states`` has the transition tables, ``events`` and ``actions`` the inputs and outputs of a member,
``codes`` Kafka's errors. ``policies`` is the table of policies, ``policy`` the options of a design,
``own_policy`` makes a policy of a user's function, ``policy_laws`` checks it, and
``supported_protocols`` makes the protocols that members support. ``rebalance_protocol`` says
whether members revoke everything before they join, ``callbacks`` names the callbacks of a listener.
``upgrade`` checks changes of assignor step by step, ``clients`` tells which client library the
members of a group run.

================  =================================================================
``member/``       a member of a group
``leader/``       the leader's round, and the assignors that members support
``coordinator/``  Kafka's classic group coordinator
================  =================================================================
"""

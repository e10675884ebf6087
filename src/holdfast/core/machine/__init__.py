"""Members, leaders and a coordinator as state machines: events in, actions out, no clock.

``states`` has the transition tables, ``events`` and ``actions`` the inputs and outputs of a member,
``codes`` Kafka's errors. ``policies`` is the table of policies, ``policy`` the options of a design,
``own_policy`` makes a policy of a user's function, ``policy_laws`` checks it, and
``offers`` makes what members offer. ``rebalance_protocols`` are eager and cooperative,
``callbacks`` those of a listener. ``upgrade`` checks changes of assignor step by step, ``clients``
tells which client library the members of a group run.

================  =================================================================
``member/``       a member of a group
``leader/``       the leader's round, and the assignors that members offer
``coordinator/``  Kafka's classic group coordinator
================  =================================================================
"""

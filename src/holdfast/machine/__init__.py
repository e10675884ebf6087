"""Members, leaders and a coordinator as state machines: events in, actions out, no clock.

``states`` has the transition tables; ``events`` and ``actions`` are what a machine is told and what
it asks for, ``codes`` Kafka's errors; ``policies`` is the table of policies,
``policy`` the options of a design, ``upgrade`` changes of assignor as checked steps.

================  =================================================================
``member/``       a member of a group
``leader/``       the leader's round, and assignors as members speak them
``coordinator/``  Kafka's classic group coordinator
================  =================================================================
"""

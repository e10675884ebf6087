"""Costs of another policy.

``rows`` reads a history, in which it turns connectors, tasks and resources of workers into
partitions of kinds; ``trace_builder`` makes a trace of it (``trace`` has its classes).
``settings`` has the policies and the assignors of members. ``session`` plays one session in a
world (``kip848`` in the model of a KIP-848 group), and ``run`` all groups under all settings.
"""

"""Costs of another policy.

``rows`` reads a history, in which it turns connectors, tasks and resources of workers into
partitions of kinds; ``trace_builder`` makes a trace of it (``trace`` has its classes).
It has the policies and the assignors of members, too. ``session`` plays one session in a world, and
``run`` all groups under all settings.
"""

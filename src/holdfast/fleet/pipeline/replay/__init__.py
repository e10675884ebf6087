"""Costs of another policy.

``trace`` reads the rows of a group in a history, in which connectors, tasks and resources of
workers become partitions of kinds; ``trace_builder`` makes a trace of them. ``session`` plays one
session in a world, with the policies and assignors of members, and ``run`` all groups under all
settings.
"""

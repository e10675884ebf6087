"""A baseline for comparison: ``kip848``."""

BASELINES = {"kip848": "KIP-848-like (model)"}
"""Baseline -> its name in tables of measurements."""

BASELINE_ASSIGNORS = {"kip848": "uniform"}
"""Baseline -> the assignor of its assignments: the broker's default."""

"""Baselines that users compare with: ``kip848`` and ``connect``."""

BASELINES = {"kip848": "KIP-848-like (model)", "connect": "Connect as shipped"}
"""Baseline -> its name in tables of measurements."""

BASELINE_ASSIGNORS = {"kip848": "uniform", "connect": "connect"}
"""Baseline -> what computes its assignments: the broker's default, Connect's own."""

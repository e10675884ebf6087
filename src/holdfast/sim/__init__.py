"""A world for the machines, drawn from one seed, measured by ``holdfast simulate``.

``scenarios`` has the document's scenarios and plays the scenario of a file. Random faults and the
search of every order of events are in the tests (``tests/proof``), and so are the rules of the
protocol, which the tests check in a world.

``world/`` has virtual time, messages, members, costs and measurements; ``kip848`` is a model of
KIP-848, for comparison.
"""

BASELINES = {"kip848": "KIP-848-like (model)"}
"""Baseline -> its name in tables of measurements."""

BASELINE_ASSIGNORS = {"kip848": "uniform"}
"""Baseline -> the assignor of its assignments: the broker's default."""

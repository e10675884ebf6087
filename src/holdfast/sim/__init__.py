"""A world for the machines, drawn from one seed, measured by ``holdfast simulate``.

Random faults and the search of every order of events are in the tests (``tests/proof``), and so are
the rules of the protocol, which the tests check in a world. Each module imports only modules below
it in this list.

===============  ==================================================================================
``scenarios``    the document's scenarios, and the scenario of a file
``world``        connects all parts, and makes faults happen to them
``application``  the program around a member
``broker``       the coordinator, its log and its restarts; the network, and hooks around messages
``process``      a member machine in its process; whether nothing is in progress there
``kip848``       a model of KIP-848, for comparison
``clock``        when calls happen, how long events take; which process runs which resource when
===============  ==================================================================================
"""

BASELINES = {"kip848": "KIP-848-like (model)"}
"""Baseline -> its name in tables of measurements."""

BASELINE_ASSIGNORS = {"kip848": "uniform"}
"""Baseline -> the assignor of its assignments: the broker's default."""

"""The rules of a run: ``checkers`` with ``seen``, ``pacing`` and ``waiting``."""

"""The rules of a run: ``checkers`` with ``seen``, ``pacing``, ``waiting`` and ``commits``."""

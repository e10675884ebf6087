"""The rules of a run: ``checkers`` with ``seen``, ``pacing``, ``commits`` and ``waiting``.

``waiting`` keeps the ``records`` of rounds, and by ``lately`` who came lately.
"""

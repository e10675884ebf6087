"""The rules of a run: ``checkers`` with ``seen``, ``pacing``, ``commits`` and ``waiting``.

``ledger`` has the owners over time: the measured numbers, and rules that need time. ``waiting``
keeps the ``records`` of rounds, by ``lately`` the members that came lately, and by ``lent`` what is
lent. ``staying`` follows members that have just joined.
"""

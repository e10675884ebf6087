"""Baselines that users compare with: ``kip848`` and ``connect``."""

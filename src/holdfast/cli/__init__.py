"""holdfast.cli."""

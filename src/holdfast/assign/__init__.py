"""holdfast.assign."""

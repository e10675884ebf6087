"""holdfast.machine."""

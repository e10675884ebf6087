"""holdfast.sim."""

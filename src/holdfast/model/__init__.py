"""holdfast.model."""

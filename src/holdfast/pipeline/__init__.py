"""holdfast.pipeline."""

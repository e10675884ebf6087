"""holdfast.adapters."""

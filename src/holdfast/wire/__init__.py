"""holdfast.wire."""

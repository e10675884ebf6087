"""holdfast.jvm."""

"""holdfast.report."""

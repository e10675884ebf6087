"""holdfast.demo."""

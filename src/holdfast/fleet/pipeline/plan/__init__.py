"""What another assignment would be: ``run``, from ``rows``."""

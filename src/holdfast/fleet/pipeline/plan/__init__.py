"""What another assignment would be: ``run``, from ``rows``.

``equal`` plans thousands of groups at once.
"""

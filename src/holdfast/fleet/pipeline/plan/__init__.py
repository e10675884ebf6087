"""What another assignment would be: ``run``, from ``rows``.

``equal`` and ``spread`` plan thousands of groups at once.
"""

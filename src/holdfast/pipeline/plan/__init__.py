"""What another assignment would be: ``plan``, from ``plan_rows``.

``plan_equal`` and ``plan_spread`` plan thousands of groups at once.
"""

"""The tables about groups: ``group`` is the model of one group, ``findings`` its examination.

``source_times`` has the end of every window, the age of tables, and what polls do not show;
``spans`` formats durations.
"""

"""The tables about groups: ``group`` is the model of one group, ``findings`` its examination.

``source_times`` has the end of every window and the age of tables; ``spans`` formats durations.
"""

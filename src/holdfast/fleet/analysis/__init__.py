"""The tables about groups: ``group`` is the model of one group, ``findings`` its examination.

``times`` has the end of every window, the part of the tables in one, their age, what polls do not
show, and durations in words.
"""

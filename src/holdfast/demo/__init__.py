"""The main job: a real group on a real broker, told by three witnesses that must agree.

``run`` is the job; ``group`` holds the processes, which are ``member`` and ``producer`` and end by
``lifeline``. The witnesses are the members' own words (``journal``), the offsets topic through the
pipeline (``tables``), and where every record went (``accounting``).
"""

"""The main job: a real group on a real broker, described by three sources that must agree.

``run`` is the job. ``group`` starts the processes, which are ``member`` and ``producer``, and
``lifeline`` ends them. The three sources are the members' own journals (``journal`` has their
lines, ``ownership`` what follows from them), the offsets topic as the pipeline reads it, and the
count of records (``accounting``).
"""

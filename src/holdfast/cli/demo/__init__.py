"""The main job: real groups on a real broker, and what a rolling bounce of their members costs.

``run`` is the job. ``group`` starts the processes, which are ``member`` and ``producer``, and
``lifeline`` ends them. All numbers come from what the members write themselves: ``event_log`` has
the lines, ``ownership`` who owned what by them, and ``accounting`` which records were read.
"""

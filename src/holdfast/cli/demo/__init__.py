"""The demo: real groups on a real broker, and what a rolling bounce of their members costs.

``run`` is the demo. ``group`` starts the processes, which are ``member`` and ``producer``, and
``lifeline`` ends them. All numbers come from the members' own event logs: ``event_log`` has their
lines, and ``ownership`` derives who owned what.
"""

"""The demo: real groups on a real broker, and what a rolling bounce of their members costs.

``run`` is the demo. ``processes`` starts its processes, and has their programs. All numbers come
from the members' own event logs: ``event_log`` has their lines, and derives who owned what.
"""

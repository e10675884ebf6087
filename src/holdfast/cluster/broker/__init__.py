"""A real Kafka on this machine, of any version.

``broker`` starts and stops a cluster, ``properties`` is what its processes are told, ``server`` is
one of them, and ``broker_guard`` ends it with its parent.
"""

"""A real Kafka on this machine, of any version.

``broker`` starts and stops a cluster, ``properties`` writes the configuration of its processes,
``server`` is one process, and ``broker_guard`` ends a process with its parent.
"""
